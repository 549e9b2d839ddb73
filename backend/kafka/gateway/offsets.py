"""ListOffsets and OffsetForLeaderEpoch."""

from collections.abc import Awaitable

from backend.kafka.gateway.connection import Call
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.leaders import check_epoch, check_leader
from backend.kafka.gateway.ports import Collection, StorageError
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_LISTED = codec.response_type(ApiKey.LIST_OFFSETS)
_LISTED_TOPIC = _LISTED.type_of("topics")
_LISTED_PARTITION = _LISTED_TOPIC.type_of("partitions")
_EPOCHS = codec.response_type(ApiKey.OFFSET_FOR_LEADER_EPOCH)
_EPOCHS_TOPIC = _EPOCHS.type_of("topics")
_EPOCHS_PARTITION = _EPOCHS_TOPIC.type_of("partitions")

_LATEST, _EARLIEST, _NEWEST, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
"""Timestamps that stand for places: KIP-396, KIP-734 and KIP-405."""


async def list_offsets(call: Call, request: Struct) -> Struct:
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            answer = _LISTED_PARTITION(partition_index=partition.partition_index)
            await _or_error(answer, _list_offset(call, topic.name, partition, answer))
            partitions.append(answer)
        topics.append(_LISTED_TOPIC(name=topic.name, partitions=partitions))
    return _LISTED(topics=topics)


async def _list_offset(call: Call, name: str, partition: Struct, answer: Struct) -> None:
    """Raises KafkaError and StorageError."""
    collection, index = _led(call, name, partition.partition_index)
    context = call.context
    # A node that takes over must not know less than the one before it told.
    ends = (await context.logs.ends(collection))[index]
    check_epoch(partition.current_leader_epoch, ends)
    answer.leader_epoch = ends.epoch
    timestamp = partition.timestamp
    if timestamp == _LATEST:
        answer.offset = ends.end
    elif timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        answer.offset = ends.start
    elif timestamp == _NEWEST:
        # Timestamps never fall, so the last record has the greatest one.
        if ends.end > ends.start:
            last = (await context.storage.read(collection, index, ends.end - 1, 1))[0]
            answer.offset, answer.timestamp = last.offset, last.timestamp
    elif timestamp >= 0:
        place = await context.storage.at_time(collection, index, timestamp)
        if place is not None:
            answer.offset, answer.timestamp = place
    elif timestamp != _LATEST_TIERED:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


async def offset_for_leader_epoch(call: Call, request: Struct) -> Struct:
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            answer = _EPOCHS_PARTITION(partition=partition.partition)
            await _or_error(answer, _epoch_end(call, topic.topic, partition, answer))
            partitions.append(answer)
        topics.append(_EPOCHS_TOPIC(topic=topic.topic, partitions=partitions))
    return _EPOCHS(topics=topics)


async def _epoch_end(call: Call, name: str, partition: Struct, answer: Struct) -> None:
    """Raises KafkaError and StorageError."""
    collection, index = _led(call, name, partition.partition)
    ends = (await call.context.logs.ends(collection))[index]
    check_epoch(partition.current_leader_epoch, ends)
    if 0 <= partition.leader_epoch <= ends.epoch:
        answer.leader_epoch = partition.leader_epoch
        answer.end_offset = await call.context.storage.epoch_end(collection, index, partition.leader_epoch)


def _led(call: Call, name: str, partition: int) -> tuple[Collection, int]:
    """The collection, if this node serves the partition. Raises KafkaError."""
    collection = call.context.catalog.named(call.client.account.workspace, name)
    if collection is None or not 0 <= partition < collection.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    check_leader(call.context, collection, partition)
    return collection, partition


async def _or_error(answer: Struct, work: Awaitable[None]) -> None:
    try:
        await work
    except KafkaError as error:
        answer.error_code = error.code
    except StorageError:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
