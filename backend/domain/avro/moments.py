"""Dates and times: ISO 8601 in JSON, integers in Avro.

Both here and in the library they are those of Python: of the years 1 to 9999, times of day of 24 hours.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from fastavro.read import LOGICAL_READERS

from backend.domain.avro.scalars import MisfitError, Range, Scalar, integer

_EPOCH = datetime(1970, 1, 1)
_DAY, _MILLISECOND, _MICROSECOND = timedelta(days=1), timedelta(milliseconds=1), timedelta(microseconds=1)


class _MillisecondTime(time):
    """A time of day that was read from milliseconds: so a union knows it from one of microseconds."""

    @classmethod
    def of(cls, at: time) -> "_MillisecondTime":
        return cls(at.hour, at.minute, at.second, at.microsecond)


def _of_years(unit: timedelta) -> Range:
    return Range((datetime.min - _EPOCH) // unit, (datetime.max - _EPOCH) // unit, "the years 1 to 9999")


def _of_day(unit: timedelta) -> Range:
    return Range(0, timedelta(days=1) // unit - 1, "the 24 hours of a day")


class _Moment(NamedTuple):
    """Dates, times of day or times as texts, or as the integer that is written."""

    what: str
    kind: type
    read: Callable[[str], Any]
    numbers: Range
    is_fine: Callable[[Any], bool]
    known: Callable[[Any], Any] = lambda moment: moment
    """Makes what the library has read one of ``kind``."""

    def scalar(self) -> Scalar:
        integers = integer(self.numbers)

        def native(value: Any) -> Any:
            return self._of_text(value) if isinstance(value, str) else integers.native(value)

        def fits(value: Any) -> bool:
            return integers.fits(value) or (self.kind is date and isinstance(value, str) and _is_date(value))

        return Scalar(fits, native, (self.kind,), lambda datum: datum.isoformat())

    def reader(self, read: Callable[..., Any]) -> Callable[..., Any]:
        """The library's reader but for the kind of time that it makes, and for numbers that are no such time: it reads
        -1 as the last moment of a day, and others fail in its own words."""

        def reader(number: int, *schemas: Any) -> Any:
            if number not in self.numbers:
                raise MisfitError(f"{self.what} is out of {self.numbers.name}")
            return self.known(read(number, *schemas))

        return reader

    def _of_text(self, text: str) -> Any:
        try:
            moment = self.read(text)
        except ValueError:
            raise MisfitError(f"it is not {self.what} as in ISO 8601") from None
        except OverflowError:
            raise MisfitError(f"it is out of {self.numbers.name}") from None
        if not self.is_fine(moment):
            raise MisfitError(f"it is not {self.what} of this type: its zone or its digits do not fit")
        return moment


def _instant(text: str) -> datetime:
    """Raises OverflowError for one whose zone makes it one of the year 0 or 10000."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.astimezone(UTC)


def _is_date(text: str) -> bool:
    """The library takes the text of a date, too."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_milliseconds(moment: datetime | time) -> bool:
    return moment.microsecond % 1000 == 0


_MOMENTS = {
    ("int", "date"): _Moment("a date", date, date.fromisoformat, _of_years(_DAY), lambda day: True),
    ("int", "time-millis"): _Moment(
        "a time of day",
        _MillisecondTime,
        time.fromisoformat,
        _of_day(_MILLISECOND),
        lambda at: at.tzinfo is None and _is_milliseconds(at),
        _MillisecondTime.of,
    ),
    ("long", "time-micros"): _Moment(
        "a time of day", time, time.fromisoformat, _of_day(_MICROSECOND), lambda at: at.tzinfo is None
    ),
    ("long", "timestamp-millis"): _Moment(
        "a time",
        datetime,
        _instant,
        _of_years(_MILLISECOND),
        lambda at: at.tzinfo is not None and _is_milliseconds(at),
    ),
    ("long", "timestamp-micros"): _Moment(
        "a time", datetime, _instant, _of_years(_MICROSECOND), lambda at: at.tzinfo is not None
    ),
    ("long", "local-timestamp-millis"): _Moment(
        "a local time",
        datetime,
        datetime.fromisoformat,
        _of_years(_MILLISECOND),
        lambda at: at.tzinfo is None and _is_milliseconds(at),
    ),
    ("long", "local-timestamp-micros"): _Moment(
        "a local time", datetime, datetime.fromisoformat, _of_years(_MICROSECOND), lambda at: at.tzinfo is None
    ),
}

for (_type, _logical), _moment in _MOMENTS.items():
    LOGICAL_READERS[f"{_type}-{_logical}"] = _moment.reader(LOGICAL_READERS[f"{_type}-{_logical}"])

MOMENTS = {kind: moment.scalar() for kind, moment in _MOMENTS.items()}
"""By the names of the type and of its logical type."""
