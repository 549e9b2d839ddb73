"""The fields that a pipeline indexes so that other pipelines can filter by them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from backend.domain import json, limits, paths
from backend.domain.model import StrictModel


class IndexedField(StrictModel):
    """One field that filters can use."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,62}$", description="Name of the field in filters.", examples=["country"]
    )
    path: paths.FieldPath = Field(description="Path of the field in the message.", examples=["order.country"])
    type: Literal["string", "number", "boolean", "time", "location"] = Field(
        "string",
        description="Values of other types are ignored. time: ISO 8601 with a time zone. location: an object with "
        "lat and "
        "lon, or a list of the two.",
    )


def index_of(fields: Sequence[IndexedField], document: Any) -> bytes:
    """The value of the ``firehose_index`` header: a JSON object of those fields that the document has. Raises
    TooLargeError."""
    values = {}
    for field in fields:
        value = _READ[field.type](paths.get(document, paths.parse_path(field.path)))
        if value is not None:
            values[field.name] = value
    index = json.dumps(values)
    if len(index) > limits.INDEX_BYTES:
        raise limits.TooLargeError(
            f"The fields that messages are filtered by are larger than {limits.INDEX_BYTES:,} bytes in total."
        )
    return index


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | Decimal | None:
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _time(value: Any) -> str | None:
    """The time in UTC with a fixed length, so that times can be compared as text."""
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    if at.tzinfo is None:
        return None
    try:
        return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


def _location(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        value = [value.get("lat"), value.get("lon")]
    if not isinstance(value, list) or len(value) != 2:
        return None
    latitude, longitude = map(_number, value)
    if latitude is None or longitude is None or not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        return None
    return [latitude, longitude]


_READ = {"string": _string, "number": _number, "boolean": _boolean, "time": _time, "location": _location}
