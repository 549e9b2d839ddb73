"""Serializers that are made of dataclasses, so that what the API answers is declared once."""

from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rest_framework import serializers

_PLAIN: dict[Any, type[serializers.Field]] = {
    str: serializers.CharField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    bool: serializers.BooleanField,
    Any: serializers.JSONField,
}


@lru_cache
def serializer_of(declared: type) -> type[serializers.Serializer]:
    """A serializer that has the fields of the dataclass; annotations describe them. In the OpenAPI document its name is
    that of the class, after ``Sql``."""
    hints = get_type_hints(declared, include_extras=True)
    made: dict[str, Any] = {one.name: _field(hints[one.name]) for one in fields(declared)}
    return type(f"Sql{declared.__name__}Serializer", (serializers.Serializer,), made)


def _field(hint: Any, **options: Any) -> serializers.Field:
    if help_texts := getattr(hint, "__metadata__", ()):
        return _field(hint.__origin__, help_text=help_texts[0])
    if get_origin(hint) is list:
        [of] = get_args(hint)
        if isinstance(of, type) and is_dataclass(of):
            return serializer_of(of)(many=True, **options)
        return serializers.ListField(child=_field(of), **options)
    if get_origin(hint) is UnionType:
        [of, _] = get_args(hint)
        return serializer_of(of)(allow_null=True, **options)
    if get_origin(hint) is dict:
        return serializers.DictField(child=_field(get_args(hint)[1]), **options)
    if hint is str:
        options["allow_blank"] = True
    return _PLAIN[hint](**options)
