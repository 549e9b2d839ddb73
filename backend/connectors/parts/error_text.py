"""What a system's answer in JSON says about an error."""

from typing import Any

from backend.domain import json

_LONGEST = 500
_LONGEST_BODY = 200
"""Of an answer that is no such JSON, such as a proxy's page."""


def error_text(body: bytes, *path: str) -> str:
    """The text at that path of the answer's document, or the beginning of the answer when it has none there. Without
    a full stop at its end."""
    try:
        value: Any = json.loads(body)
        for name in path:
            value = value[name]
    except (json.InvalidJsonError, KeyError, TypeError):
        value = None
    text = value[:_LONGEST] if isinstance(value, str) else body[:_LONGEST_BODY].decode(errors="replace")
    return text.strip().rstrip(".")
