from typing import Any, Literal

from pydantic import Field

from backend.domain import limits, paths
from backend.domain.templates import MissingFieldError, TextTemplate, compile_text
from backend.domain.transforms.base import OnMissing, Step, Transform, on_missing, transforms


@transforms.register
class Template(Transform):
    """Writes a text that contains values of other fields."""

    example = {"type": "template", "path": "title", "template": "Order {{order.id}} of {{user.name}}"}

    type: Literal["template"] = "template"
    path: paths.FieldPath = Field(description="Field to write, which replaces what is there.")
    template: TextTemplate = Field(description="The text. {{order.id}} is replaced with that field's value.")
    on_missing: OnMissing | Literal["empty"] = Field(
        "empty",
        description="If a field in the text is missing: it counts as empty, or the message continues without the text, "
        "is dropped, or becomes a dead letter.",
    )

    def compile(self) -> Step:
        target = paths.parse_path(self.path)
        text = compile_text(self.template, missing="" if self.on_missing == "empty" else paths.MISSING)

        def step(document: Any) -> Any:
            try:
                written = text(document)
            except MissingFieldError as error:
                assert self.on_missing != "empty"
                return on_missing(error.path, self.on_missing)(document)
            paths.put(document, target, written)
            limits.check_growth(document, written)
            return (document,)

        return step
