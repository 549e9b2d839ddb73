"""Secrets are declared by type (``SecretStr``); by the JSON Schema this module finds them in any
configuration, extracts them to be stored separately, and restores them.

A secret is stored under its path as a JSON Pointer (RFC 6901) without the leading slash:
``servers/0/token``, or ``headers/a~1b`` for the name ``a/b``.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from backend.domain.model import json_schema

MASK = "********"
"""Replaces a stored secret in every response. Sent back, it keeps the stored secret."""

_SHORTEST = 4

Path = tuple[str | int, ...]
"""Names in objects and positions in lists."""


def pointer(path: Path) -> str:
    """The path as a string that is unique within a configuration."""
    return "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in path)


def dotted(path: Path) -> str:
    """The path as errors and the audit log name fields."""
    return ".".join(map(str, path))


def dotted_pointer(text: str) -> str:
    """A pointer in the form of ``dotted``."""
    return dotted(_steps(text))


def secret_paths(model: type[BaseModel], data: Any) -> list[Path]:
    """The paths in ``data`` that hold secrets by the model's schema, at any depth and in any variant."""
    schema = json_schema(model)
    return list(dict.fromkeys(_walk(schema, schema, data, ())))


def split_secrets(model: type[BaseModel], data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """``data`` with MASK in place of each secret, and the secrets by the pointers of their paths."""
    public: dict[str, Any] = _copied(data)
    secrets: dict[str, str] = {}
    for path in secret_paths(model, data):
        secrets[pointer(path)] = value_at(data, path)
        replace_at(public, path, MASK)
    return public, secrets


def join_secrets(public: dict[str, Any], secrets: dict[str, str]) -> dict[str, Any]:
    """The inverse of ``split_secrets``: restores the secrets in ``public``. A MASK without a stored secret stays."""
    data: dict[str, Any] = _copied(public)
    for name, secret in secrets.items():
        path = _steps(name)
        try:
            if value_at(data, path) == MASK:
                replace_at(data, path, secret)
        except (LookupError, TypeError, ValueError):
            continue  # the field was removed from the configuration
    return data


def keep_secrets(
    model: type[BaseModel], sent: dict[str, Any], shown: dict[str, Any], secrets: dict[str, str]
) -> dict[str, Any]:
    """An edited configuration, with the stored secret in place of each MASK.

    ``shown`` is the configuration as it was shown, with its secrets by pointer. A mask keeps the secret of its
    own field. The items of an unchanged list match by position. An item of a changed list matches the saved item
    with the same ``id``, or else the same ``name``, or else the same public parts, provided that no other item,
    saved or sent, has these too; an item without public parts matches none. The mask of an unmatched item stays
    and is rejected by validation: it never takes another item's secret.
    """
    data: dict[str, Any] = _copied(sent)
    masked, _ = split_secrets(model, sent)
    for path in secret_paths(model, sent):
        if value_at(sent, path) == MASK:
            origin = _origin(path, sent, masked, shown)
            if origin is not None and pointer(origin) in secrets:
                replace_at(data, path, secrets[pointer(origin)])
    return data


def value_at(data: Any, path: Path) -> Any:
    """What is at the path. Raises LookupError, TypeError or ValueError when nothing is."""
    for step in path:
        data = data[int(step)] if isinstance(data, list) else data[step]
    return data


def replace_at(data: Any, path: Path, value: Any) -> None:
    """Replaces the existing value at the path."""
    parent, step = value_at(data, path[:-1]), path[-1]
    parent[int(step) if isinstance(parent, list) else step] = value


def secret_values(value: Any) -> Iterator[str]:
    """Every secret of a validated configuration, in the clear."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        yield from secret_values(vars(value))
    elif isinstance(value, dict | list | tuple | set | frozenset):
        for part in value.values() if isinstance(value, dict) else value:
            yield from secret_values(part)


def written_secrets(value: Any) -> list[str]:
    """Every secret of a validated configuration in each form in which the text of an exception may write it: as it is,
    as a Python or JSON string, and within an address."""
    return [
        form
        for secret in secret_values(value)
        for form in dict.fromkeys(
            (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret))
        )
    ]


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with MASK in place of each secret; very short ones occur in any text and stay."""
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    return text


def _copied(value: Any) -> Any:
    """A copy that is a tree, even where YAML aliases share an object."""
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return value


def _steps(text: str) -> tuple[str, ...]:
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text.split("/"))


def _origin(path: Path, sent: Any, masked: Any, shown: Any) -> Path | None:
    """The path in ``shown`` that corresponds to ``path`` in ``sent``. ``masked`` is ``sent`` without its secrets."""
    origin: list[str | int] = []
    for step in path:
        source: str | int | None = step
        if isinstance(step, int):
            if not isinstance(shown, list):
                return None
            source = step if sent == shown else _position(masked, step, shown)
        elif not isinstance(shown, dict) or step not in shown:
            return None
        if source is None:
            return None
        origin.append(source)
        sent, masked, shown = sent[step], masked[step], shown[source]
    return tuple(origin)


def _position(masked: list[Any], index: int, shown: list[Any]) -> int | None:
    """The index of the shown item that matches an item of a changed list, if it is certain."""
    sent, saved = [_identity(item) for item in masked], [_identity(item) for item in shown]
    identity = sent[index]
    if identity is None or Counter(sent)[identity] != 1 or Counter(saved)[identity] != 1:
        return None
    return saved.index(identity)


def _identity(item: Any) -> str | None:
    if isinstance(item, dict):
        for name in ("id", "name"):
            if isinstance(item.get(name), str | int) and item[name] != MASK:
                return json.dumps({name: item[name]})
    public = _public_part(item)
    return None if public is None else json.dumps(public, sort_keys=True, default=str)


def _public_part(value: Any) -> Any:
    """The value without its masks; None when nothing is left."""
    if isinstance(value, dict):
        parts = {str(name): _public_part(part) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(value, list):
        return [part for part in map(_public_part, value) if part is not None] or None
    return None if value == MASK else value


def _walk(root: dict[str, Any], schema: Any, data: Any, path: Path) -> Iterator[Path]:
    if not isinstance(schema, dict):  # true or false: anything or nothing is allowed here
        return
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]] | {k: v for k, v in schema.items() if k != "$ref"}
    if schema.get("writeOnly") and isinstance(data, str):
        yield path
    for variant in [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]:
        yield from _walk(root, variant, data, path)
    if isinstance(data, dict):
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, value in data.items():
            others = [*patterns.values(), schema.get("additionalProperties")]
            for part in [known[name]] if name in known else others:
                yield from _walk(root, part, value, (*path, name))
    elif isinstance(data, list):
        first = schema.get("prefixItems", ())
        for index, value in enumerate(data):
            part = first[index] if index < len(first) else schema.get("items")
            yield from _walk(root, part, value, (*path, index))
