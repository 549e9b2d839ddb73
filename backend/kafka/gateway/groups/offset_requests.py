"""Committed offsets: OffsetCommit, OffsetFetch and OffsetDelete."""

from collections.abc import Iterable

from backend.kafka.gateway.connection import Call
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.ports import Collection, Committed, Place, StoreError
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_COMMITTED = codec.response_type(ApiKey.OFFSET_COMMIT)
_COMMITTED_TOPIC = _COMMITTED.type_of("topics")
_COMMITTED_PARTITION = _COMMITTED_TOPIC.type_of("partitions")
_FETCHED = codec.response_type(ApiKey.OFFSET_FETCH)
_FETCHED_GROUP = _FETCHED.type_of("groups")
_DELETED = codec.response_type(ApiKey.OFFSET_DELETE)
_DELETED_TOPIC = _DELETED.type_of("topics")
_DELETED_PARTITION = _DELETED_TOPIC.type_of("partitions")

_MAX_METADATA = 4096
_IDS_SINCE = 10
_NONE = Committed(-1, -1, "")


def _collection(call: Call, topic: Struct) -> Collection | None:
    catalog, workspace = call.context.catalog, call.client.account.workspace
    if call.version >= _IDS_SINCE:
        return catalog.with_id(workspace, topic.topic_id)
    return catalog.named(workspace, topic.name)


def _missing(call: Call) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if call.version >= _IDS_SINCE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- OffsetCommit


async def offset_commit(call: Call, request: Struct) -> Struct:
    offsets: dict[Place, Committed] = {}
    topics = [_to_commit(call, topic, offsets) for topic in request.topics]
    try:
        coordinator = call.context.coordinator
        group = await coordinator.group(call.client.account.workspace, request.group_id)
        group.members.check_commit(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
        if offsets:
            await coordinator.stored(group, coordinator.store.commit(group.key, group.claim, offsets))
    except KafkaError as error:
        for topic in topics:
            for partition in topic.partitions:
                partition.error_code = error.code
    return _COMMITTED(topics=topics)


def _to_commit(call: Call, topic: Struct, offsets: dict[Place, Committed]) -> Struct:
    """The answer for a topic; what can be committed is added to ``offsets``."""
    collection = _collection(call, topic)
    answer = _COMMITTED_TOPIC(name=topic.name, topic_id=topic.topic_id)
    for partition in topic.partitions:
        index, metadata = partition.partition_index, partition.committed_metadata or ""
        code = ErrorCode.NONE
        if collection is None or not 0 <= index < collection.partitions:
            code = _missing(call)
        elif len(metadata.encode()) > _MAX_METADATA:
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            offset, epoch = partition.committed_offset, partition.committed_leader_epoch
            offsets[collection.id, index] = Committed(offset, epoch, metadata)
        answer.partitions.append(_COMMITTED_PARTITION(partition_index=index, error_code=code))
    return answer


# -- OffsetFetch


async def offset_fetch(call: Call, request: Struct) -> Struct:
    if call.version >= 8:
        return _FETCHED(groups=[await _fetched_group(call, group) for group in request.groups])
    try:
        topics = await _fetched(call, request.group_id, request.topics, _FETCHED.type_of("topics"))
    except KafkaError as error:
        return _FETCHED(error_code=error.code)
    return _FETCHED(topics=topics)


async def _fetched_group(call: Call, wanted: Struct) -> Struct:
    answer = _FETCHED_GROUP(group_id=wanted.group_id)
    try:
        if wanted.member_id is not None and wanted.member_epoch >= 0:
            workspace = call.client.account.workspace
            group = await call.context.coordinator.existing(workspace, wanted.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
            group.members.check_fetch(wanted.member_id, wanted.member_epoch)
        answer.topics = await _fetched(call, wanted.group_id, wanted.topics, _FETCHED_GROUP.type_of("topics"))
    except KafkaError as error:
        answer.error_code = error.code
    return answer


async def _fetched(call: Call, group_id: str, topics: list[Struct] | None, kind: type[Struct]) -> list[Struct]:
    """The committed offsets of the topics, or of all if they are None. Raises KafkaError."""
    coordinator, workspace = call.context.coordinator, call.client.account.workspace
    coordinator.check((workspace, group_id))
    try:
        committed = await coordinator.store.committed((workspace, group_id))
    except StoreError:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
    if topics is None:
        return _all(call, committed, kind)
    return [_of_topic(call, topic, committed, kind) for topic in topics]


def _of_topic(call: Call, topic: Struct, committed: dict[Place, Committed], kind: type[Struct]) -> Struct:
    collection = _collection(call, topic)
    answer = kind(name=topic.name)
    if call.version >= _IDS_SINCE:
        answer.topic_id = topic.topic_id
    for index in topic.partition_indexes:
        offset = committed.get((collection.id, index), _NONE) if collection is not None else _NONE
        code = _missing(call) if collection is None and call.version >= _IDS_SINCE else ErrorCode.NONE
        answer.partitions.append(_partition(kind, index, offset, code))
    return answer


def _all(call: Call, committed: dict[Place, Committed], kind: type[Struct]) -> list[Struct]:
    topics = []
    for collection in call.context.catalog.of(call.client.account.workspace):
        offsets = [(index, committed[place, index]) for place, index in sorted(committed) if place == collection.id]
        if offsets:
            answer = kind(name=collection.name, partitions=[_partition(kind, *offset) for offset in offsets])
            if call.version >= _IDS_SINCE:
                answer.topic_id = collection.id.bytes
            topics.append(answer)
    return topics


def _partition(kind: type[Struct], index: int, offset: Committed, code: ErrorCode = ErrorCode.NONE) -> Struct:
    return kind.type_of("partitions")(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=code,
    )


# -- OffsetDelete


async def offset_delete(call: Call, request: Struct) -> Struct:
    coordinator, workspace = call.context.coordinator, call.client.account.workspace
    places: list[Place] = []
    try:
        group = await coordinator.existing(workspace, request.group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        subscribed = group.members.topics()
        topics = [_to_delete(call, topic, subscribed, places) for topic in request.topics]
        if places:
            await coordinator.stored(group, coordinator.store.forget(group.key, group.claim, places))
    except KafkaError as error:
        return _DELETED(error_code=error.code)
    return _DELETED(topics=topics)


def _to_delete(call: Call, topic: Struct, subscribed: Iterable[str], places: list[Place]) -> Struct:
    collection = call.context.catalog.named(call.client.account.workspace, topic.name)
    answer = _DELETED_TOPIC(name=topic.name)
    for partition in topic.partitions:
        index, code = partition.partition_index, ErrorCode.NONE
        if collection is None or not 0 <= index < collection.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif topic.name in subscribed:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            places.append((collection.id, index))
        answer.partitions.append(_DELETED_PARTITION(partition_index=index, error_code=code))
    return answer
