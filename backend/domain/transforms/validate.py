import itertools
from collections.abc import Callable
from typing import Any, Literal

import jsonschema_rs
from pydantic import Field, JsonValue, field_validator

from backend.domain import limits, paths, times
from backend.domain.json_schemas import SchemaWork, schema_work
from backend.domain.transforms.base import Step, Transform, TransformError, transforms

_MAX_ERRORS = 5
_MAX_COMPARISONS = 100_000
"""Of values with parts of the schema. The library makes all errors before it gives the first, each with what it is
about, and within anyOf and oneOf those of every branch."""
_ALTERNATIVES = frozenset({"anyOf", "oneOf"})


def _validator(schema: dict[str, Any]) -> Any:
    # This regular expression engine runs in linear time. References to other documents are rejected.
    return jsonschema_rs.validator_for(
        schema,
        pattern_options=jsonschema_rs.RegexOptions(),
        retriever=_reject,
        validate_formats=True,
        formats={"date-time": _is_date_time},
    )


_DATE_TIME = jsonschema_rs.validator_for({"format": "date-time"}, validate_formats=True)


def _is_date_time(text: str) -> bool:
    # The library takes the last second of any day in UTC for a leap second.
    return _DATE_TIME.is_valid(text) and (":60" not in text or times.is_iso8601(text))


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
            jsonschema_rs.meta.validate(schema)
            # The work is counted first: to compile a schema that doubles it may take the library half a minute.
            schema_work(schema)
            _validator(schema)
        except limits.TooLargeError:
            raise
        except (ValueError, TypeError) as error:
            raise ValueError(f"This is not a valid JSON Schema: {str(error).splitlines()[0]}") from None
        return schema

    def compile(self) -> Step:
        validator = _validator(self.json_schema)
        work = schema_work(self.json_schema)
        explain = _explanation(self.json_schema, validator, work)
        target = paths.parse_path(self.flag)

        def step(document: Any) -> Any:
            work.check(document)
            if validator.is_valid(document):
                return (document,)
            if self.invalid == "drop":
                return ()
            errors = explain(document)
            if self.invalid == "dead_letter":
                raise TransformError("; ".join(errors))
            paths.put(document, target, errors)
            return (document,)

        return step


def _explanation(schema: dict[str, Any], validator: Any, work: SchemaWork) -> Callable[[Any], list[str]]:
    """What is wrong with an invalid document: the first errors, or fewer of a document that has too many values."""
    only_whether = work.doubles or _has_alternatives(schema)
    most = 0 if work.doubles else _MAX_COMPARISONS // max(work.checks, limits.count_values(schema, _MAX_COMPARISONS))

    def explain(document: Any) -> list[str]:
        if limits.count_values(document, most) <= most:
            return [_text(error) for error in itertools.islice(validator.iter_errors(document), _MAX_ERRORS)]
        if only_whether:
            return ["The message does not fit the JSON Schema, and is too large for it to say where."]
        try:
            validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            return [_text(error)]
        return []

    return explain


def _text(error: Any) -> str:
    where = ".".join(str(part) for part in error.instance_path)
    return f"{where}: {error.message}"[:300] if where else str(error.message[:300])


def _has_alternatives(schema: Any) -> bool:
    rest = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            if not _ALTERNATIVES.isdisjoint(part):
                return True
            rest += part.values()
        elif isinstance(part, list):
            rest += part
    return False
