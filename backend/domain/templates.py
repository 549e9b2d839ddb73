"""Texts and JSON values with the values of a document's fields in them: ``{{order.id}}``."""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from backend.domain import json, paths

_PLACE = re.compile(r"\{\{\s*(.+?)\s*\}\}")


class MissingFieldError(ValueError):
    """A field that a template names is not there; ``path`` is as it was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The message has no field {path}.")
        self.path = path


def check(template: Any) -> Any:
    """The template as it is. Raises PathError when a place in it is not a path."""
    for text in _texts(template):
        for place in _PLACE.findall(text):
            paths.parse_path(place)
    return template


TextTemplate = Annotated[str, Field(max_length=10_000), AfterValidator(check)]


def compile_text(
    template: str, write: Callable[[Any], str] = json.text, *, missing: Any = paths.MISSING
) -> Callable[[Any], str]:
    """The text as a function of the document. ``write`` makes text of a value; ``missing`` stands for one that
    is not there: without it MissingFieldError is raised."""
    # Text, place, text, place, …, text.
    parts = _PLACE.split(template)
    first, rest = parts[0], [(p, paths.parse_path(p), text) for p, text in zip(parts[1::2], parts[2::2], strict=True)]

    def render(document: Any) -> str:
        written = [first]
        for place, steps, text in rest:
            value = paths.get(document, steps)
            if value is paths.MISSING:
                if missing is paths.MISSING:
                    raise MissingFieldError(place)
                value = missing
            written += (write(value), text)
        return "".join(written)

    return render


def compile_value(template: Any) -> Callable[[Any], Any]:
    """A JSON value as a function of the document. A text that is a single place stands for the field's value
    as it is; it raises MissingFieldError."""
    match template:
        case str():
            whole = _PLACE.fullmatch(template)
            if whole is None or len(_PLACE.findall(template)) > 1:
                return compile_text(template)
            return _field(whole.group(1))
        case dict():
            members = {key: compile_value(value) for key, value in template.items()}
            return lambda document: {key: render(document) for key, render in members.items()}
        case list():
            items = [compile_value(value) for value in template]
            return lambda document: [render(document) for render in items]
    return lambda _: template


def _field(place: str) -> Callable[[Any], Any]:
    steps = paths.parse_path(place)

    def render(document: Any) -> Any:
        value = paths.get(document, steps)
        if value is paths.MISSING:
            raise MissingFieldError(place)
        return value

    return render


def _texts(template: Any) -> list[str]:
    match template:
        case str():
            return [template]
        case dict():
            return [text for value in template.values() for text in _texts(value)]
        case list():
            return [text for value in template for text in _texts(value)]
    return []
