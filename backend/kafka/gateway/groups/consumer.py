"""Groups whose assignment the gateway computes: ConsumerGroupHeartbeat (KIP-848).

The group's epoch rises with every change of its members, their subscriptions or their topics; with it comes a new
target assignment. Each member approaches it step by step in its heartbeats: it first gives back what it is to lose,
then is given what nobody holds any more.
"""

import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import re2

from backend.domain.limits import TooLargeError
from backend.domain.patterns import check_pattern
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.groups.assignors import ASSIGNORS, Partition
from backend.kafka.gateway.groups.consumer_member import ConsumerMember, dump_partitions, load_partitions
from backend.kafka.gateway.groups.members import CONSUMER, Caller, Members, Save, known_member, of_instance
from backend.kafka.gateway.ports import Collection
from backend.kafka.wire.api import ErrorCode
from backend.kafka.wire.structs import Struct

SESSION_SECONDS = 45.0
HEARTBEAT_MS = 1000
_MAX_MEMBERS = 1000
_JOIN, _LEAVE, _LEAVE_FOR_NOW = 0, -1, -2
"""Member epochs with a meaning."""


class ConsumerMembers(Members):
    kind = CONSUMER

    def __init__(self, save: Save) -> None:
        self._save = save
        self._members: dict[str, ConsumerMember] = {}
        self._target: dict[str, set[Partition]] = {}
        self._topics: dict[UUID, int] = {}
        self.epoch = 0

    async def heartbeat(
        self, request: Struct, caller: Caller, collections: list[Collection]
    ) -> tuple[ConsumerMember, set[Partition] | None]:
        """The member, and its assignment if that has to be sent."""
        if request.member_epoch in (_LEAVE, _LEAVE_FOR_NOW):
            member = self._leave(request)
            await self._save(self.dump())
            return member, None
        self._check(request)
        member = self._join(request, caller) if request.member_epoch == _JOIN else self._current(request)
        member.heard(SESSION_SECONDS)
        has_subscribed = self._subscribe(member, request)
        has_changed = self._retarget(collections, has_subscribed or member.id not in self._target)
        is_full = request.topic_partitions is not None and request.subscribed_topic_names is not None
        owned = None if request.topic_partitions is None else _partitions(request.topic_partitions)
        if self._reconcile(member, owned) or has_changed or request.member_epoch == _JOIN:
            await self._save(self.dump())
        is_news = request.member_epoch == _JOIN or is_full or member.assignment_sent != frozenset(member.assigned)
        if not is_news:
            return member, None
        member.assignment_sent = frozenset(member.assigned)
        return member, member.assigned

    # -- members

    def _check(self, request: Struct) -> None:
        if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
            known = ", ".join(ASSIGNORS)
            raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"The assignors are {known}.")
        if request.subscribed_topic_regex:
            try:
                re2.compile(request.subscribed_topic_regex)
            except re2.error as error:
                raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"It is not of RE2: {error}.") from None
            try:
                check_pattern(request.subscribed_topic_regex)
            except TooLargeError as error:
                raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
        says_nothing = request.subscribed_topic_names is None and request.subscribed_topic_regex is None
        if request.member_epoch == _JOIN and says_nothing:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A member that joins has to say what it subscribes to.")

    def _join(self, request: Struct, caller: Caller) -> ConsumerMember:
        member_id = request.member_id or str(uuid.uuid4())
        known = self._members.get(member_id)
        if known is not None:
            return known  # the answer to its first request was lost
        former = of_instance(self._members, request.instance_id)
        if former is None and len(self._members) >= _MAX_MEMBERS:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if former is not None and not former.has_left:
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, "The member with this group.instance.id has not left.")
        member = ConsumerMember(member_id, request.instance_id, request.rack_id, caller.client_id, caller.host)
        if former is not None:
            # It comes back to what it had, so nothing is assigned anew.
            del self._members[former.id]
            member.names, member.regex, member.assignor = former.names, former.regex, former.assignor
            member.assigned, member.epoch = former.held, former.epoch
            self._target[member_id] = self._target.pop(former.id, set())
        self._members[member_id] = member
        return member

    def _current(self, request: Struct) -> ConsumerMember:
        member = known_member(self._members, request.member_id, request.instance_id)
        lost_answer = request.member_epoch == member.previous_epoch and (
            request.topic_partitions is not None and _partitions(request.topic_partitions) <= member.assigned
        )
        if request.member_epoch != member.epoch and not lost_answer:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The member has to join again.")
        return member

    def _leave(self, request: Struct) -> ConsumerMember:
        member = known_member(self._members, request.member_id, request.instance_id)
        if request.member_epoch == _LEAVE_FOR_NOW and member.instance_id is not None:
            member.has_left = True
            member.heard(SESSION_SECONDS)
        else:
            self._remove(member)
        return member

    def _remove(self, member: ConsumerMember) -> None:
        del self._members[member.id]
        self._target.pop(member.id, None)
        self._topics = {}  # the next heartbeat computes a new target

    def _subscribe(self, member: ConsumerMember, request: Struct) -> bool:
        """Whether the request has changed what the assignment depends on."""
        before = (set(member.names), member.regex, member.assignor)
        if request.subscribed_topic_names is not None:
            member.names = set(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            member.regex = request.subscribed_topic_regex
        if request.server_assignor is not None:
            member.assignor = request.server_assignor
        if request.rebalance_timeout_ms > 0:
            member.rebalance_seconds = request.rebalance_timeout_ms / 1000
        return before != (member.names, member.regex, member.assignor)

    # -- the target assignment

    def _retarget(self, collections: list[Collection], must: bool) -> bool:
        """Computes a new target if members, subscriptions or topics have changed. Whether it did."""
        wanted = {m.id: _subscribed(m, collections) for m in self._members.values()}
        topics = {topic: count for of_member in wanted.values() for topic, count in of_member.items()}
        if not must and topics == self._topics:
            return False
        self._topics = topics
        self.epoch += 1
        self._target = ASSIGNORS[self.assignor](wanted, {m.id: m.held for m in self._members.values()})
        return True

    @property
    def assignor(self) -> str:
        """The one that most members ask for."""
        votes = Counter(member.assignor for member in self._members.values() if member.assignor)
        return votes.most_common(1)[0][0] if votes else next(iter(ASSIGNORS))

    def _reconcile(self, member: ConsumerMember, owned: set[Partition] | None) -> bool:
        taken = {partition for other in self._members.values() if other is not member for partition in other.held}
        return member.reconcile(self._target.get(member.id, set()), self.epoch, owned, taken)

    # -- what every kind of group has

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def state(self) -> str:
        if not self._members:
            return "Empty"
        is_stable = all(
            m.epoch == self.epoch and m.assigned == self._target.get(m.id) and not m.revoking
            for m in self._members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def members(self) -> list[ConsumerMember]:
        return list(self._members.values())

    @property
    def target(self) -> Mapping[str, set[Partition]]:
        return self._target

    def topics(self) -> set[str]:
        return {name for member in self._members.values() for name in member.names}

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        if generation < 0 and not member_id and not self._members:
            return  # a consumer that assigns partitions to itself
        self._check_epoch(member_id, generation)

    def check_fetch(self, member_id: str, epoch: int) -> None:
        self._check_epoch(member_id, epoch)

    def _check_epoch(self, member_id: str, epoch: int) -> None:
        member = self._members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch != member.epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def expire(self, now: float) -> bool:
        late = [m for m in self._members.values() if m.expires < now or (m.revoking and m.revoke_by < now)]
        for member in late:
            self._remove(member)
        if late and not self._members:
            self.epoch += 1
        return bool(late)

    def give_up(self, code: ErrorCode) -> None:
        """Nobody waits in requests of this protocol."""

    def dump(self) -> dict[str, Any]:
        return {
            "kind": CONSUMER,
            "epoch": self.epoch,
            "members": [member.dump() for member in self._members.values()],
            "target": {member: dump_partitions(target) for member, target in self._target.items()},
            "topics": {str(topic): count for topic, count in self._topics.items()},
        }

    @classmethod
    def load(cls, state: dict[str, Any], save: Save) -> "ConsumerMembers":
        """The group as another node has left it."""
        group = cls(save)
        group.epoch = state["epoch"]
        for fields in state["members"]:
            member = ConsumerMember.load(fields)
            member.heard(SESSION_SECONDS)
            member.revoke_by = time.monotonic() + member.rebalance_seconds
            group._members[member.id] = member
        group._target = {member: load_partitions(target) for member, target in state["target"].items()}
        group._topics = {UUID(topic): count for topic, count in state["topics"].items()}
        return group


def _subscribed(member: ConsumerMember, collections: list[Collection]) -> dict[UUID, int]:
    matches = re2.compile(member.regex).fullmatch if member.regex else None
    return {
        collection.id: collection.partitions
        for collection in collections
        if collection.name in member.names or (matches is not None and matches(collection.name))
    }


def _partitions(topics: list[Struct]) -> set[Partition]:
    return {(UUID(bytes=topic.topic_id), number) for topic in topics for number in topic.partitions}
