"""Values that are written without quotes."""

import re
from decimal import Decimal

from backend.domain.connect_sql import statements as s

_WHOLE = re.compile(r"-?(?:0|[1-9]\d*)")
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d*)\.\d+")
CONSTANTS: dict[str, s.Value] = {"TRUE": True, "FALSE": False, "NULL": None}


def plain_value(text: str) -> s.Value:
    """The value of a text without quotes: a number, TRUE, FALSE or NULL if it looks like one, otherwise the text."""
    if text.upper() in CONSTANTS:
        return CONSTANTS[text.upper()]
    if _WHOLE.fullmatch(text) and text != "-0":
        return int(text) if len(text) <= 4000 else text
    return Decimal(text) if _DECIMAL.fullmatch(text) else text
