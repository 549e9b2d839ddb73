"""List filters that reject values which the database could not compare, with a message."""

from datetime import UTC, datetime
from typing import Any

import django_filters
from django.core.exceptions import ValidationError
from django_filters.fields import IsoDateTimeField


class _InstantField(IsoDateTimeField):
    def clean(self, value: Any) -> datetime | None:
        instant: datetime | None = super().clean(value)
        try:
            # Python accepts time zones that PostgreSQL does not.
            return instant.astimezone(UTC) if instant else None
        except OverflowError:
            raise ValidationError("This time is out of range.") from None


class InstantFilter(django_filters.IsoDateTimeFilter):
    """A point in time as ISO 8601."""

    field_class = _InstantField


class UUIDInFilter(django_filters.BaseInFilter, django_filters.UUIDFilter):
    """Ids, separated by commas."""
