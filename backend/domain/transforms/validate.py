from typing import Any, Literal

import jsonschema_rs
from pydantic import Field, JsonValue, field_validator

from backend.domain import paths
from backend.domain.transforms.base import Step, Transform, TransformError, transforms

_MOST_SAID = 5


def _validator(schema: dict[str, Any]) -> Any:
    # The pattern engine needs time in proportion to the text; references lead nowhere outside.
    return jsonschema_rs.validator_for(
        schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse, validate_formats=True
    )


def _refuse(uri: str) -> Any:
    raise ValueError(f"The schema refers to {uri}: write what is there into $defs instead.")


@transforms.register
class Validate(Transform):
    """Checks messages against a JSON Schema."""

    example = {
        "type": "validate",
        "json_schema": {
            "type": "object",
            "required": ["id"],
            "properties": {"total": {"type": "number", "minimum": 0}},
        },
        "invalid": "dead_letter",
    }

    type: Literal["validate"] = "validate"
    json_schema: dict[str, JsonValue] = Field(description="JSON Schema, of draft 2020-12 unless it says otherwise.")
    invalid: Literal["dead_letter", "drop", "flag"] = Field(
        "dead_letter", description="What becomes of a message that does not fit."
    )
    flag: paths.FieldPath = Field("invalid", description="For flag: field that gets the list of what does not fit.")

    @field_validator("json_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        try:
            _validator(schema)
        except (ValueError, TypeError) as error:
            raise ValueError(f"This is not a JSON Schema: {str(error).splitlines()[0]}") from None
        return schema

    def compile(self) -> Step:
        validator = _validator(self.json_schema)
        target = paths.parse_path(self.flag)

        def step(document: Any) -> Any:
            if validator.is_valid(document):
                return (document,)
            if self.invalid == "drop":
                return ()
            said = _faults(validator, document)
            if self.invalid == "dead_letter":
                raise TransformError("; ".join(said))
            paths.put(document, target, said)
            return (document,)

        return step


def _faults(validator: Any, document: Any) -> list[str]:
    found = []
    for error in validator.iter_errors(document):
        where = ".".join(str(part) for part in error.instance_path)
        found.append(f"{where}: {error.message}"[:300] if where else error.message[:300])
        if len(found) == _MOST_SAID:
            break
    return found
