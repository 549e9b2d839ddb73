"""Values as the driver takes and gives them: MySQL and MariaDB do not convert between JSON and rows without loss."""

import base64
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from backend.connectors.parts.database import Table, message_error, without_zone
from backend.domain import json
from backend.domain.capabilities import BatchRefusedError

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXT = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")


def to_driver(table: Table, name: str, value: Any) -> Any:
    """A value of JSON as the driver takes it. Raises BatchRefusedError where the server would round it."""
    if value is None:
        return None
    type_ = table.columns[name].type.partition("(")[0].partition(" ")[0]
    if type_ == "json":
        return json.dumps(value).decode()
    if isinstance(value, dict | list):
        return json.dumps(value).decode()
    if type_ in _INTEGERS and isinstance(value, Decimal) and value != value.to_integral_value():
        error = message_error(f"Column {name} takes {table.columns[name].type}: {value} is not a whole number.")
        raise BatchRefusedError(error.reason, str(error), retryable=False, about_message=True)
    if type_ in ("datetime", "timestamp"):
        return without_zone(value)
    if type_ in _BINARY and isinstance(value, str):
        return _bytes(value)
    if type_ == "bit" and isinstance(value, bool):
        return int(value)
    if type_ in _TEXT and not isinstance(value, str):
        return json.text(value)
    return value


def _bytes(text: str) -> bytes:
    """Hexadecimal after ``\\x``, as PostgreSQL and this connector's inputs write binary values, or the text itself."""
    if text.startswith("\\x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            pass
    return text.encode()


def from_driver(value: Any) -> Any:
    """A value of the driver as JSON."""
    match value:
        case bytes():
            return f"\\x{value.hex()}"
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            seconds = int(abs(value).total_seconds())
            fraction = f".{value.microseconds:06d}" if value.microseconds else ""
            sign = "-" if value < timedelta() else ""
            return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
    return value


def raw_json(value: Any) -> Any:
    return None if value is None else msgspec.Raw(value if isinstance(value, bytes) else value.encode())


def encoded(value: Any) -> Any:
    """A value of a key or a position as JSON, from which ``decoded`` makes the same one."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.isoformat(" ") if isinstance(value, datetime) else from_driver(value)


def decoded(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def text_of(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else json.text(value)
