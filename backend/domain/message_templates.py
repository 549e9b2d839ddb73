"""Templates that are filled with a message: with the fields of its body, and with what Headrace knows about it, such
as ``{{$message.id}}``."""

from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator

from backend.domain import charsets, json, paths, templates
from backend.domain.capabilities import DeliveryError
from backend.domain.limits import TooLargeError
from backend.domain.message import Message
from backend.domain.reasons import Reason

_METADATA_STEP = "$message"
_HEADERS = "headers"
_METADATA: dict[str, Callable[[Message], Any]] = {
    "id": lambda message: message.id,
    "key": lambda message: message.key.decode(errors="replace"),
    "received_at": lambda message: message.received_at,
    "content_type": lambda message: message.content_type,
    "pipeline": lambda message: message.pipeline_id,
    "version": lambda message: message.version,
    "source": lambda message: message.source,
}


class UnfitValueError(ValueError):
    """A message whose value cannot stand where the template has it; the message says why."""


class Metadata:
    """What Headrace knows about a message beside its body. Headers are decoded when the first is asked for."""

    def __init__(self, message: Message) -> None:
        self._message = message

    @cached_property
    def headers(self) -> dict[str, str]:
        """Those of the record that was read, the last of each name."""
        return {name: (value or b"").decode(errors="replace") for name, value in self._message.source_headers()}

    @cached_property
    def document(self) -> dict[str, Any]:
        """All of it; it must not be changed."""
        return {name: value(self._message) for name, value in _METADATA.items()} | {_HEADERS: self.headers}

    @property
    def charset(self) -> str:
        """That of the message's content type, or an empty text."""
        return charsets.charset_of(self._message.content_type)

    def get(self, steps: tuple[str, ...]) -> Any:
        """The value at a path that ``check`` has accepted, or MISSING."""
        if steps[1] == _HEADERS:
            return self.headers.get(steps[2], paths.MISSING)
        return _METADATA[steps[1]](self._message)


class TemplateSource:
    """A message as templates see it. Its body is decoded when the first field of it is asked for."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._metadata = Metadata(message)

    @cached_property
    def document(self) -> Any:
        return json.loads(self._message.body)

    def get(self, steps: tuple[str, ...]) -> Any:
        """The value at the path, or MISSING. Raises InvalidJsonError when the body is not JSON."""
        return self._metadata.get(steps) if steps[0] == _METADATA_STEP else paths.get(self.document, steps)


def get_in_step(source: tuple[Any, Metadata], steps: tuple[str, ...]) -> Any:
    """The value at the path for a step, which has a document and the metadata of the message that it is made of."""
    document, metadata = source
    return metadata.get(steps) if steps[0] == _METADATA_STEP else paths.get(document, steps)


def names_metadata(template: Any) -> bool:
    """Whether a placeholder stands for something else than a field of the message."""
    return any(paths.parse_path(name)[0] == _METADATA_STEP for name in templates.placeholders(template))


def check(template: Any) -> Any:
    """Returns the template unchanged. Raises ValueError for a placeholder that names nothing a message could have."""
    for placeholder in templates.placeholders(template):
        step, *names = paths.parse_path(placeholder)
        if step == _METADATA_STEP and not _is_known(names):
            known = ", ".join(f"{_METADATA_STEP}.{name}" for name in (*_METADATA, f"{_HEADERS}.NAME"))
            raise ValueError(f"There is no {placeholder}; there are {known}.")
    return template


def _is_known(names: list[str]) -> bool:
    return len(names) == 2 if names[:1] == [_HEADERS] else len(names) == 1 and names[0] in _METADATA


MessageTemplate = Annotated[templates.TextTemplate, AfterValidator(check)]


def compile_text(template: str, write: Callable[[Any], str] = json.text) -> Callable[[TemplateSource], str]:
    """Like ``templates.compile_text``, as a function of a message."""
    return templates.compile_text(template, write, get=TemplateSource.get)


def compile_value(template: Any) -> Callable[[TemplateSource], Any]:
    """Like ``templates.compile_value``, as a function of a message."""
    return templates.compile_value(template, get=TemplateSource.get)


def scalar_text(value: Any) -> str:
    """Text, a number or a boolean as text. Raises UnfitValueError for anything else."""
    if value is None or isinstance(value, dict | list):
        raise UnfitValueError("The value is null, an object or a list, but a text, a number or a boolean is needed.")
    return json.text(value)


def delivery_error(error: ValueError) -> DeliveryError:
    """Why a message could not be put into a template; the fault is the message's."""
    match error:
        case json.InvalidJsonError():
            reason, text = (
                Reason.NOT_JSON,
                f"The output's templates need fields of a JSON body; this is not JSON: {error}",
            )
        case TooLargeError():
            reason, text = Reason.TOO_LARGE, str(error)
        case _:
            reason, text = Reason.TEMPLATE, f"The message does not fit the output's templates: {error}"
    return DeliveryError(reason, text, retryable=False, about_message=True)
