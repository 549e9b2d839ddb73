from typing import Any, Literal

import jsonschema_rs
from pydantic import Field, JsonValue, field_validator

from backend.domain import paths
from backend.domain.transforms.base import Step, Transform, TransformError, transforms

_MAX_ERRORS = 5


def _validator(schema: dict[str, Any]) -> Any:
    # This regular expression engine runs in linear time. References to other documents are rejected.
    return jsonschema_rs.validator_for(
        schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=_reject, validate_formats=True
    )


def _reject(uri: str) -> Any:
    raise ValueError(f"The schema refers to {uri}, which is not loaded. Copy that definition into $defs instead.")


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
    json_schema: dict[str, JsonValue] = Field(description="JSON Schema; draft 2020-12 unless $schema names another.")
    invalid: Literal["dead_letter", "drop", "flag"] = Field(
        "dead_letter", description="An invalid message: becomes a dead letter, is dropped, or is flagged and continues."
    )
    flag: paths.FieldPath = Field("invalid", description="For flag: field to write the list of errors to.")

    @field_validator("json_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        try:
            _validator(schema)
        except (ValueError, TypeError) as error:
            raise ValueError(f"This is not a valid JSON Schema: {str(error).splitlines()[0]}") from None
        return schema

    def compile(self) -> Step:
        validator = _validator(self.json_schema)
        target = paths.parse_path(self.flag)

        def step(document: Any) -> Any:
            if validator.is_valid(document):
                return (document,)
            if self.invalid == "drop":
                return ()
            errors = _errors(validator, document)
            if self.invalid == "dead_letter":
                raise TransformError("; ".join(errors))
            paths.put(document, target, errors)
            return (document,)

        return step


def _errors(validator: Any, document: Any) -> list[str]:
    messages = []
    for error in validator.iter_errors(document):
        where = ".".join(str(part) for part in error.instance_path)
        messages.append(f"{where}: {error.message}"[:300] if where else error.message[:300])
        if len(messages) == _MAX_ERRORS:
            break
    return messages
