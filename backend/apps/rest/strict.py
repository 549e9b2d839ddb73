"""Serializers of request bodies: an unknown field is rejected by name, so that a typo does not go unnoticed.

Read-only fields are accepted and ignored, so that a client may send back what it has read.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from backend.domain.errors import UNKNOWN_FIELD, ConfigError


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


class DocumentSerializer(StrictModelSerializer):
    def check_document(self, data: Mapping[str, Any]) -> None:
        """Checks the part that is passed through to a service, which validates it. Raises ConfigError."""
        raise NotImplementedError

    def to_internal_value(self, data: Any) -> Any:
        try:
            return super().to_internal_value(data)
        except serializers.ValidationError as error:
            # All errors are named at once: the service would check its part only after the other fields are valid.
            try:
                if isinstance(data, Mapping):
                    self.check_document(data)
            except ConfigError as further:
                raise serializers.ValidationError({**error.detail, **further.errors}) from None  # type: ignore[dict-item]
            raise
