"""Assignors of the gateway's own, for members that leave the assignment to it: KIP-848."""

from collections.abc import Callable, Mapping
from uuid import UUID

Partition = tuple[UUID, int]
Subscriptions = Mapping[str, Mapping[UUID, int]]
"""What each member subscribes to: topics with their number of partitions."""
Assignment = dict[str, set[Partition]]


def uniform(subscriptions: Subscriptions, former: Mapping[str, set[Partition]]) -> Assignment:
    """Gives every member about as many partitions, and moves as few as possible."""
    assigned: Assignment = {member: set() for member in subscriptions}
    open_partitions = []
    for topic, count in _topics(subscriptions).items():
        for number in range(count):
            open_partitions.append((topic, number))
    interested = {topic: sum(topic in wanted for wanted in subscriptions.values()) for topic, _ in open_partitions}
    # Those that few members can have are given first.
    open_partitions.sort(key=lambda partition: (interested[partition[0]], partition))
    owners = {partition: member for member, owned in former.items() for partition in owned}
    fair = -(-len(open_partitions) // max(len(subscriptions), 1))
    left = []
    for partition in open_partitions:
        owner = owners.get(partition)
        keeps = owner in assigned and partition[0] in subscriptions[owner] and len(assigned[owner]) < fair
        if owner is not None and keeps:
            assigned[owner].add(partition)
        else:
            left.append(partition)
    for partition in left:
        candidates = [member for member, wanted in subscriptions.items() if partition[0] in wanted]
        assigned[min(candidates, key=lambda member: (len(assigned[member]), member))].add(partition)
    _level(assigned, subscriptions)
    return assigned


def _level(assigned: Assignment, subscriptions: Subscriptions) -> None:
    """Moves partitions from who has most to who has least, as long as that makes them more alike."""
    moved = True
    while moved:
        moved = False
        for poor in sorted(assigned, key=lambda member: (len(assigned[member]), member)):
            for rich in sorted(assigned, key=lambda member: (-len(assigned[member]), member)):
                if len(assigned[rich]) - len(assigned[poor]) < 2:
                    break
                movable = sorted(p for p in assigned[rich] if p[0] in subscriptions[poor])
                if movable:
                    assigned[rich].discard(movable[0])
                    assigned[poor].add(movable[0])
                    moved = True
                    break
            if moved:
                break


def range_(subscriptions: Subscriptions, former: Mapping[str, set[Partition]]) -> Assignment:
    """Gives every member a contiguous range of each topic, so that equal partitions of topics come together."""
    assigned: Assignment = {member: set() for member in subscriptions}
    for topic, count in _topics(subscriptions).items():
        members = sorted(member for member, wanted in subscriptions.items() if topic in wanted)
        at = 0
        for position, member in enumerate(members):
            share = count // len(members) + (position < count % len(members))
            assigned[member].update((topic, number) for number in range(at, at + share))
            at += share
    return assigned


def _topics(subscriptions: Subscriptions) -> dict[UUID, int]:
    return {topic: count for wanted in subscriptions.values() for topic, count in wanted.items()}


ASSIGNORS: dict[str, Callable[[Subscriptions, Mapping[str, set[Partition]]], Assignment]] = {
    "uniform": uniform,
    "range": range_,
}
"""By the name that clients ask for; the first is the default."""
