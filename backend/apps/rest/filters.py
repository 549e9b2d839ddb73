"""Filters of lists that refuse with a sentence what the database could not compare."""

from datetime import UTC, datetime
from typing import Any

import django_filters
from django.core.exceptions import ValidationError
from django_filters.fields import IsoDateTimeField


class _InstantField(IsoDateTimeField):
    def clean(self, value: Any) -> datetime | None:
        found: datetime | None = super().clean(value)
        try:
            # Python knows time zones that PostgreSQL does not.
            return found.astimezone(UTC) if found else None
        except OverflowError:
            raise ValidationError("This time is out of range.") from None


class InstantFilter(django_filters.IsoDateTimeFilter):
    """A point in time as ISO 8601."""

    field_class = _InstantField


class UUIDInFilter(django_filters.BaseInFilter, django_filters.UUIDFilter):
    """Ids, separated by commas."""
