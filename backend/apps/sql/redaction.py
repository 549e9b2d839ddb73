"""What another system says about a connector, without the values that may be secrets."""

import re
from collections.abc import Collection, Mapping

from backend.domain.masking import MASK, redacted

_SECRET_KEY = re.compile(r"pass|secret|token|credential|key|jaas|sasl|auth|user|url|uri", re.IGNORECASE)
_IN_URL = re.compile(r"(://)[^/\s@]+@")
_IN_TEXT = re.compile(r"(?i)\b(password|passwd|secret|token|api[_-]?key)(\s*[=:]\s*)\S+")
_INVALID = re.compile(r"Invalid value .*? for configuration [\w.-]+(?:: *)?", re.DOTALL)
_MISSING = re.compile(r"Missing required configuration .* which has no default value\.?", re.DOTALL)


def secret_values_of(config: Mapping[str, str], password_keys: Collection[str] = ()) -> list[str]:
    """The values of a connector's properties that may be secrets: by their type, or else by their name."""
    named = {key for key in config if _SECRET_KEY.search(key)} | set(password_keys)
    values = [value for key, value in config.items() if key in named and value]
    return sorted(values, key=len, reverse=True)


def without_secrets(text: str, values: Collection[str]) -> str:
    """The text without these values, and without what looks like a password in it."""
    text = redacted(text, values)
    return _IN_TEXT.sub(rf"\1\2{MASK}", _IN_URL.sub(rf"\1{MASK}@", text))


def property_error(text: str, values: Collection[str]) -> str:
    """A worker's sentence on one property, without the value."""
    if _MISSING.fullmatch(text.strip()):
        return "This property is required."
    if reason := _INVALID.sub("", text, count=1).strip():
        sentence = without_secrets(reason, values)
        return sentence if sentence.endswith(".") else f"{sentence}."
    return "This value is not valid."
