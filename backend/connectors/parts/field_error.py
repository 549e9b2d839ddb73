from collections.abc import Sequence
from typing import Self

from backend.domain.capabilities import DeliveryError


class FieldError(DeliveryError):
    """``field`` is the field of the connection that is to blame, if one is."""

    field: str | None = None

    @classmethod
    def at(cls, field: str, reason: str, message: str, *, retryable: bool = True) -> Self:
        error = cls(reason, message, retryable=retryable)
        error.field = field
        return error

    def without(self, secrets: Sequence[str]) -> Self:
        error = super().without(secrets)
        error.field = self.field
        return error


def field_of(error: DeliveryError) -> str | None:
    """The field of the connection that is to blame; None when the error names none."""
    return (error.field or None) if isinstance(error, FieldError) else None
