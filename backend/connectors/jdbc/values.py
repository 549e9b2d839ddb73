"""Values as the Java program takes them, which makes of them what their columns need."""

from decimal import Decimal
from typing import Any

from backend.domain import json


def value_text(value: Any) -> str:
    """A value of JSON after the letter of its kind; nothing for null, which an empty text is not."""
    match value:
        case None:
            return ""
        case bool():
            return f"b:{json.text(value)}"
        case int() | Decimal():
            return f"n:{json.text(value)}"
        case str():
            return f"s:{value}"
    return f"j:{json.text(value)}"


def array(values: list[Any]) -> str:
    """As PostgreSQL writes an array."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case list():
            return array(value)
    escaped = json.text(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
