from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, JsonValue

from backend.domain import json
from backend.domain.transforms.base import FieldTransform, TransformError, transforms


@transforms.register
class Map(FieldTransform):
    """Replaces a value by looking it up in a table."""

    example = {"type": "map", "path": "country", "table": {"BR": "Brazil", "PT": "Portugal"}, "otherwise": "other"}

    type: Literal["map"] = "map"
    table: dict[str, JsonValue] = Field(
        min_length=1,
        max_length=10_000,
        description="New values by old value. Write numbers, true, false and null as text.",
    )
    unknown: Literal["keep", "otherwise", "dead_letter"] = Field(
        "otherwise",
        description="A value that is not in the table: is kept, becomes the value below, or makes the message a "
        "dead letter.",
    )
    otherwise: JsonValue = Field(None, description="Value for everything that is not in the table.")

    def compile_value(self) -> Callable[[Any], Any]:
        # Kept as JSON text, so that no message shares a list or object with this configuration.
        table = {key: json.dumps(value) for key, value in self.table.items()}
        otherwise = json.dumps(self.otherwise)

        def change(value: Any) -> Any:
            entry = table.get(json.text(value))
            if entry is not None:
                return json.loads(entry)
            if self.unknown == "dead_letter":
                raise TransformError(f"The value of {self.path} is not in the table.")
            return value if self.unknown == "keep" else json.loads(otherwise)

        return change
