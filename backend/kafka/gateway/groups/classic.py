"""Groups whose members compute the assignment: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The states are those of Kafka's own coordinator: Empty, PreparingRebalance while members join, CompletingRebalance
while the leader computes the assignment, Stable.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.groups.classic_member import Joined, Member, MemberIdRequiredError, State
from backend.kafka.gateway.groups.members import CLASSIC, Caller, Members, Save, known_member, of_instance
from backend.kafka.gateway.groups.subscription import subscribed_topics
from backend.kafka.wire.api import ErrorCode
from backend.kafka.wire.structs import Struct

_INITIAL_DELAY = 0.3
"""Seconds that the first rebalance of an empty group waits for further members."""
_SESSION_MS = (1_000, 1_800_000)
_MAX_MEMBERS = 1000
_PENDING_SECONDS = 60.0


class ClassicMembers(Members):
    kind = CLASSIC

    def __init__(self, save: Save) -> None:
        self._save = save
        self._members: dict[str, Member] = {}
        self._pending: dict[str, float] = {}
        self._state = State.EMPTY
        self._deadline = self._not_before = 0.0
        self._protocol_type = ""
        self.generation = 0
        self.protocol = ""
        self.leader = ""

    # -- JoinGroup

    async def join(self, request: Struct, caller: Caller, version: int) -> Joined:
        """Waits until the rebalance is complete."""
        if not _SESSION_MS[0] <= request.session_timeout_ms <= _SESSION_MS[1]:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        self._check_protocols(request)
        member, answer = self._admit(request, caller, version)
        if answer is not None:
            member.heard()
            await self._save(self.dump())
            return answer
        if member.joining is not None and not member.joining.done():
            member.joining.set_exception(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
        future: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        member.joining = future
        self._protocol_type = request.protocol_type
        self._prepare()
        self._complete_if_all_joined()
        return await future

    def _check_protocols(self, request: Struct) -> None:
        names = {protocol.name for protocol in request.protocols}
        others = [member for member in self._members.values() if member.id != request.member_id]
        common = set.intersection(*(set(member.protocols) for member in others)) if others else names
        is_other_type = bool(others) and request.protocol_type != self._protocol_type
        if not names or not request.protocol_type or is_other_type or not names & common:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _admit(self, request: Struct, caller: Caller, version: int) -> tuple[Member, Joined | None]:
        """The member, new or known, and the answer if nothing has to be rebalanced."""
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        if request.member_id:
            member = self._known_to_join(request)
            if member is not None:
                unchanged = member.protocols == protocols
                member.protocols = protocols
                self._retime(member, request)
                return member, self._repeated(member) if unchanged else None
            member_id = request.member_id
        elif request.group_instance_id is not None:
            former = of_instance(self._members, request.group_instance_id)
            if former is not None:
                return self._replace(former, request, protocols, caller, version)
            member_id = f"{request.group_instance_id}-{uuid.uuid4()}"
        else:
            member_id = f"{caller.client_id}-{uuid.uuid4()}"
            if version >= 4:
                self._pending[member_id] = time.monotonic() + _PENDING_SECONDS
                raise MemberIdRequiredError(member_id)
        if len(self._members) >= _MAX_MEMBERS:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        member = Member(member_id, request.group_instance_id, caller.client_id, caller.host, 0, 0, protocols)
        self._retime(member, request)
        self._members[member_id] = member
        return member, None

    def _known_to_join(self, request: Struct) -> Member | None:
        """None for a member that was just given its id."""
        if self._pending.pop(request.member_id, None) is not None:
            return None
        return known_member(self._members, request.member_id, request.group_instance_id)

    def _retime(self, member: Member, request: Struct) -> None:
        member.session_seconds = request.session_timeout_ms / 1000
        rebalance = request.rebalance_timeout_ms
        member.rebalance_seconds = (rebalance if rebalance > 0 else request.session_timeout_ms) / 1000
        member.heard()

    def _repeated(self, member: Member) -> Joined | None:
        """The answer once more, for a client that has lost it; None when it has to start a rebalance."""
        if self._state is State.COMPLETING or (self._state is State.STABLE and member.id != self.leader):
            return self._joined(member)
        return None

    def _replace(
        self, former: Member, request: Struct, protocols: dict[str, bytes], caller: Caller, version: int
    ) -> tuple[Member, Joined | None]:
        """A static member that was restarted takes the place of its former self: KIP-345."""
        was_leader = former.id == self.leader
        former.fail(KafkaError(ErrorCode.FENCED_INSTANCE_ID))
        del self._members[former.id]
        member_id = f"{former.instance_id}-{uuid.uuid4()}"
        member = Member(member_id, former.instance_id, caller.client_id, caller.host, 0, 0, protocols)
        member.assignment = former.assignment
        self._retime(member, request)
        self._members[member_id] = member
        if was_leader:
            self.leader = member_id
        if self._state is not State.STABLE or former.protocols != protocols:
            return member, None
        joined = self._joined(member)
        if was_leader:
            # It must not compute a new assignment: KIP-814, and before that the name of another leader.
            skip = version >= 9
            leader, members = (member_id, joined.members) if skip else (former.id, [])
            joined = Joined(self.generation, self.protocol, leader, member_id, members, skip)
        return member, joined

    # -- rebalance

    def _prepare(self) -> None:
        if self._state is State.PREPARING:
            return
        now = time.monotonic()
        self._not_before = now + _INITIAL_DELAY if self._state is State.EMPTY else now
        self._deadline = now + max((m.rebalance_seconds for m in self._members.values()), default=0.0)
        self._state = State.PREPARING
        for member in self._members.values():
            if member.syncing is not None and not member.syncing.done():
                member.syncing.set_exception(KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
            member.syncing = None

    def _complete_if_all_joined(self) -> None:
        now = time.monotonic()
        if self._state is not State.PREPARING or now < self._not_before:
            return
        if now >= self._deadline or all(m.joining is not None for m in self._members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Ends the joining: who has not joined is left out, unless it is a static member."""
        for member in [m for m in self._members.values() if m.joining is None and m.instance_id is None]:
            del self._members[member.id]
        self.generation += 1
        if not self._members:
            self._become_empty()
            return
        joined = [member for member in self._members.values() if member.joining is not None]
        if self.leader not in {member.id for member in joined}:
            self.leader = joined[0].id if joined else next(iter(self._members))
        self.protocol = self._vote()
        self._state = State.COMPLETING
        self._deadline = now + max(m.rebalance_seconds for m in self._members.values())
        for member in joined:
            member.heard()
            future, member.joining = member.joining, None
            if future is not None and not future.done():
                future.set_result(self._joined(member))

    def _become_empty(self) -> None:
        self._state, self.leader, self.protocol = State.EMPTY, "", ""

    def _vote(self) -> str:
        """Of the protocols that everybody has, the one that most prefer."""
        common = set.intersection(*(set(member.protocols) for member in self._members.values()))
        votes = Counter(next(name for name in member.protocols if name in common) for member in self._members.values())
        return votes.most_common(1)[0][0]

    def _joined(self, member: Member) -> Joined:
        members = []
        if member.id == self.leader:
            members = [(m.id, m.instance_id, m.protocols.get(self.protocol, b"")) for m in self._members.values()]
        return Joined(self.generation, self.protocol, self.leader, member.id, members)

    # -- SyncGroup

    async def sync(self, request: Struct) -> bytes:
        """The member's assignment, once the leader has sent it."""
        member = self._current(request.member_id, request.group_instance_id, request.generation_id)
        for name, own in ((request.protocol_type, self._protocol_type), (request.protocol_name, self.protocol)):
            if name is not None and name != own:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self._state is State.PREPARING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        member.heard()
        if self._state is State.STABLE:
            return member.assignment
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        member.syncing = future
        if member.id == self.leader:
            await self._assign({a.member_id: a.assignment for a in request.assignments})
        return await future

    async def _assign(self, assignments: dict[str, bytes]) -> None:
        generation = self.generation
        for member in self._members.values():
            member.assignment = assignments.get(member.id, b"")
        try:
            await self._save(self.dump())
        except KafkaError as error:
            for member in self._members.values():
                member.fail(error)
            return
        if self._state is not State.COMPLETING or self.generation != generation:
            return  # who waited has been told to join again
        self._state = State.STABLE
        for member in self._members.values():
            future, member.syncing = member.syncing, None
            member.heard()
            if future is not None and not future.done():
                future.set_result(member.assignment)

    # -- Heartbeat and LeaveGroup

    def heartbeat(self, request: Struct) -> None:
        member = self._current(request.member_id, request.group_instance_id, request.generation_id)
        member.heard()
        if self._state is State.PREPARING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, member_id: str, instance_id: str | None) -> None:
        if self._pending.pop(member_id, None) is not None:
            return
        if not member_id and instance_id is not None:
            member = of_instance(self._members, instance_id)
            if member is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            member = known_member(self._members, member_id, instance_id)
        self._remove(member)

    def _remove(self, member: Member) -> None:
        del self._members[member.id]
        member.fail(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
        if not self._members and self._state is not State.PREPARING:
            self.generation += 1
            self._become_empty()
            return
        self._prepare()
        self._complete_if_all_joined()

    async def save(self) -> None:
        await self._save(self.dump())

    # -- members

    def _current(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = known_member(self._members, member_id, instance_id)
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def described(self) -> Iterator[tuple[Member, bytes]]:
        """The members with their metadata."""
        for member in self._members.values():
            yield member, member.protocols.get(self.protocol, b"")

    # -- what every kind of group has

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def state(self) -> str:
        return self._state.value

    @property
    def protocol_type(self) -> str:
        return self._protocol_type

    def topics(self) -> set[str]:
        if self._protocol_type != "consumer":
            return set()
        return {topic for member, metadata in self.described() for topic in subscribed_topics(metadata)}

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        if generation < 0 and not member_id and not self._members:
            return  # a consumer that assigns partitions to itself
        self._current(member_id, instance_id, generation).heard()
        if self._state is State.COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Members of this kind have no epoch."""

    def expire(self, now: float) -> bool:
        before = self.generation, len(self._members)
        self._pending = {member_id: until for member_id, until in self._pending.items() if until > now}
        for member in list(self._members.values()):
            if member.expires < now and not member.is_waiting:
                self._remove(member)
        self._complete_if_all_joined()
        if self._state is State.COMPLETING and now >= self._deadline:
            for member in [m for m in self._members.values() if m.syncing is None]:
                self._remove(member)
        return (self.generation, len(self._members)) != before

    def give_up(self, code: ErrorCode) -> None:
        for member in self._members.values():
            member.fail(KafkaError(code))

    def dump(self) -> dict[str, Any]:
        return {
            "kind": CLASSIC,
            "generation": self.generation,
            "protocol_type": self._protocol_type,
            "protocol": self.protocol,
            "leader": self.leader,
            "members": [member.dump() for member in self._members.values()],
        }

    @classmethod
    def load(cls, state: dict[str, Any], save: Save) -> "ClassicMembers":
        """The group as another node has left it: stable, so that its members need not notice."""
        group = cls(save)
        group.generation, group.protocol, group.leader = state["generation"], state["protocol"], state["leader"]
        group._protocol_type = state["protocol_type"]
        for fields in state["members"]:
            member = Member.load(fields)
            group._members[member.id] = member
        group._state = State.STABLE if group._members else State.EMPTY
        return group
