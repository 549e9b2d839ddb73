from collections.abc import Callable
from typing import Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, field_validator

from backend.domain import times
from backend.domain.transforms.base import FieldTransform, TransformError, transforms

_FORMAT = 'iso8601, unix, unix_ms, unix_us, unix_ns, or a pattern such as "%d/%m/%Y %H:%M"'


@transforms.register
class Timestamp(FieldTransform):
    """Converts a time from one format to another. A zone in the text or a literal Z, UTC or GMT in the format wins."""

    example = {"type": "timestamp", "path": "created", "read": "unix_ms", "write": "iso8601"}

    type: Literal["timestamp"] = "timestamp"
    read: str = Field(times.ISO8601, max_length=100, description=f"Format of the field: {_FORMAT}.")
    write: str = Field(times.ISO8601, max_length=100, description=f"Format to write: {_FORMAT}.")
    time_zone: str = Field(
        "UTC",
        description="Time zone of values that have none, and of the values written.",
        examples=["America/Sao_Paulo"],
    )

    @field_validator("read")
    @classmethod
    def _check_read(cls, form: str) -> str:
        times.check_read(form)
        return form

    @field_validator("write")
    @classmethod
    def _check_write(cls, form: str) -> str:
        times.check_format(form)
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
        read, write = times.reader(self.read, zone), times.writer(self.write, zone)

        def change(value: Any) -> Any:
            try:
                return write(read(value))
            except (ValueError, TypeError, OverflowError, ArithmeticError):
                raise TransformError(f"The value of {self.path} is not a time in the format {self.read}.") from None

        return change
