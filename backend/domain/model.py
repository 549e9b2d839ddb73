"""The base of every configuration model."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict

ADVANCED: dict[str, Any] = {"advanced": True}
"""``json_schema_extra`` of a field with a default that few people change: forms fold it."""

_ACRONYMS = {"http": "HTTP", "url": "URL", "tls": "TLS", "sasl": "SASL", "id": "ID", "api": "API"}


def label(name: str) -> str:
    """A Python name as people read it: ``verify_tls`` is "Verify TLS", ``RetryPolicy`` "Retry policy"."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    text = " ".join(_ACRONYMS.get(word, word) for word in words)
    return text[:1].upper() + text[1:]


def _model_title(model: type[Any]) -> str:
    return label(model.__name__)


def _field_title(name: str, _info: Any) -> str:
    return label(name)


class StrictModel(BaseModel):
    """An immutable model that refuses unknown keys, so that a typo is an error at its field.

    Titles in its JSON Schema are made for people, because forms show them.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        model_title_generator=_model_title,
        field_title_generator=_field_title,
    )
