"""Serializers of request bodies: an unknown field is rejected by name, so that a typo does not go unnoticed.

Read-only fields are accepted and ignored, so that a client may send back what it has read.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from backend.domain.errors import UNKNOWN_FIELD


# Without docstrings, which subclasses would inherit as their descriptions in the OpenAPI document.
class StrictSerializer(serializers.Serializer):
    echoed: ClassVar[tuple[str, ...]] = ()
    """Further fields to ignore: those of the whole object, where only a part of it is accepted."""

    def to_internal_value(self, data: Any) -> Any:
        known = {*self.fields, *self.echoed}
        errors: dict[str, Any] = {}
        if isinstance(data, Mapping):
            errors = {str(name): [UNKNOWN_FIELD] for name in data if name not in known}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if not errors:
                raise
            raise serializers.ValidationError({**errors, **error.detail}) from None  # type: ignore[dict-item]
        if errors:
            raise serializers.ValidationError(errors)
        return value


class StrictModelSerializer(StrictSerializer, serializers.ModelSerializer):
    pass
