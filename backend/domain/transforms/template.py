import re
from typing import Any, Literal

from pydantic import Field, field_validator

from backend.domain import json, paths
from backend.domain.transforms.base import OnMissing, Step, Transform, on_missing, transforms

_PLACE = re.compile(r"\{\{\s*(.+?)\s*\}\}")


@transforms.register
class Template(Transform):
    """Writes a text with the values of other fields in it."""

    example = {"type": "template", "path": "title", "template": "Order {{order.id}} of {{user.name}}"}

    type: Literal["template"] = "template"
    path: paths.FieldPath = Field(description="Field to write.")
    template: str = Field(max_length=10_000, description="The text; {{order.id}} stands for that field's value.")
    on_missing: OnMissing | Literal["empty"] = Field(
        "empty",
        description="A field in the text that is missing: counts as empty, or the message goes on without the text, is "
        "dropped, or becomes a dead letter.",
    )

    @field_validator("template")
    @classmethod
    def _check_places(cls, template: str) -> str:
        for place in _PLACE.findall(template):
            paths.parse_path(place)
        return template

    def compile(self) -> Step:
        target = paths.parse_path(self.path)
        # Text, place, text, place, …, text.
        parts = _PLACE.split(self.template)
        texts, places = parts[::2], [(path, paths.parse_path(path)) for path in parts[1::2]]

        def step(document: Any) -> Any:
            written = [texts[0]]
            for (path, steps), text in zip(places, texts[1:], strict=True):
                value = paths.get(document, steps)
                if value is paths.MISSING:
                    if self.on_missing != "empty":
                        return on_missing(path, self.on_missing)(document)
                    value = ""
                written += (json.text(value), text)
            paths.put(document, target, "".join(written))
            return (document,)

        return step
