"""Serializers of request bodies: an unknown field is refused at its place, so that a typo changes nothing unseen.

Read-only fields are taken and ignored: what was read may be sent back whole.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from backend.domain.errors import UNKNOWN_FIELD


# Without docstrings, which subclasses would inherit as their descriptions in the OpenAPI document.
class StrictSerializer(serializers.Serializer):
    echoed: ClassVar[tuple[str, ...]] = ()
    """Further fields to ignore: those of the object, where only a part of it is taken."""

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
