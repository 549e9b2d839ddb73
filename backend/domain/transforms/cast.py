import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from pydantic import Field

from backend.domain import json
from backend.domain.transforms.base import FieldTransform, TransformError, transforms

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_MAX_DIGITS = 1000
_NUMBER = re.compile(r"\s*[+-]?\d+(\.\d+)?([eE][+-]?\d{1,3})?\s*")


def _number(value: Any) -> int | Decimal:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | Decimal):
        return value
    if not isinstance(value, str) or len(value) > _MAX_DIGITS or not _NUMBER.fullmatch(value):
        raise ValueError
    return int(value) if value.strip().lstrip("+-").isdigit() else Decimal(value.strip())


def _integer(value: Any) -> int:
    number = _number(value)
    # 1e999999999 is a short text but a very long integer.
    if isinstance(number, Decimal) and (number.adjusted() > _MAX_DIGITS or number != number.to_integral_value()):
        raise ValueError
    return int(number)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return _WORDS[str(value).strip().lower()]


_CASTS: dict[str, Callable[[Any], Any]] = {
    "string": json.text,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
}


@transforms.register
class Cast(FieldTransform):
    """Converts a field to another type. Numbers keep every digit."""

    example = {"type": "cast", "path": "order.total", "into": "number"}

    type: Literal["cast"] = "cast"
    into: Literal["string", "integer", "number", "boolean"] = Field(
        description="Target type. For boolean, true, yes and 1 are true; false, no and 0 are false."
    )
    on_failure: Literal["dead_letter", "null", "keep"] = Field(
        "dead_letter",
        description="For a value that cannot be converted: the message becomes a dead letter, the field becomes "
        "null, or "
        "the value is kept.",
    )

    def compile_value(self) -> Callable[[Any], Any]:
        cast = _CASTS[self.into]

        def change(value: Any) -> Any:
            try:
                return cast(value)
            except (ValueError, KeyError, TypeError, OverflowError, InvalidOperation):
                if self.on_failure == "dead_letter":
                    raise TransformError(f"The value of {self.path} cannot be converted to {self.into}.") from None
                return None if self.on_failure == "null" else value

        return change
