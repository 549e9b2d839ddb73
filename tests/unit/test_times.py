from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain import times
from backend.domain.times import Instant

SAO_PAULO, BERLIN = ZoneInfo("America/Sao_Paulo"), ZoneInfo("Europe/Berlin")

instants = st.builds(
    Instant,
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda at: at.replace(microsecond=0, tzinfo=UTC)),
    st.integers(0, 10**9 - 1),
)
zones = st.sampled_from([ZoneInfo("UTC"), SAO_PAULO, BERLIN, ZoneInfo("Asia/Kathmandu")])


@given(instants, zones, zones)
def test_every_nanosecond_is_read_as_it_was_written(time: Instant, written: ZoneInfo, read: ZoneInfo) -> None:
    # An offset of some years had seconds, which ISO 8601 does not know.
    text = times.writer(times.ISO8601, written)(time)
    assert times.reader(times.ISO8601, read)(text) == time
    number = times.writer("unix_ns", written)(time)
    assert times.reader("unix_ns", read)(number) == time
    seconds = times.writer("unix", written)(time)
    assert times.reader("unix", read)(seconds) == Instant(time.at)


@pytest.mark.parametrize("fraction", ["000060", "123460", "0000000060"])
def test_digits_of_a_fraction_are_no_leap_second(fraction: str) -> None:
    for text in (f"2000-01-01T00:00:00.{fraction}Z", f"20000101T000000,{fraction}"):
        assert times.reader(times.ISO8601, ZoneInfo("UTC"))(text).nanoseconds == int(fraction[:9].ljust(9, "0"))


@given(instants, zones, zones)
def test_a_zone_in_the_text_wins(time: Instant, written: ZoneInfo, read: ZoneInfo) -> None:
    for form in ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%SZ", "%d %b %Y %H:%M:%S GMT"):
        assert times.reader(form, read)(times.writer(form, written)(time)).at == time.at


@pytest.mark.parametrize(
    ("local", "zone", "offset"),
    [
        ("2024-03-31 02:30", BERLIN, 1),  # left out: 02:00 is followed by 03:00
        ("2024-10-27 02:30", BERLIN, 2),  # there twice
        ("2024-07-01 12:00", BERLIN, 2),
        ("2018-11-04 00:30", SAO_PAULO, -3),
    ],
)
def test_before_a_change_of_the_clocks_its_offset_holds(local: str, zone: ZoneInfo, offset: int) -> None:
    expected = datetime.fromisoformat(local).replace(tzinfo=UTC) - timedelta(hours=offset)
    assert times.reader("%Y-%m-%d %H:%M", zone)(local) == Instant(expected)
    assert times.reader(times.ISO8601, zone)(local) == Instant(expected)


@pytest.mark.parametrize(
    ("form", "part"),
    [
        ("", "is no format"),
        ("unix_s", "is no format"),
        ("100%%", "is no format"),
        ("%Y %", "no part %;"),
        ("%Y %q", "no part %q"),
        ("%Y-%-d", "no part %-"),
        ("%s", "no part %s"),
        ("%Y %Y", "a part twice"),
        ("%G-%V", "needs the year"),
        ("%Y-%V-%u", "needs the year"),
    ],
)
def test_patterns_by_which_nothing_can_be_read_are_refused(form: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        times.check_read(form)


@pytest.mark.parametrize(
    "form", ["iso8601", "unix_ns", "%d/%m/%Y", "%G-W%V-%u", "%a, %d %b %Y %H:%M:%S %Z", "%H:%M", "%%%Y"]
)
def test_others_are_not(form: str) -> None:
    times.check_read(form)
    times.check_format(form)


@pytest.mark.parametrize(
    "text", ["2016-12-30T23:59:60Z", "2016-12-31T23:59:60-03:00", "2016-12-31T22:59:60Z", "2016-12-31T23:60Z"]
)
def test_a_leap_second_is_at_the_end_of_june_or_december(text: str) -> None:
    with pytest.raises(ValueError, match=r"no leap second|Invalid isoformat|must be in"):
        times.reader(times.ISO8601, SAO_PAULO)(text)
    assert times.reader(times.ISO8601, SAO_PAULO)("2015-06-30T20:59:60").at == datetime(2015, 7, 1, tzinfo=UTC)
