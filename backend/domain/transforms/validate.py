import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal
from urllib.parse import unquote

import jsonschema_rs
from pydantic import Field, JsonValue, field_validator

from backend.domain import limits, paths
from backend.domain.transforms.base import Step, Transform, TransformError, transforms

_MAX_ERRORS = 5
_MAX_COMPARISONS = 100_000
"""Of values with parts of the schema. The library makes all errors before it gives the first, each with what it is
about, and within anyOf and oneOf those of every branch: with recursion, exponentially many."""
_ALTERNATIVES = frozenset({"anyOf", "oneOf"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_MAX_REFERENCES = 1000


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
        explain = _explanation(self.json_schema, validator)
        target = paths.parse_path(self.flag)

        def step(document: Any) -> Any:
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


def _explanation(schema: dict[str, Any], validator: Any) -> Callable[[Any], list[str]]:
    """What is wrong with an invalid document: the first errors, or fewer of a document that has too many values."""
    places = [place for place, _ in _places(schema)]
    has_alternatives = any(place and place[-1] in _ALTERNATIVES for place in places)
    most = 0 if has_alternatives and _may_be_recursive(schema) else _MAX_COMPARISONS // len(places)

    def explain(document: Any) -> list[str]:
        if limits.count_values(document, most) <= most:
            return [_text(error) for error in itertools.islice(validator.iter_errors(document), _MAX_ERRORS)]
        if has_alternatives:
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


Place = tuple[str, ...]


def _places(schema: Any) -> Iterator[tuple[Place, Any]]:
    """The schema and all values in it, with the names and positions that lead to them."""
    rest: list[tuple[Place, Any]] = [((), schema)]
    while rest:
        place, part = rest.pop()
        yield place, part
        if isinstance(part, dict):
            rest += [((*place, name), value) for name, value in part.items()]
        elif isinstance(part, list):
            rest += [((*place, str(position)), value) for position, value in enumerate(part)]


def _may_be_recursive(schema: dict[str, Any]) -> bool:
    """Whether a reference may lead to where it stands. One that is no pointer into this schema may, too."""
    leads: list[tuple[Place, Place]] = []
    for place, part in _places(schema):
        if place and place[-1] in _REFERENCES and isinstance(part, str):
            if place[-1] != "$ref" or not part.startswith("#/"):
                return True
            leads.append((place, tuple(paths.parse_path(unquote(part[1:])))))
        elif len(place) > 1 and place[-1] == "$id":
            return True
    if len(leads) > _MAX_REFERENCES:
        return True
    following = {target: {other for place, other in leads if place[: len(target)] == target} for _, target in leads}
    while ends := [target for target, others in following.items() if not others & following.keys()]:
        for target in ends:
            del following[target]
    return bool(following)
