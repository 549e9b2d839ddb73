from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from backend.domain import limits, message_templates, paths
from backend.domain.message_templates import MessageTemplate, Metadata
from backend.domain.templates import MissingFieldError, compile_text
from backend.domain.transforms.base import MetadataStep, OnMissing, Step, Transform, on_missing, transforms


@transforms.register
class Template(Transform):
    """Writes a text that contains values of other fields."""

    example = {"type": "template", "path": "title", "template": "Order {{order.id}} of {{user.name}}"}

    type: Literal["template"] = "template"
    path: paths.FieldPath = Field(description="Field to write, which replaces what is there.")
    template: MessageTemplate = Field(
        description="The text. {{order.id}} is replaced with that field's value, and {{$message.id}} with the ID of "
        "the message that was received; there are also key, received_at, content_type, pipeline, version, source and "
        "headers.NAME."
    )
    on_missing: OnMissing | Literal["empty"] = Field(
        "empty",
        description="If a field in the text is missing: it counts as empty, or the message continues without the text, "
        "is dropped, or becomes a dead letter.",
    )

    @property
    def uses_metadata(self) -> bool:
        return message_templates.names_metadata(self.template)

    def compile(self) -> Step:
        return self._compiled()

    def compile_with_metadata(self) -> MetadataStep:
        return self._compiled()

    def _compiled(self) -> Callable[..., Any]:
        target = paths.parse_path(self.path)
        get = message_templates.get_in_step if self.uses_metadata else paths.get
        text = compile_text(self.template, missing="" if self.on_missing == "empty" else paths.MISSING, get=get)

        def step(document: Any, metadata: Metadata | None = None) -> Any:
            try:
                written = text(document if metadata is None else (document, metadata))
            except MissingFieldError as error:
                assert self.on_missing != "empty"
                return on_missing(error.path, self.on_missing)(document)
            paths.put(document, target, written)
            limits.check_growth(document, written)
            return (document,)

        return step
