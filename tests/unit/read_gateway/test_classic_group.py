"""A classic group's way through its states, and its move to another coordinator."""

import asyncio
import json
from typing import Any

import pytest

from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.groups.classic import ClassicMembers
from backend.kafka.gateway.groups.classic_member import Joined, MemberIdRequiredError
from backend.kafka.gateway.groups.members import Caller
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode

_CALLER = Caller("client", "/127.0.0.1")
_JOIN = codec.request_type(ApiKey.JOIN_GROUP)
_SYNC = codec.request_type(ApiKey.SYNC_GROUP)
_ASSIGNMENT = _SYNC.type_of("assignments")
_BEAT = codec.request_type(ApiKey.HEARTBEAT)


class Saved:
    """What a group has stored, as the store would give it back."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    async def save(self, state: dict[str, Any]) -> None:
        self.state = json.loads(json.dumps(state))


def join(group: ClassicMembers, member_id: str = "", *, metadata: bytes = b"m", version: int = 3, **more: Any) -> Any:
    protocol = _JOIN.type_of("protocols")(name="range", metadata=metadata)
    request = _JOIN(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
        **more,
    )
    return group.join(request, _CALLER, version)


async def swept(group: ClassicMembers, *joins: Any) -> list[Joined]:
    """The answers to requests that wait for a rebalance."""
    tasks = [asyncio.ensure_future(waiting) for waiting in joins]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0.02)
        group.expire(asyncio.get_running_loop().time())
    return [task.result() for task in tasks]


async def synced(group: ClassicMembers, joined: list[Joined]) -> list[bytes]:
    assignments = [_ASSIGNMENT(member_id=j.member_id, assignment=j.member_id.encode()) for j in joined]
    return list(
        await asyncio.gather(
            *(
                group.sync(
                    _SYNC(
                        member_id=j.member_id,
                        generation_id=j.generation,
                        assignments=assignments if j.member_id == j.leader else [],
                    )
                )
                for j in joined
            )
        )
    )


def beat(group: ClassicMembers, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
    try:
        group.heartbeat(_BEAT(member_id=member_id, generation_id=generation, group_instance_id=instance_id))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def test_members_join_and_are_assigned_what_the_leader_says() -> None:
    group = ClassicMembers(Saved().save)
    joined = await swept(group, join(group), join(group))
    assert {j.generation for j in joined} == {1}
    assert [len(j.members) for j in joined] == [2, 0]  # only the leader is told of the others
    assert group.state == "CompletingRebalance"
    assert await synced(group, joined) == [j.member_id.encode() for j in joined]
    assert group.state == "Stable"


async def test_a_new_member_is_given_its_id_first() -> None:
    group = ClassicMembers(Saved().save)
    with pytest.raises(MemberIdRequiredError) as raised:
        await join(group, version=4)
    (joined,) = await swept(group, join(group, raised.value.member_id, version=4))
    assert joined.member_id == raised.value.member_id
    with pytest.raises(KafkaError) as unknown:
        await join(group, "never-given", version=4)
    assert unknown.value.code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_another_coordinator_goes_on_with_the_same_members() -> None:
    saved = Saved()
    group = ClassicMembers(saved.save)
    joined = await swept(group, join(group), join(group))
    await synced(group, joined)
    other = ClassicMembers.load(saved.state, Saved().save)
    assert other.state == "Stable"
    assert [beat(other, j.member_id, 1) for j in joined] == [ErrorCode.NONE] * 2
    assert beat(other, joined[0].member_id, 2) == ErrorCode.ILLEGAL_GENERATION
    assert beat(other, "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    other.check_commit(joined[0].member_id, None, 1)
    request = _SYNC(member_id=joined[1].member_id, generation_id=1, assignments=[])
    assert await other.sync(request) == joined[1].member_id.encode()


async def test_nobody_is_assigned_anything_that_could_not_be_stored() -> None:
    async def fails(state: dict[str, Any]) -> None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    group = ClassicMembers(fails)
    joined = await swept(group, join(group), join(group))
    with pytest.raises(KafkaError) as raised:
        await synced(group, joined)
    assert raised.value.code == ErrorCode.NOT_COORDINATOR
    assert group.state == "CompletingRebalance"


async def test_a_member_that_leaves_makes_the_others_join_again() -> None:
    group = ClassicMembers(Saved().save)
    joined = await swept(group, join(group), join(group))
    await synced(group, joined)
    group.leave(joined[0].member_id, None)
    stays = joined[1].member_id
    assert beat(group, stays, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    (again,) = await swept(group, join(group, stays))
    assert (again.generation, again.leader) == (2, stays)
    group.leave(stays, None)
    assert (group.state, group.is_empty) == ("Empty", True)


async def test_a_static_member_takes_the_place_of_its_former_self() -> None:
    group = ClassicMembers(Saved().save)
    joined = await swept(group, join(group, group_instance_id="a"), join(group, group_instance_id="b"))
    await synced(group, joined)
    leader = joined[0].member_id
    back = await join(group, version=9, group_instance_id="a")
    assert (back.generation, back.skip_assignment, back.leader) == (1, True, back.member_id)
    assert beat(group, leader, 1, "a") == ErrorCode.FENCED_INSTANCE_ID
    assert beat(group, back.member_id, 1, "a") == ErrorCode.NONE
    assert group.state == "Stable"


async def test_members_without_a_common_protocol_are_refused() -> None:
    group = ClassicMembers(Saved().save)
    await swept(group, join(group))
    other = _JOIN.type_of("protocols")(name="sticky", metadata=b"")
    request = _JOIN(session_timeout_ms=10_000, protocol_type="consumer", protocols=[other])
    with pytest.raises(KafkaError) as raised:
        await group.join(request, _CALLER, 3)
    assert raised.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
