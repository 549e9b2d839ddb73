"""Keeps the dead letters within their limits of age and size.

Rows are changed in batches, so that neither memory nor locks nor the write-ahead log grow with what has accumulated.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet, Sum

from backend.apps.deliveries.locking import letters_delete, letters_update
from backend.apps.deliveries.models import DeadLetter

_BATCH = 5_000

_State = DeadLetter.State


def dead_letters_expire(*, keep: timedelta, most_bytes: int) -> int:
    """Removes the bodies of those that waited too long or exceed the size limit; returns how many.

    Each workspace may use what the others leave: when the limit is exceeded, those that use more than an equal share
    lose their own oldest bodies. The rows stay for a while, so that no loss goes unnoticed.
    """
    expired = 0
    sizes = _waiting().values("workspace_id").annotate(total=Sum("body_bytes")).values_list("workspace_id", "total")
    for workspace_id, _ in sizes:
        expired += _expire_old(_waiting_of(workspace_id), keep)
    left = dict(sizes.all())
    share = _equal_share(left.values(), most_bytes)
    for workspace_id, total in left.items():
        expired += _expire_excess(_waiting_of(workspace_id), total - share)
    return expired


def dead_letters_remove(*, closed: timedelta, expired: timedelta) -> int:
    """Removes rows that were delivered or discarded, and those that expired, longer ago than that; returns how many."""
    return _remove([_State.DELIVERED, _State.DISCARDED], closed) + _remove([_State.EXPIRED], expired)


def _waiting() -> QuerySet[DeadLetter]:
    return DeadLetter.objects.filter(state=_State.WAITING)


def _waiting_of(workspace_id: Any) -> QuerySet[DeadLetter]:
    """Oldest first. Malformed records, which name no workspace, count as those of one."""
    # "= NULL" is never true.
    condition = {"workspace_id__isnull": True} if workspace_id is None else {"workspace_id": workspace_id}
    return _waiting().filter(**condition).order_by("first_at")


def _equal_share(sizes: Iterable[int], most_bytes: int) -> int:
    """The size to which all larger ones have to shrink so that the sum keeps the limit."""
    left = most_bytes
    ascending = sorted(sizes)
    for number, size in enumerate(ascending):
        share = left // (len(ascending) - number)
        if size > share:
            return share
        left -= size
    return most_bytes


def _expire_old(waiting: QuerySet[DeadLetter], keep: timedelta) -> int:
    expired = 0
    old = waiting.filter(first_at__lt=datetime.now(UTC) - keep).values_list("pk", flat=True)
    while ids := list(old.all()[:_BATCH]):
        expired += _expire(ids, f"It waited for {keep.days} days.")
    return expired


def _expire_excess(waiting: QuerySet[DeadLetter], excess: int) -> int:
    expired = 0
    while excess > 0:
        ids = []
        for pk, size in waiting.values_list("pk", "body_bytes")[:_BATCH]:
            if excess <= 0:
                break
            ids.append(pk)
            excess -= size
        if not ids:
            break
        expired += _expire(ids, "Newer dead letters of the workspace took the room that is allowed.")
    return expired


def _expire(ids: list[Any], why: str) -> int:
    letters = _waiting().filter(pk__in=ids)
    now = datetime.now(UTC)
    return letters_update(letters, state=_State.EXPIRED, body=b"", due_at=None, closed_at=now, closed_why=why)


def _remove(states: list[DeadLetter.State], keep: timedelta) -> int:
    ended = DeadLetter.objects.filter(state__in=states, closed_at__lt=datetime.now(UTC) - keep).order_by("closed_at")
    removed = 0
    while ids := list(ended.values_list("pk", flat=True)[:_BATCH]):
        removed += letters_delete(DeadLetter.objects.filter(pk__in=ids, state__in=states))
    return removed
