"""Secrets are declared by type (``SecretStr``); from the JSON Schema this module knows them
in any configuration, takes them out to be stored apart, and puts them back."""

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

MASK = "********"
"""Stands for a stored secret in every answer. Sent back, it keeps what is stored."""

_SHORTEST = 4

Path = tuple[str, ...]


def secret_paths(model: type[BaseModel], data: Any) -> list[Path]:
    """The paths in ``data`` that hold secrets by the model's schema, at any depth and in any variant."""
    schema = model.model_json_schema()
    return sorted(set(_walk(schema, schema, data, ())))


def split_secrets(model: type[BaseModel], data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """``data`` with MASK in place of each secret, and the secrets by their slash-joined paths."""
    public = copy.deepcopy(data)
    secrets: dict[str, str] = {}
    for path in secret_paths(model, data):
        parent = value_at(public, path[:-1])
        if parent[path[-1]] is not None:
            secrets["/".join(path)] = parent[path[-1]]
            parent[path[-1]] = MASK
    return public, secrets


def join_secrets(public: dict[str, Any], secrets: dict[str, str]) -> dict[str, Any]:
    """The inverse of split_secrets. A MASK without a stored secret stays, for validation to refuse."""
    data = copy.deepcopy(public)
    for joined, value in secrets.items():
        path = tuple(joined.split("/"))
        try:
            parent = value_at(data, path[:-1])
        except (KeyError, TypeError):
            continue  # the field is gone from the configuration
        if isinstance(parent, dict) and parent.get(path[-1]) == MASK:
            parent[path[-1]] = value
    return data


def value_at(data: Any, path: Path) -> Any:
    """What is at the path, as ``secret_paths`` gives it. Raises KeyError or TypeError when nothing is."""
    for step in path:
        data = data[step]
    return data


def secret_values(value: Any) -> Iterator[str]:
    """Every secret of a validated configuration, in the clear."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        yield from secret_values(vars(value))
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from secret_values(part)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with MASK in place of each secret; very short ones are in any text and stay."""
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    return text


def _walk(root: dict[str, Any], schema: dict[str, Any], data: Any, path: Path) -> Iterator[Path]:
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]] | {k: v for k, v in schema.items() if k != "$ref"}
    if schema.get("writeOnly") and isinstance(data, str):
        yield path
    for variant in [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]:
        yield from _walk(root, variant, data, path)
    if isinstance(data, dict):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for name, value in data.items():
            if name in known:
                yield from _walk(root, known[name], value, (*path, name))
            elif isinstance(others, dict):
                yield from _walk(root, others, value, (*path, name))
