"""How much work a JSON Schema is: never less than what the library does, and not too much for schemas that people
write."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_specifications import REGISTRY
from pydantic import ValidationError

from backend.domain import json, limits
from backend.domain.json_schemas import schema_work
from backend.domain.reasons import Reason
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import Chain
from backend.domain.transforms.validate import Validate

SECONDS = 5
"""Far more than is needed, and far less than what is not bounded takes."""
UUID = {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}


@contextmanager
def within_seconds() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < SECONDS


def refused(schema: Any) -> str:
    with within_seconds(), pytest.raises(ValidationError) as caught:
        Validate(json_schema=schema)
    [error] = caught.value.errors()
    assert error["loc"] == ("json_schema",)
    return error["msg"]


def dead_letter(schema: Any, document: Any) -> str:
    with within_seconds(), pytest.raises(TransformError) as caught:
        Chain([Validate(json_schema=schema)]).run(json.dumps(document))
    assert caught.value.reason == Reason.TOO_LARGE
    return str(caught.value)


def chain_of(depth: int, link: Any) -> Any:
    """Each definition is made of the name of the next one."""
    definitions = {f"n{number}": link({"$ref": f"#/$defs/n{number + 1}"}) for number in range(depth)}
    return {"$ref": "#/$defs/n0", "$defs": definitions | {f"n{depth}": {"properties": {"a": {"type": "integer"}}}}}


# Schemas that double the work.


@pytest.mark.parametrize("depth", [26, 500])
@pytest.mark.parametrize(
    "link",
    [
        lambda ref: {"allOf": [ref, ref]},
        lambda ref: {"anyOf": [ref, ref]},
        lambda ref: {"oneOf": [ref, {"not": ref}]},
        lambda ref: {"if": ref, "then": ref, "else": ref},
        lambda ref: {"dependentSchemas": {"a": ref, "b": ref}},
        lambda ref: {"allOf": [{"properties": {"a": ref}}, {"properties": {"a": ref}}]},
        lambda ref: {"allOf": [{"items": ref}, {"prefixItems": [ref]}]},
        lambda ref: {"allOf": [{"properties": {"a": ref}}, {"patternProperties": {"b": ref}}]},
        lambda ref: {"unevaluatedProperties": False, "allOf": [ref]},
    ],
    ids=range(9),
)
def test_neighbours_4_a_schema_that_doubles_the_work_at_each_level_is_refused(link: Any, depth: int) -> None:
    assert "would be checked more than 1,000,000 times. Refer to each definition fewer times" in refused(
        chain_of(depth, link)
    )


def test_neighbours_4_a_schema_in_which_very_many_parts_apply_to_a_value_is_refused() -> None:
    names = iter(range(1000))
    wide = chain_of(1000, lambda ref: {"allOf": [ref], "properties": {str(next(names)): True}})
    assert refused(wide) == "Value error, The schema has too many parts that apply to the same value."


def test_neighbours_4_a_message_may_have_only_so_many_values_for_a_schema() -> None:
    schema = {"items": chain_of(10, lambda ref: {"allOf": [ref, ref]})}
    schema["$defs"] = schema["items"].pop("$defs")
    Chain([Validate(json_schema=schema)]).run(json.dumps([{"a": 1}] * 1000))
    assert "values, each of which the JSON Schema may check" in dead_letter(schema, [{"a": 1}] * 500_000)


# Schemas that people write.


def union(branches: int) -> Any:
    return {
        "oneOf": [
            {
                "type": "object",
                "required": ["type", "id"],
                "properties": {"type": {"const": f"t{number}"}, "id": UUID, "total": {"minimum": 0}},
            }
            for number in range(branches)
        ]
    }


def expressions(branches: int) -> Any:
    return {
        "oneOf": [
            {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"const": f"t{number}"}, "operands": {"items": {"$ref": "#"}}},
            }
            for number in range(branches)
        ]
    }


TREE = {"properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}}}
BINARY = {"allOf": [{"properties": {"left": {"$ref": "#"}}}, {"properties": {"right": {"$ref": "#"}}}]}
INHERITED = {
    "$defs": {
        "entity": {"properties": {"id": UUID, "at": {"format": "date-time"}}, "required": ["id"]},
        "person": {"allOf": [{"$ref": "#/$defs/entity"}, {"properties": {"name": {"minLength": 1}}}]},
        "employee": {"allOf": [{"$ref": "#/$defs/person"}], "unevaluatedProperties": False},
    },
    "properties": {"boss": {"$ref": "#/$defs/employee"}, "staff": {"items": {"$ref": "#/$defs/employee"}}},
}
POSITION = {"type": "array", "minItems": 2, "items": {"type": "number"}}
LINE = {"type": "array", "items": POSITION}


def shape(name: str, coordinates: Any) -> Any:
    return {
        "required": ["type", "coordinates"],
        "properties": {"type": {"enum": [name]}, "coordinates": coordinates, "bbox": POSITION},
    }


GEOJSON = {
    "oneOf": [{"$ref": "#/$defs/geometry"}, {"$ref": "#/$defs/feature"}, {"$ref": "#/$defs/features"}],
    "$defs": {
        "geometry": {
            "oneOf": [
                shape("Point", POSITION),
                shape("LineString", LINE),
                shape("Polygon", {"items": LINE}),
                shape("MultiPolygon", {"items": {"items": LINE}}),
                {
                    "required": ["geometries"],
                    "properties": {"geometries": {"type": "array", "items": {"$ref": "#/$defs/geometry"}}},
                },
            ]
        },
        "feature": {
            "required": ["type", "properties", "geometry"],
            "properties": {
                "type": {"enum": ["Feature"]},
                "geometry": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/geometry"}]},
            },
        },
        "features": {
            "required": ["type", "features"],
            "properties": {"type": {"enum": ["FeatureCollection"]}, "features": {"items": {"$ref": "#/$defs/feature"}}},
        },
    },
}
EXTENSIBLE_TREE = {
    "$dynamicAnchor": "node",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}
STRICT_TREE: dict[str, Any] = {
    "$defs": {"tree": EXTENSIBLE_TREE},
    "$dynamicAnchor": "node",
    "$ref": "#/$defs/tree",
    "unevaluatedProperties": False,
}
WRITTEN: dict[str, tuple[dict[str, Any], Any]] = {
    "a union of 100": (union(100), {"type": "t99", "id": "0" * 8 + "-0000" * 3 + "-" + "0" * 12}),
    "a recursive union of 100": (expressions(100), {"type": "t9", "operands": [{"type": "t8"}] * 500}),
    "a tree": (TREE, {"children": [{"name": "a"}] * 10_000}),
    "a binary tree": (BINARY, json.loads('{"right": {}, "left": ' * 90 + "{}" + "}" * 90)),
    "inheritance": (INHERITED, {"staff": [{"id": "0" * 8 + "-0000" * 3 + "-" + "0" * 12}] * 10_000}),
    "a strict tree": (STRICT_TREE, json.loads('{"children": [' * 45 + "{}" + "]}" * 45)),
    "GeoJSON": (GEOJSON, {"type": "LineString", "coordinates": [[1, 2]] * 100_000}),
    "the metaschema": (REGISTRY.contents("https://json-schema.org/draft/2020-12/schema"), GEOJSON),
    "an older metaschema": (REGISTRY.contents("http://json-schema.org/draft-07/schema"), GEOJSON),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_neighbours_4_schemas_that_people_write_are_taken(name: str) -> None:
    schema, document = WRITTEN[name]
    with within_seconds():
        assert len(Chain([Validate(json_schema=schema)]).run(json.dumps(document))) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"additionalProperties": {"$ref": "#"}}], "unevaluatedProperties": False},
        {"allOf": [{"items": {"$ref": "#"}}], "unevaluatedItems": False},
        {"contains": {"$ref": "#"}, "unevaluatedItems": False},
        {"unevaluatedProperties": {"$ref": "#", "unevaluatedProperties": False}},
    ],
)
def test_neighbours_4_work_that_doubles_with_each_level_is_refused(schema: Any) -> None:
    with pytest.raises(ValidationError, match="would double with each level"):
        Validate(json_schema=schema)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_neighbours_4_a_part_that_applies_itself_to_the_same_value_is_refused(keyword: str) -> None:
    schema = {"$defs": {"a": {keyword: [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    with pytest.raises(ValidationError, match="applies itself to the same value, which never ends"):
        Validate(json_schema=schema)


# Errors, which the library makes again for each way that leads to them.


@pytest.mark.parametrize("part", [{"properties": {"a": {"$ref": "#"}}}, {"additionalProperties": {"$ref": "#"}}])
@pytest.mark.parametrize("depth", [20, 40, 90])
def test_neighbours_4_errors_that_double_with_each_level_are_not_made(part: Any, depth: int) -> None:
    schema = {"allOf": [part, part | {"required": ["a"]}]}
    body = b'{"a":' * depth + b"{}" + b"}" * depth
    with within_seconds(), pytest.raises(TransformError, match="is too large for it to say where"):
        Chain([Validate(json_schema=schema)]).run(body)


def test_neighbours_4_errors_in_a_tree_are_explained() -> None:
    for schema in (TREE, TREE | {"allOf": [{"properties": {"other": {"type": "null"}}}]}):
        with pytest.raises(TransformError, match=r'children.0.name: 1 is not of type "string"'):
            Chain([Validate(json_schema=schema)]).run(b'{"children": [{"name": 1}]}')


# What the library does, counted.

NAMES = st.sampled_from(["a", "b"])
REFERENCES = st.sampled_from(["#", "#/$defs/x", "#/$defs/y", "#/$defs/z"]).map(lambda ref: {"$ref": ref})
SCHEMAS = st.recursive(
    REFERENCES | st.just({"type": "object"}) | st.just({"type": "array"}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "allOf": st.lists(inner, min_size=1, max_size=3),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "patternProperties": st.dictionaries(NAMES, inner, max_size=1),
            "additionalProperties": inner,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
        },
    ),
    max_leaves=8,
)
DOCUMENTS = st.recursive(
    st.integers(0, 1), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2)
)


def nested(levels: list[str]) -> Any:
    document: Any = {}
    for level in levels:
        document = [document] if level == "list" else {"a": document}
    return document


NESTED = st.lists(st.sampled_from(["list", "object"]), max_size=12).map(nested)


def counted(schema: Any) -> Any:
    """With a keyword of ours in every part."""
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {"x-count": True}
    for name, value in schema.items():
        if name in ("properties", "patternProperties", "$defs"):
            made[name] = {key: counted(one) for key, one in value.items()}
        elif isinstance(value, list):
            made[name] = [counted(one) for one in value]
        else:
            made[name] = counted(value)
    return made


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, st.lists(SCHEMAS, min_size=3, max_size=3), DOCUMENTS | NESTED)
def test_neighbours_4_the_library_checks_no_more_than_was_counted(
    schema: Any, definitions: list[Any], document: Any
) -> None:
    calls = 0

    class Count:
        def __init__(self, *_: Any) -> None:
            pass

        def validate(self, _: Any) -> None:
            nonlocal calls
            calls += 1

    schema = counted(schema | {"$defs": dict(zip("xyz", definitions, strict=True))})
    try:
        work = schema_work(schema)
    except ValueError:
        return
    jsonschema_rs.validator_for(schema, keywords={"x-count": Count}).is_valid(document)
    assert calls <= work.checks * limits.count_values(document, 1_000_000)
