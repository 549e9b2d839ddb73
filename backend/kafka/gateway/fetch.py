"""Fetch: records from several partitions, at once or when there are enough of them."""

import asyncio
import time
from dataclasses import dataclass

from backend.kafka.gateway import metrics
from backend.kafka.gateway.batches import Compression
from backend.kafka.gateway.connection import Call
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.fetch_session import Key, TopicKey, Wanted
from backend.kafka.gateway.leaders import check_epoch, check_leader
from backend.kafka.gateway.ports import Collection, Ends, StorageError
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_ANSWER = codec.response_type(ApiKey.FETCH)
_TOPIC = _ANSWER.type_of("responses")
_PARTITION = _TOPIC.type_of("partitions")
_LEADER = _PARTITION.type_of("current_leader")
_ENDPOINT = _ANSWER.type_of("node_endpoints")

_ENDS_MAX_AGE = 0.05
_MOST_WAIT_MS = 60_000
_ZSTD_VERSION = 10
_HAS_ZSTD = ("apache-kafka-java", "librdkafka", "confluent-kafka")
"""Names of client software that always decodes Zstandard. Others may lack it, whatever version they ask for."""


@dataclass
class _Answer:
    """What one pass over the partitions found. ``is_due``: it must not wait for more records."""

    partitions: dict[Key, Struct]
    size: int = 0
    is_due: bool = False
    is_redirected: bool = False


async def fetch(call: Call, request: Struct) -> Struct:
    session = call.client.session
    try:
        wanted, incremental = session.update(request)
    except KafkaError as error:
        return _ANSWER(error_code=error.code)
    answer = await _Fetch(call, request, wanted, incremental).run()
    for key, partition in answer.partitions.items():
        wanted[key].ends_sent = _ends_of(partition)
    if incremental:
        for key, partition in answer.partitions.items():
            if partition.records:
                session.served(key)
    metrics.FETCHED_BYTES.inc(answer.size)
    wait = call.context.quotas.wait_after(call.client.account, answer.size)
    call.client.throttled_until = time.monotonic() + wait
    return _ANSWER(
        throttle_time_ms=round(wait * 1000),
        session_id=session.id,
        responses=_by_topic(answer.partitions),
        node_endpoints=_endpoints(call) if answer.is_redirected else [],
    )


class _Fetch:
    """One fetch request while it waits."""

    def __init__(self, call: Call, request: Struct, wanted: dict[Key, Wanted], incremental: bool) -> None:
        self._call = call
        self._request = request
        self._wanted = wanted
        self._incremental = incremental
        self._compression = _compression(call)

    async def run(self) -> _Answer:
        request, logs = self._request, self._call.context.logs
        deadline = time.monotonic() + min(max(request.max_wait_ms, 0), _MOST_WAIT_MS) / 1000
        changed = asyncio.Event()
        collections = {topic: self._collection(topic) for topic, _ in self._wanted}
        watched = list({c.id: c for c in collections.values() if c is not None}.values())
        with logs.watching(watched, changed):
            while True:
                changed.clear()
                answer = await self._pass(collections)
                remaining = deadline - time.monotonic()
                if answer.is_due or answer.size >= request.min_bytes or remaining <= 0:
                    return answer
                try:
                    async with asyncio.timeout(remaining):
                        await changed.wait()
                except TimeoutError:
                    # Records that are fewer than the minimum are sent now, with the ends as they are.
                    return await self._pass(collections)

    def _collection(self, topic: TopicKey) -> Collection | None:
        catalog, workspace = self._call.context.catalog, self._call.client.account.workspace
        return catalog.named(workspace, topic) if isinstance(topic, str) else catalog.with_id(workspace, topic)

    async def _pass(self, collections: dict[TopicKey, Collection | None]) -> _Answer:
        answer = _Answer({})
        for key, wanted in self._wanted.items():
            partition = _PARTITION(partition_index=key[1], records=b"")
            try:
                await self._read(collections[key[0]], wanted.request, partition, answer)
            except KafkaError as error:
                self._failed(collections[key[0]], partition, error)
                answer.is_due = True
                answer.is_redirected = answer.is_redirected or error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            except StorageError:
                self._failed(collections[key[0]], partition, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
            if (
                not self._incremental
                or partition.records
                or _ends_of(partition) != wanted.ends_sent
                or partition.error_code
            ):
                answer.partitions[key] = partition
        return answer

    async def _read(self, collection: Collection | None, wanted: Struct, partition: Struct, answer: _Answer) -> None:
        """Fills in the partition. Raises KafkaError and StorageError."""
        context, index = self._call.context, wanted.partition
        if collection is None or not 0 <= index < collection.partitions:
            by_id = self._call.version >= 13
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID if by_id and collection is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        check_leader(context, collection, index)
        ends = (await context.logs.ends(collection, max_age=_ENDS_MAX_AGE))[index]
        if not ends.start <= wanted.fetch_offset <= ends.end or wanted.current_leader_epoch > ends.epoch:
            ends = (await context.logs.ends(collection))[index]
        check_epoch(wanted.current_leader_epoch, ends)
        _tell_ends(partition, ends)
        if not ends.start <= wanted.fetch_offset <= ends.end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        room = min(self._request.max_bytes - answer.size, wanted.partition_max_bytes)
        if answer.size and room <= 0:
            return
        batches = await context.logs.read(
            collection, index, wanted.fetch_offset, ends=ends, compression=self._compression, max_bytes=room
        )
        if batches and answer.size and len(batches[0].data) > room:
            return
        partition.records = b"".join(batch.data for batch in batches)
        answer.size += len(partition.records)

    def _failed(self, collection: Collection | None, partition: Struct, error: KafkaError) -> None:
        partition.error_code = error.code
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            partition.high_watermark = partition.last_stable_offset = partition.log_start_offset = -1
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and collection is not None:
            leader = self._call.context.nodes.leader(collection, partition.partition_index)
            ends = self._call.context.logs.known(collection)
            epoch = ends[partition.partition_index].epoch if ends else -1
            partition.current_leader = _LEADER(leader_id=leader.id, leader_epoch=epoch)


def _compression(call: Call) -> Compression:
    """As the operator has chosen, if the client can decode it."""
    chosen = call.context.compression
    if chosen is Compression.ZSTD:
        can = call.version >= _ZSTD_VERSION and call.client.software.startswith(_HAS_ZSTD)
        return chosen if can else Compression.NONE
    return chosen


def _tell_ends(partition: Struct, ends: Ends) -> None:
    partition.high_watermark = partition.last_stable_offset = ends.end
    partition.log_start_offset = ends.start


def _ends_of(partition: Struct) -> tuple[int, ...]:
    return partition.high_watermark, partition.log_start_offset, partition.error_code


def _endpoints(call: Call) -> list[Struct]:
    return [
        _ENDPOINT(node_id=node.id, host=node.address.host, port=node.address.port) for node in call.context.nodes.living
    ]


def _by_topic(partitions: dict[Key, Struct]) -> list[Struct]:
    topics: dict[TopicKey, Struct] = {}
    for (topic, _), partition in partitions.items():
        if topic not in topics:
            topics[topic] = _TOPIC(topic=topic) if isinstance(topic, str) else _TOPIC(topic_id=topic)
        topics[topic].partitions.append(partition)
    return list(topics.values())
