"""JSON as BSON, and BSON as JSON.

Plain JSON has no dates, object ids and the like: they are texts in it. MongoDB's Extended JSON keeps every type, as
objects such as ``{"$date": "2026-01-31T12:00:00Z"}``.
"""

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from backend.domain import json, paths
from backend.domain.numbers import is_double

Format = Literal["plain", "extended"]
BsonType = Literal["date", "object_id", "decimal"]

_DECIMAL128_DIGITS = 34
_INT64 = 2**63


class UnfitDocumentError(ValueError):
    """A JSON document that cannot be a document of MongoDB; the message says why."""


def from_json(body: bytes, form: Format, types: Mapping[tuple[str, ...], BsonType]) -> dict[str, Any]:
    """The document. ``types`` are those of fields that JSON has no type for. Raises UnfitDocumentError."""
    try:
        document: Any = json.loads(body)
        if not isinstance(document, dict):
            raise UnfitDocumentError("Documents are JSON objects; this message is another value.")
        document = _from_extended(body) if form == "extended" else _from_plain(document)
        if not isinstance(document, dict):  # as a whole one of the objects that stand for a type
            raise UnfitDocumentError("Documents are JSON objects; this message is another value.")
        for path, kind in types.items():
            _convert(document, path, kind)
    except json.InvalidJsonError as error:
        raise UnfitDocumentError(f"Documents are JSON objects; this message is not JSON: {error}") from None
    checked: dict[str, Any] = document
    return checked


def to_json(document: Mapping[str, Any], form: Format) -> bytes:
    """The document as JSON."""
    if form == "extended":
        from bson import json_util

        return json_util.dumps(document, json_options=_relaxed(), ensure_ascii=False, separators=(",", ":")).encode()
    return json.dumps(_to_plain(document))


def to_extended(value: Any) -> Any:
    """A value as canonical Extended JSON, from which it is read back unchanged."""
    from bson import json_util

    return json.loads(json_util.dumps(value, json_options=json_util.CANONICAL_JSON_OPTIONS))


def from_extended(value: Any) -> Any:
    """The inverse of ``to_extended``. Raises UnfitDocumentError."""
    return _from_extended(json.dumps(value))


def extended_text(value: Any) -> str:
    """A value as relaxed Extended JSON, for people."""
    from bson import json_util

    return json_util.dumps(value, json_options=_relaxed())


def plain_text(value: Any) -> str:
    """A value as text, such as the hexadecimal digits of an object id."""
    return json.text(_to_plain(value))


def _relaxed() -> Any:
    from bson import json_util
    from bson.codec_options import DatetimeConversion

    conversion = DatetimeConversion.DATETIME_AUTO  # not all of MongoDB's dates are Python's
    mode = json_util.JSONMode.RELAXED
    return json_util.JSONOptions(json_mode=mode, tz_aware=True, datetime_conversion=conversion)


def _from_extended(body: bytes) -> Any:
    from bson import json_util
    from bson.errors import BSONError

    try:
        return json_util.loads(body.decode(), json_options=_relaxed())
    except (BSONError, TypeError, ValueError, ArithmeticError) as error:
        raise UnfitDocumentError(f"The message is not Extended JSON: {error}.") from None


def _from_plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _from_plain(part) for name, part in value.items()}
        case list():
            return [_from_plain(part) for part in value]
        case Decimal():
            # A double where it says the same, as for 0.1.
            return float(value) if is_double(value) else _decimal(value)
        case bool():
            return value
        case int():
            return value if -_INT64 <= value < _INT64 else _decimal(Decimal(value))
    return value


def _decimal(value: Decimal) -> Any:
    from bson import Decimal128

    if len(value.normalize().as_tuple().digits) > _DECIMAL128_DIGITS:
        raise UnfitDocumentError(f"The number {value} has more than {_DECIMAL128_DIGITS} digits.")
    try:
        return Decimal128(value)
    except ArithmeticError:
        raise UnfitDocumentError(f"The number {value} is out of the range of MongoDB's decimals.") from None


def _convert(document: dict[str, Any], path: tuple[str, ...], kind: BsonType) -> None:
    value = paths.get(document, path)
    if value is paths.MISSING or value is None:
        return
    from bson import Decimal128, ObjectId
    from bson.errors import InvalidId

    name = ".".join(path)
    try:
        match kind, value:
            case "date", str():
                moment = datetime.fromisoformat(value)
                converted: Any = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            case "object_id", str():
                converted = ObjectId(value)
            case "decimal", str() | float():
                converted = _decimal(Decimal(str(value)))
            case "decimal", int() if not isinstance(value, bool):
                converted = _decimal(Decimal(value))
            case "decimal", Decimal128():
                return
            case _:
                raise UnfitDocumentError(f"Field {name} cannot be stored as {kind}: it has another type.")
    except (ValueError, InvalidId, ArithmeticError) as error:
        raise UnfitDocumentError(f"Field {name} cannot be stored as {kind}: {error}.") from None
    paths.put(document, path, converted)


def _to_plain(value: Any) -> Any:
    from bson import Binary, Decimal128, ObjectId

    match value:
        case None | bool() | str():
            return value
        case Mapping():
            return {name: _to_plain(part) for name, part in value.items()}
        case list():
            return [_to_plain(part) for part in value]
        case int():
            return int(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case ObjectId():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Decimal128():
            number = value.to_decimal()
            return number if number.is_finite() else str(number)
        case bytes():
            if isinstance(value, Binary) and value.subtype == 4:
                return str(value.as_uuid())
            return base64.b64encode(value).decode()
    # Types that JSON has nothing like, such as regular expressions.
    return to_extended(value)
