"""Errors of configurations, with sentences for each field, and conflicts."""

import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from backend.domain.masking import redacted

UNKNOWN_FIELD = "Unknown field: remove it, or check its spelling."

_SENTENCES = {
    "missing": "This field is required.",
    "extra_forbidden": UNKNOWN_FIELD,
    "string_pattern_mismatch": "This does not have the expected form; see the description of the field.",
    "union_tag_not_found": "The field {discriminator} is required here.",
    "union_tag_invalid": "Unknown {discriminator} '{tag}': use one of {expected_tags}.",
}


_SHOWN_CHARACTERS = 300


def error_sentence(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Type and text of an exception that nobody foresaw, for people: on one line, shortened and with a period, without
    the secrets."""
    text = " ".join(redacted(str(error), secrets).split()).rstrip(".")
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}…"
    return f"{type(error).__name__}: {text}." if text else f"{type(error).__name__}."


def error_trace(error: BaseException, secrets: Iterable[str]) -> str:
    """Its traceback for the log, without the secrets."""
    return redacted("".join(traceback.format_exception(error)), secrets)


class ConfigError(Exception):
    """The configuration is invalid. ``errors`` maps dotted field paths to sentences."""

    def __init__(self, errors: dict[str, list[str]]) -> None:
        super().__init__("; ".join(f"{path}: {' '.join(sentences)}" for path, sentences in errors.items()))
        self.errors = errors

    @classmethod
    def of(cls, error: ValidationError, data: Any, *prefix: str | int) -> "ConfigError":
        """Converts pydantic's error for ``data``; paths begin with ``prefix``."""
        errors: dict[str, list[str]] = {}
        for item in error.errors(include_url=False, include_input=False):
            path = ".".join(str(step) for step in (*prefix, *_without_tags(item["loc"], data, item["type"])))
            errors.setdefault(path, []).append(_sentence(item))
        return cls(errors)


def _sentence(item: ErrorDetails) -> str:
    template = _SENTENCES.get(item["type"])
    text = template.format_map(item.get("ctx", {})) if template else item["msg"].removeprefix("Value error, ")
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _without_tags(location: Sequence[str | int], data: Any, kind: str) -> list[str | int]:
    """Removes the names of union variants, which pydantic adds to the path, but which the user's document lacks."""
    path: list[str | int] = []
    for index, step in enumerate(location):
        in_object = isinstance(data, dict) and step in data
        in_list = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if in_object or in_list:
            data = data[step]
        elif not (kind == "missing" and index == len(location) - 1):
            continue
        path.append(step)
    return path


class ConflictError(Exception):
    """The request conflicts with the object's current state; the message says why and what to do."""
