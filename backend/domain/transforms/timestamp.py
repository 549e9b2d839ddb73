import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, field_validator

from backend.domain.transforms.base import FieldTransform, TransformError, transforms

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"unix": 1, "unix_ms": 1000, "unix_us": 1_000_000}
_MAX_DIGITS = 20
_FORMAT = 'iso8601, unix, unix_ms, unix_us, or a pattern such as "%d/%m/%Y %H:%M"'


@transforms.register
class Timestamp(FieldTransform):
    """Converts a time from one format to another."""

    example = {"type": "timestamp", "path": "created", "read": "unix_ms", "write": "iso8601"}

    type: Literal["timestamp"] = "timestamp"
    read: str = Field("iso8601", max_length=100, description=f"Format of the field: {_FORMAT}.")
    write: str = Field("iso8601", max_length=100, description=f"Format to write: {_FORMAT}.")
    time_zone: str = Field(
        "UTC",
        description="Time zone of values that have none, and of the values written.",
        examples=["America/Sao_Paulo"],
    )

    @field_validator("read")
    @classmethod
    def _check_read(cls, form: str) -> str:
        try:
            datetime.strptime("", form)
        except re.error:  # Python makes a regular expression of a pattern, with a name for each of its parts
            raise ValueError(f"No time can be read by {form!r}, which has a part twice.") from None
        except ValueError:
            pass  # the empty text is no time
        return form

    @field_validator("time_zone")
    @classmethod
    def _check_zone(cls, name: str) -> str:
        if name not in available_timezones():
            raise ValueError(
                f"{name!r} is not a time zone. Write it as in the IANA database, such as America/Sao_Paulo."
            )
        return name

    def compile_value(self) -> Callable[[Any], Any]:
        zone = ZoneInfo(self.time_zone)
        read, write = _reader(self.read, zone), _writer(self.write, zone)

        def change(value: Any) -> Any:
            try:
                return write(read(value))
            except (ValueError, TypeError, OverflowError, ArithmeticError):
                raise TransformError(f"The value of {self.path} is not a time in the format {self.read}.") from None

        return change


def _reader(form: str, zone: ZoneInfo) -> Callable[[Any], datetime]:
    if unit := _UNITS.get(form):
        return lambda value: _EPOCH + timedelta(microseconds=_microseconds(value, 1_000_000 // unit))
    parse = datetime.fromisoformat if form == "iso8601" else lambda text: datetime.strptime(text, form)

    def read(value: Any) -> datetime:
        time = parse(value)
        return time if time.tzinfo else time.replace(tzinfo=zone)

    return read


def _microseconds(value: Any, factor: int) -> int:
    number = Decimal(value) * factor
    if number.adjusted() > _MAX_DIGITS:
        raise ValueError("the number is too large for a time")
    return int(number)


def _writer(form: str, zone: ZoneInfo) -> Callable[[datetime], Any]:
    if unit := _UNITS.get(form):
        return lambda at: (at - _EPOCH) // timedelta(microseconds=1_000_000 // unit)
    if form == "iso8601":
        return lambda at: at.astimezone(zone).isoformat().replace("+00:00", "Z")
    return lambda at: at.astimezone(zone).strftime(form)
