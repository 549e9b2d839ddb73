"""Consumer groups and their committed offsets in PostgreSQL."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backend.apps.read_gateway.models import CommittedOffset, ConsumerGroup
from backend.apps.read_gateway.threads import stored
from backend.kafka.gateway.ports import Committed, FencedError, GroupKey, Place, StoredGroup


class PostgresGroups:
    """The GroupStore of the gateway."""

    async def claim(self, group: GroupKey, *, create: bool) -> StoredGroup | None:
        return await stored(_claim, group, create)

    async def save(self, group: GroupKey, claim: int, state: dict[str, Any]) -> None:
        await stored(_save, group, claim, state)

    async def delete(self, group: GroupKey, claim: int) -> None:
        await stored(_delete, group, claim)

    async def names(self, workspace: UUID) -> Sequence[str]:
        return await stored(_names, workspace)

    async def commit(self, group: GroupKey, claim: int, offsets: dict[Place, Committed]) -> None:
        await stored(_commit, group, claim, offsets)

    async def committed(self, group: GroupKey) -> dict[Place, Committed]:
        return await stored(_committed, group)

    async def forget(self, group: GroupKey, claim: int, places: Iterable[Place]) -> None:
        await stored(_forget, group, claim, list(places))


def _claim(key: GroupKey, create: bool) -> StoredGroup | None:
    workspace, name = key
    with transaction.atomic():
        if create:
            row = ConsumerGroup(workspace_id=workspace, name=name)
            ConsumerGroup.objects.bulk_create([row], ignore_conflicts=True)
        group = ConsumerGroup.objects.select_for_update().filter(workspace_id=workspace, name=name).first()
        if group is None:
            return None
        group.claim += 1
        group.save(update_fields=["claim"])
    return StoredGroup(group.claim, group.state)


def _locked(key: GroupKey, claim: int) -> ConsumerGroup:
    """The group's row, which this transaction holds. Raises FencedError."""
    group = ConsumerGroup.objects.select_for_update().filter(workspace_id=key[0], name=key[1], claim=claim).first()
    if group is None:
        raise FencedError
    return group


@transaction.atomic
def _save(key: GroupKey, claim: int, state: dict[str, Any]) -> None:
    group = _locked(key, claim)
    group.state = state
    group.save(update_fields=["state", "changed_at"])


@transaction.atomic
def _delete(key: GroupKey, claim: int) -> None:
    _locked(key, claim).delete()


def _names(workspace: UUID) -> Sequence[str]:
    return list(ConsumerGroup.objects.filter(workspace_id=workspace).order_by("name").values_list("name", flat=True))


@transaction.atomic
def _commit(key: GroupKey, claim: int, offsets: dict[Place, Committed]) -> None:
    group = _locked(key, claim)
    rows = [
        CommittedOffset(
            group=group,
            collection=collection,
            partition=partition,
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata.encode(),
            committed_at=timezone.now(),
        )
        for (collection, partition), committed in offsets.items()
    ]
    CommittedOffset.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["group", "collection", "partition"],
        update_fields=["offset", "leader_epoch", "metadata", "committed_at"],
    )
    group.save(update_fields=["changed_at"])


def _committed(key: GroupKey) -> dict[Place, Committed]:
    rows = CommittedOffset.objects.filter(group__workspace_id=key[0], group__name=key[1])
    return {(r.collection, r.partition): Committed(r.offset, r.leader_epoch, bytes(r.metadata).decode()) for r in rows}


@transaction.atomic
def _forget(key: GroupKey, claim: int, places: list[Place]) -> None:
    group = _locked(key, claim)
    for collection, partition in places:
        group.offsets.filter(collection=collection, partition=partition).delete()
