"""ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from collections.abc import Iterable
from uuid import UUID

from backend.kafka.gateway.connection import Call
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.groups.assignors import Partition
from backend.kafka.gateway.groups.classic_requests import caller
from backend.kafka.gateway.groups.consumer import HEARTBEAT_MS, ConsumerMembers
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_BEAT = codec.response_type(ApiKey.CONSUMER_GROUP_HEARTBEAT)
_ASSIGNMENT = _BEAT.type_of("assignment")
_ASSIGNED = _ASSIGNMENT.type_of("topic_partitions")
_DESCRIBED = codec.response_type(ApiKey.CONSUMER_GROUP_DESCRIBE)
_GROUP = _DESCRIBED.type_of("groups")
_MEMBER = _GROUP.type_of("members")

_CONSUMER_PROTOCOL = 1
"""A member's type in ConsumerGroupDescribe."""


async def consumer_group_heartbeat(call: Call, request: Struct) -> Struct:
    workspace = call.client.account.workspace
    coordinator = call.context.coordinator
    try:
        if request.member_epoch == 0:
            group = await coordinator.group(workspace, request.group_id)
        else:
            group = await coordinator.existing(workspace, request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        collections = call.context.catalog.of(workspace)
        member, assigned = await group.consumer().heartbeat(request, caller(call), collections)
    except KafkaError as error:
        return _BEAT(error_code=error.code, error_message=error.message, heartbeat_interval_ms=HEARTBEAT_MS)
    epoch = request.member_epoch if request.member_epoch < 0 else member.epoch
    answer = _BEAT(member_id=member.id, member_epoch=epoch, heartbeat_interval_ms=HEARTBEAT_MS)
    if assigned is not None:
        topics = [_ASSIGNED(topic_id=topic.bytes, partitions=ns) for topic, ns in _by_topic(assigned).items()]
        answer.assignment = _ASSIGNMENT(topic_partitions=topics)
    return answer


async def consumer_group_describe(call: Call, request: Struct) -> Struct:
    return _DESCRIBED(groups=[await _described(call, name) for name in request.group_ids])


async def _described(call: Call, name: str) -> Struct:
    workspace = call.client.account.workspace
    try:
        group = await call.context.coordinator.existing(workspace, name, ErrorCode.GROUP_ID_NOT_FOUND)
        if not isinstance(group.members, ConsumerMembers):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"The group {name} is not a consumer group.")
    except KafkaError as error:
        return _GROUP(error_code=error.code, error_message=error.message, group_id=name)
    members = group.members
    names = {collection.id: collection.name for collection in call.context.catalog.of(workspace)}
    return _GROUP(
        group_id=name,
        group_state=members.state,
        group_epoch=members.epoch,
        assignment_epoch=members.epoch,
        assignor_name=members.assignor,
        members=[
            _MEMBER(
                member_id=member.id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.host,
                subscribed_topic_names=sorted(member.names),
                subscribed_topic_regex=member.regex or None,
                assignment=_assignment("assignment", member.assigned, names),
                target_assignment=_assignment("target_assignment", members.target.get(member.id, set()), names),
                member_type=_CONSUMER_PROTOCOL,
            )
            for member in members.members
        ],
    )


def _assignment(field: str, partitions: Iterable[Partition], names: dict[UUID, str]) -> Struct:
    kind = _MEMBER.type_of(field)
    topic_kind = kind.type_of("topic_partitions")
    topics = [
        topic_kind(topic_id=topic.bytes, topic_name=names.get(topic, ""), partitions=numbers)
        for topic, numbers in _by_topic(partitions).items()
    ]
    return kind(topic_partitions=topics)


def _by_topic(partitions: Iterable[Partition]) -> dict[UUID, list[int]]:
    topics: dict[UUID, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics
