"""The properties of Headrace's own connectors, as Kafka Connect describes those of a class (ConfigKeyInfo)."""

from collections.abc import Iterator
from typing import Any

from backend.domain.connector import Connector
from backend.domain.model import ADVANCED, json_schema

_TYPES = {"string": "STRING", "integer": "LONG", "number": "DOUBLE", "boolean": "BOOLEAN", "array": "LIST"}
_GROUP = "Connection"
_CLASS = {
    "name": "connector.class",
    "type": "STRING",
    "required": True,
    "default_value": None,
    "importance": "HIGH",
    "documentation": "The type of the connector.",
    "group": "Common",
    "width": "MEDIUM",
    "display_name": "Connector class",
    "dependents": [],
    "order": 0,
}


def definitions_of(type: type[Connector]) -> list[dict[str, Any]]:
    """Nested properties have dots in their names. A property of several variants is described once."""
    schema = json_schema(type.connection_model)
    named = {"connector.class": _CLASS}
    kinds: dict[str, list[str]] = {}
    for name, described, required in _properties(schema, schema, "", required=True):
        if "const" in described:
            kinds.setdefault(name, []).append(str(described["const"]))
        named.setdefault(name, definition(name, described, required=required, order=len(named)))
    for name, values in kinds.items():
        named[name]["documentation"] = f"One of {', '.join(values)}."
    return list(named.values())


def _properties(
    schema: dict[str, Any], of: dict[str, Any], path: str, *, required: bool
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Each property with its schema, and whether it is required."""
    for name, described in of.get("properties", {}).items():
        needed = required and name in of.get("required", ())
        full = f"{path}{name}"
        variants = _variants(schema, described)
        objects = [one for one in variants if "properties" in one]
        for one in objects:
            # The properties of one of several variants are required in that one only.
            yield from _properties(schema, one, f"{full}.", required=needed and len(variants) == 1)
        plain = next((one for one in variants if "properties" not in one and one.get("type") != "null"), None)
        if plain is not None:
            yield full, plain | {key: value for key, value in described.items() if key != "$ref"}, needed


def _variants(schema: dict[str, Any], described: dict[str, Any]) -> list[dict[str, Any]]:
    if reference := described.get("$ref"):
        return _variants(schema, schema["$defs"][reference.rpartition("/")[2]])
    for keyword in ("anyOf", "oneOf"):
        if keyword in described:
            return [one for part in described[keyword] for one in _variants(schema, part)]
    return [described]


def definition(name: str, described: dict[str, Any], *, required: bool = False, order: int) -> dict[str, Any]:
    """Of one property, by its JSON Schema."""
    default = described.get("default", described.get("const"))
    if isinstance(default, bool):
        default = str(default).lower()
    is_advanced = all(described.get(key) == value for key, value in ADVANCED.items())
    return {
        "name": name,
        "type": "PASSWORD" if described.get("writeOnly") else _TYPES.get(described.get("type", ""), "STRING"),
        "required": required,
        "default_value": None if default is None else str(default),
        "importance": "HIGH" if required else "LOW" if is_advanced else "MEDIUM",
        "documentation": described.get("description", ""),
        "group": _GROUP,
        "width": "MEDIUM",
        "display_name": described.get("title", name),
        "dependents": [],
        "order": order,
    }
