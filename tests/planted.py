"""Instances of a pydantic model with a value of its own in every secret, made from the type annotations alone.

Nothing here looks at a JSON Schema: what masks secrets is tested against this.
"""

import base64
import itertools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import AnyUrl, BaseModel, HttpUrl, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_numbers = itertools.count(1)
_PLAIN: dict[Any, Any] = {str: "text", int: 1, float: 1.0, bool: True, UUID: "0190b5a0-0000-7000-8000-000000000000"}
_NAMES = ("plain", "with/slash", "with~tilde")


@dataclass
class Planted:
    """One instance as JSON, and the secrets in it by where their type is declared."""

    data: Any
    secrets: dict[str, str] = field(default_factory=dict)


def instances(model: type[BaseModel], example: dict[str, Any] | None = None) -> Iterator[Planted]:
    """Instances that between them take every variant of every union, all valid. ``example`` is a valid instance, whose
    values stand where a declaration does not say what is valid. Raises AssertionError for a secret that no valid
    instance holds."""
    reached: set[str] = set()
    declared: set[str] = set()
    for planted in _of_model(model, model.__name__, example or {}):
        declared |= planted.secrets.keys()
        try:
            model.model_validate(planted.data)
        except ValidationError:
            continue
        reached |= planted.secrets.keys()
        yield planted
    assert reached == declared, f"No valid instance holds the secrets {sorted(declared - reached)}."


def _of_model(model: type[BaseModel], where: str, example: Any) -> list[Planted]:
    """The first variant of each field together; then each other variant with the first ones of the other fields."""
    try:
        model.model_validate(example)
    except ValidationError:  # the example is of another variant
        example = {}
    variants = {
        name: _of_field(info, f"{where}.{name}", example.get(name)) for name, info in model.model_fields.items()
    }
    first = {name: found[0] for name, found in variants.items() if found}
    others = [first | {name: variant} for name, found in variants.items() for variant in found[1:]]
    return [
        Planted(
            {name: part.data for name, part in parts.items()},
            {place: secret for part in parts.values() for place, secret in part.secrets.items()},
        )
        for parts in [first, *others]
    ]


def _of_field(info: FieldInfo, where: str, example: Any) -> list[Planted]:
    found = _of_type(info.annotation, where, example)
    if any(planted.secrets for planted in found) or get_origin(info.annotation) is Literal:
        return found
    # Holds no secret: any valid value does.
    if example is not None:
        return [Planted(example)]
    if info.examples:
        return [Planted(info.examples[0])]
    return [] if info.default is not PydanticUndefined or info.default_factory else found


def _of_type(annotation: Any, where: str, example: Any) -> list[Planted]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _of_type(arguments[0], where, example)
    if origin in (Union, types.UnionType):
        return [planted for variant in arguments for planted in _of_type(variant, where, example)]
    if origin is Literal:
        return [Planted(arguments[0])]
    if annotation is SecretStr:
        secret = _secret()
        return [Planted(secret, {where: secret})]
    if origin in (list, set, frozenset) or (origin is tuple and arguments[-1] is ...):
        item = example[0] if isinstance(example, list) and example else None
        return [_gathered([one, other]) for one, other in _pairs(arguments[0], f"{where}[]", item)]
    if origin is tuple:
        parts = [_of_type(part, f"{where}[{index}]", None)[0] for index, part in enumerate(arguments)]
        return [_gathered(parts)]
    if origin is dict:
        item = next(iter(example.values()), None) if isinstance(example, dict) else None
        variants = [_of_type(arguments[1], f"{where}{{{name}}}", item) for name in _NAMES]
        return [_gathered(list(same), _NAMES) for same in zip(*variants, strict=True)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _of_model(annotation, f"{where}({annotation.__name__})", example)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [Planted(next(iter(annotation)).value)]
    if annotation in (HttpUrl, AnyUrl):
        return [Planted("https://example.com/")]
    return [Planted(_PLAIN.get(annotation))]


def _pairs(annotation: Any, where: str, example: Any) -> Iterator[tuple[Planted, Planted]]:
    """Two items of the same variant, with secrets of their own."""
    return zip(_of_type(annotation, f"{where}0", example), _of_type(annotation, f"{where}1", example), strict=True)


def _gathered(parts: list[Planted], names: tuple[str, ...] | None = None) -> Planted:
    values = [part.data for part in parts]
    secrets = {place: secret for part in parts for place, secret in part.secrets.items()}
    return Planted(dict(zip(names, values, strict=True)) if names else values, secrets)


def _secret() -> str:
    """In a form that also what asks for a base64 key accepts."""
    return f"whsec_{base64.b64encode(f'planted secret number {next(_numbers):08}'.encode()).decode()}"
