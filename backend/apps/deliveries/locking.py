"""The order in which transactions lock dead letters: that of the primary keys, whatever they do, so that no two of them
wait for each other. Redelivery's claim needs no order, since it skips what is locked."""

from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from backend.apps.deliveries.models import DeadLetter


def letters_update(letters: QuerySet[DeadLetter], **changes: Any) -> int:
    """Returns how many were changed."""
    with transaction.atomic():
        return _in_order(letters).update(**changes)


def letters_delete(letters: QuerySet[DeadLetter]) -> int:
    """Returns how many were deleted."""
    with transaction.atomic():
        return _in_order(letters).delete()[0]


def _in_order(letters: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
    return DeadLetter.objects.filter(pk__in=letters.select_for_update().order_by("pk").values("pk"))
