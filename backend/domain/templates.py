"""Texts and JSON values with placeholders for a document's fields: ``{{order.id}}``."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from backend.domain import json, limits, paths


class MissingFieldError(ValueError):
    """The document lacks a field of the template; ``path`` is the field as written there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The message has no field {path}.")
        self.path = path


def check(template: Any) -> Any:
    """Returns the template unchanged. Raises PathError if a placeholder is not a field path."""
    for placeholder in placeholders(template):
        paths.parse_path(placeholder)
    return template


def placeholders(template: Any) -> list[str]:
    """The field paths in the template, as they are written there."""
    return [placeholder for text in _texts(template) for placeholder in _parts(text)[1::2]]


def without_placeholders(text: str) -> str:
    return "".join(_parts(text)[::2])


Get = Callable[[Any, tuple[str, ...]], Any]
"""Gives the value at a path, or MISSING."""

TextTemplate = Annotated[str, Field(max_length=10_000), AfterValidator(check)]


def compile_text(
    template: str, write: Callable[[Any], str] = json.text, *, missing: Any = paths.MISSING, get: Get = paths.get
) -> Callable[[Any], str]:
    """Compiles a text to a function of the document. ``write`` converts a value to text.

    ``missing`` replaces the value of a missing field; without it the function raises MissingFieldError. It raises
    TooLargeError for a text that is larger than a message may be.
    """
    parts = _parts(template)
    first, rest = parts[0], [(p, paths.parse_path(p), text) for p, text in zip(parts[1::2], parts[2::2], strict=True)]

    def render(document: Any) -> str:
        written = [first]
        size = 0
        for placeholder, steps, text in rest:
            value = get(document, steps)
            if value is paths.MISSING:
                if missing is paths.MISSING:
                    raise MissingFieldError(placeholder)
                value = missing
            value = write(value)
            size += len(value)
            limits.check_body(size)
            written += (value, text)
        return "".join(written)

    return render


def compile_value(template: Any, get: Get = paths.get) -> Callable[[Any], Any]:
    """Compiles a JSON value to a function of the document, which raises MissingFieldError.

    A text that consists of a single placeholder becomes the field's value with its type.
    """
    match template:
        case str():
            match _parts(template):
                case ["", placeholder, ""]:
                    return _field(placeholder, get)
            return compile_text(template, get=get)
        case dict():
            members = {key: compile_value(value, get) for key, value in template.items()}
            return lambda document: {key: render(document) for key, render in members.items()}
        case list():
            items = [compile_value(value, get) for value in template]
            return lambda document: [render(document) for render in items]
    return lambda _: template


def _field(placeholder: str, get: Get) -> Callable[[Any], Any]:
    steps = paths.parse_path(placeholder)

    def render(document: Any) -> Any:
        value = get(document, steps)
        if value is paths.MISSING:
            raise MissingFieldError(placeholder)
        return value

    return render


def _parts(text: str) -> list[str]:
    """Alternating: text, placeholder, text, …, text. A regular expression would take time by the cube of its length for
    what never ends."""
    parts: list[str] = []
    written = at = 0
    while (begin := text.find("{{", at)) >= 0 and (end := text.find("}}", begin)) >= 0:
        placeholder = text[begin + 2 : end].strip()
        at = begin + 1
        if placeholder and "\n" not in placeholder:
            parts += (text[written:begin], placeholder)
            written = at = end + 2
    return [*parts, text[written:]]


def _texts(template: Any) -> list[str]:
    match template:
        case str():
            return [template]
        case dict():
            return [text for value in template.values() for text in _texts(value)]
        case list():
            return [text for value in template for text in _texts(value)]
    return []
