"""Texts and numbers as times, and back.

What a text says of its zone wins over what a configuration says of texts that name none. For local times that a change
of the clocks leaves out or repeats, the offset before the change holds (RFC 5545 3.3.5). Nine digits of a second are
kept.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

ISO8601 = "iso8601"
UNITS = {"unix": 1, "unix_ms": 10**3, "unix_us": 10**6, "unix_ns": 10**9}
"""Formats that are numbers since 1970, with how many there are in a second."""

_DIRECTIVES = "aAwdbBmyYHIpMSfzZjUWcxXGuV%"
"""Those of Python that mean the same on every system."""
_ZONES = {
    "UTC": 0,
    "GMT": 0,
    "UT": 0,
    "Z": 0,
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
}
"""Names of zones that have one meaning (RFC 5322 4.3), in hours from UTC."""
_ZONE_NAME = re.compile(rf"(?<![A-Za-z])({'|'.join(_ZONES)})(?![A-Za-z])")
_LITERAL_UTC = re.compile(r"(?<![A-Za-z])(Z|UTC|GMT)(?![A-Za-z])")
_FRACTION = re.compile(r"(?<=[.,])(\d{6})(\d{1,3})\d*")
_LEAP = re.compile(r"([^.,]*\d\d:?\d\d:?)60((?:[.,]\d+)?(?:Z|[+-].*)?)", re.DOTALL | re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_SAMPLE = datetime(2024, 3, 5, 9, 15, 30, 120000, UTC)
_MAX_DIGITS = 23


@dataclass(frozen=True, slots=True)
class Instant:
    at: datetime
    """With an offset, in whole seconds."""
    nanoseconds: int = 0


def check_format(form: str) -> None:
    """Raises ValueError if it is neither the name of a format nor a pattern that has a part of a time."""
    if form == ISO8601 or form in UNITS:
        return
    directives = re.findall(r"%(.?)", form, re.DOTALL)
    if not set(directives) - {"%"}:
        known = ", ".join([ISO8601, *UNITS])
        raise ValueError(f"{form!r} is no format: use one of {known}, or a pattern such as %d/%m/%Y.")
    for directive in directives:
        if not directive or directive not in _DIRECTIVES:
            raise ValueError(f"A pattern has no part %{directive}; a percent sign is written as %%.")


def check_read(form: str) -> None:
    """Raises ValueError if no text can be read by it."""
    check_format(form)
    if form == ISO8601 or form in UNITS:
        return
    try:
        datetime.strptime(_SAMPLE.strftime(form), form)
    except re.error:  # Python makes a regular expression of a pattern, with a name for each of its parts
        raise ValueError(f"No time can be read by {form!r}, which has a part twice.") from None
    except ValueError:
        text = f"No time can be read by {form!r}: a week or a day of a week needs the year that it belongs to."
        raise ValueError(text) from None


def reader(form: str, zone: ZoneInfo) -> Callable[[Any], Instant]:
    """Reads values of a checked format; ``zone`` is that of texts that name none. The function raises ValueError,
    TypeError, OverflowError or ArithmeticError for a value that is no such time."""
    if unit := UNITS.get(form):
        return lambda value: _of_number(value, 10**9 // unit)
    if form == ISO8601:
        return lambda value: _of_iso8601(value, zone)
    return _pattern_reader(form, zone)


def is_iso8601(text: str) -> bool:
    """Whether it is a time of ISO 8601 whose leap second, if it has one, is at the end of June or December."""
    try:
        _of_iso8601(text.upper(), UTC)
    except ValueError:
        return False
    return True


def writer(form: str, zone: ZoneInfo) -> Callable[[Instant], Any]:
    """Writes times in a checked format: in ``zone``, or in UTC where the pattern says so itself. Numbers are whole, the
    part of a unit is cut off; ``%f`` has six digits."""
    if unit := UNITS.get(form):
        return lambda time: (time.at - _EPOCH) // _SECOND * unit + time.nanoseconds * unit // 10**9
    if form == ISO8601:
        return lambda time: _iso8601(time, zone)
    written = UTC if _says_utc(form) else zone
    return lambda time: _local(time, written).replace(microsecond=time.nanoseconds // 1000).strftime(form)


def _of_number(value: Any, nanoseconds: int) -> Instant:
    if isinstance(value, bool):
        raise TypeError("a boolean is no number")
    number = Decimal(value) * nanoseconds
    if number.adjusted() > _MAX_DIGITS:
        raise ValueError("the number is too large for a time")
    seconds, rest = divmod(int(number // 1), 10**9)
    return Instant(_EPOCH + timedelta(seconds=seconds), rest)


def _of_iso8601(text: str, zone: ZoneInfo | timezone) -> Instant:
    text, nanoseconds = _without_nanoseconds(text)
    leap = _LEAP.fullmatch(text)
    if leap is None:
        return _instant(datetime.fromisoformat(text), zone, nanoseconds)
    before = _instant(datetime.fromisoformat(f"{leap[1]}59{leap[2]}"), zone, nanoseconds)
    after = Instant(before.at + _SECOND, before.nanoseconds)
    # Leap seconds end the last day of June or December in UTC (RFC 3339 5.7). Their number since 1970 is that of the
    # second after them.
    if after.at.astimezone(UTC).timetuple()[1:6] not in {(1, 1, 0, 0, 0), (7, 1, 0, 0, 0)}:
        raise ValueError("there is no leap second at this time")
    return after


def _pattern_reader(form: str, zone: ZoneInfo) -> Callable[[Any], Instant]:
    parts = set(re.findall(r"%(.)", form, re.DOTALL))
    names_zone = "Z" in parts and "z" not in parts
    with_offset = re.sub(r"%(.)", lambda part: "%z" if part[1] == "Z" else part[0], form)
    otherwise = UTC if _says_utc(form) else zone

    def read(text: Any) -> Instant:
        nanoseconds = 0
        if "f" in parts:
            text, nanoseconds = _without_nanoseconds(text)
        if names_zone:
            *_, name = _ZONE_NAME.finditer(text)
            offset = f"{_ZONES[name[1]]:+03d}00"
            text = f"{text[: name.start()]}{offset}{text[name.end() :]}"
        return _instant(datetime.strptime(text, with_offset if names_zone else form), otherwise, nanoseconds)

    return read


def _says_utc(form: str) -> bool:
    """Whether a pattern without a zone has a literal one, as in ``%H:%M:%SZ``."""
    parts = re.findall(r"%(.)", form, re.DOTALL)
    return not {"z", "Z"} & set(parts) and _LITERAL_UTC.search(re.sub(r"%.", "\0", form)) is not None


def _without_nanoseconds(text: str) -> tuple[str, int]:
    """The text with at most six digits of a second, and what the others say."""
    found = _FRACTION.search(text)
    if found is None:
        return text, 0
    return text[: found.end(1)] + text[found.end() :], int(found[2].ljust(3, "0"))


def _instant(time: datetime, zone: ZoneInfo | timezone, nanoseconds: int) -> Instant:
    if time.tzinfo is None:
        # The offset before a change of the clocks is that of fold 0.
        time = time.replace(tzinfo=zone).astimezone(UTC)
    return Instant(time.replace(microsecond=0), time.microsecond * 1000 + nanoseconds)


def _local(time: Instant, zone: ZoneInfo | timezone) -> datetime:
    return time.at.astimezone(zone)


def _iso8601(time: Instant, zone: ZoneInfo) -> str:
    text = _local(time, zone).isoformat().replace("+00:00", "Z")
    if not time.nanoseconds:
        return text
    digits = f"{time.nanoseconds:09d}"
    fraction = digits if time.nanoseconds % 1000 else digits[:6]
    return f"{text[:19]}.{fraction}{text[19:]}"
