"""Appends the messages of outputs that keep collections.

One long-running Spark task per slot. It owns its partitions of the stage's topic, and with them the partitions of
collections whose documents they carry. Each append moves the position in Kafka that the collection has of them, in the
same commit: so whatever a crash repeats is appended once. Kafka's committed offset follows when everything before it is
appended.

A collection that cannot be written holds up no other one: its documents are read again until they are appended, by a
second reader of that partition of the topic, and Kafka's committed offset waits for that reader.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import uvloop
from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import Message as KafkaRecord
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from backend.collections.errors import CollectionError, CollectionMissingError, CollectionUnavailableError
from backend.collections.store import CollectionStore
from backend.collections.writer import CollectionWriter, NewDocument
from backend.domain.collected import Collected, read_collected
from backend.domain.message import MalformedMessageError
from backend.domain.stages import COLLECTIONS
from backend.kafka.client.consumer import AsyncConsumer
from backend.kafka.client.owned_topic import OwnedTopic
from backend.network import tasks
from backend.settings import Settings
from spark_jobs.streaming.slot_process import prepare_process
from spark_jobs.streaming.stop_channel import Address, watched

log = logging.getLogger(__name__)

_RECORDS = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_COMMIT_SECONDS = 0.1
"""Appends begin no sooner one after the other: each commit is a file, and a version of the table."""
_AT_A_TIME = 8
_PATIENCE_SECONDS = 10.0
"""An append that takes longer does not hold up the others."""
_LATE_TARGETS = 8
"""With more, the store as a whole is taken to be at fault, and nothing is read until it works again."""
_RETRY_SECONDS = 2.0
_METADATA_SECONDS = 10.0
_WRITERS_KEPT = 200


def run_slot(
    environment: Settings, stop_address: Address, slot: int, at: Callable[[str], None] = lambda step: None
) -> None:
    """The body of a Spark task: runs until the driver stops it, or raises so that Spark restarts it. ``at`` is told
    the name of each step that is done."""
    prepare_process(COLLECTIONS.name, slot)
    uvloop.run(_run(CollectionsTask(environment, slot, at), stop_address, environment.service_token, slot))


async def _run(task: "CollectionsTask", stop_address: Address, token: SecretStr, slot: int) -> None:
    stop = await watched(stop_address, token, slot, task.progress)
    appending = asyncio.create_task(task.run())
    done, pending = await asyncio.wait([appending, stop], return_when=asyncio.FIRST_COMPLETED)
    await tasks.cancel(*pending)
    for ended in done - {stop}:
        ended.result()


class _Target(NamedTuple):
    """What is appended with one commit: documents of one partition of the topic for one collection."""

    workspace: str
    collection: str
    partition: int


_Documents = list[tuple[int, Collected]]
"""Documents with their offsets in the topic."""
_Appending = asyncio.Future[None]


@dataclass
class _Late:
    """Targets in one partition of the topic that could not be appended to. ``first`` is, of each, the offset of the
    first record that may not be appended; ``running`` are the appends that failed, some of which have not ended."""

    first: dict[_Target, int] = field(default_factory=dict)
    running: dict[_Target, _Appending] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    def idle(self) -> set[_Target]:
        """Targets that can be appended to: a writer is never used by two threads."""
        return {target for target in self.first if target not in self.running or self.running[target].done()}


class CollectionsTask:
    """Reads the topic and appends."""

    def __init__(self, environment: Settings, slot: int, at: Callable[[str], None]) -> None:
        assert COLLECTIONS.topic is not None
        self._topic = OwnedTopic(
            environment.kafka,
            topic=COLLECTIONS.topic,
            group=COLLECTIONS.group,
            name=f"{COLLECTIONS.group}-{slot}",
            **{"fetch.wait.max.ms": 50},
        )
        self._kafka = environment.kafka.client()
        self._store = CollectionStore(environment.collections_url)
        self._at = at
        self._writers: dict[_Target, CollectionWriter] = {}
        self._threads = ThreadPoolExecutor(_AT_A_TIME + _LATE_TARGETS, thread_name_prefix="append")
        self._late: dict[int, _Late] = {}
        """By partition of the topic."""
        self._ends: dict[int, int] = {}
        """Where reading continues in each partition of the topic."""
        self._topic_id = ""
        self._gathered_at = 0.0
        """When the last append began."""

    def progress(self) -> dict[str, Any]:
        """What the task reports to the driver."""
        return self._topic.progress()

    async def run(self) -> None:
        """Runs until it is cancelled. Whatever fails is read again; what was appended of it is passed over."""
        failure = "Documents cannot be appended at the moment"
        await self._topic.read(self._append_forever, passing=(CollectionError,), failure=failure)

    async def _append_forever(self, consumer: AsyncConsumer) -> None:
        self._writers, self._ends = {}, {}
        # A topic that was deleted and made again has other messages at the same offsets.
        self._topic_id = await asyncio.to_thread(self._id_of_topic)
        await self._topic.subscribe(consumer, _committed)
        try:
            while True:
                await self._append_next(consumer)
        finally:
            late, self._late = self._late, {}
            await tasks.cancel(*(each.task for each in late.values() if each.task is not None))

    async def _append_next(self, consumer: AsyncConsumer) -> None:
        records = await self._gathered(consumer)
        if records:
            self._at("read")
            await self._append(records)
            self._at("appended")
        for each in self._late.values():
            if each.task is not None and each.task.done():
                each.task.result()  # it may have failed in a way that is not expected
        if records or self._late:
            await consumer.store(self._appended())
            self._at("offsets_stored")

    def _id_of_topic(self) -> str:
        """Raises KafkaException."""
        admin = AdminClient(self._kafka)  # whose answers do not come once it is gone
        topic = self._topic.name
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=_METADATA_SECONDS)
        return str(described[topic].result().topic_id)

    async def _gathered(self, consumer: AsyncConsumer) -> list[KafkaRecord]:
        """What has come by the time that the next append may begin."""
        records = await consumer.records(_RECORDS)
        until = self._gathered_at + _COMMIT_SECONDS
        size = _bytes(records)
        while records and size < _BATCH_BYTES and (rest := until - time.monotonic()) > 0:
            more = await consumer.records(_RECORDS, rest)
            records += more
            size += _bytes(more)
        if records:
            self._gathered_at = time.monotonic()
        return records

    async def _append(self, records: Iterable[KafkaRecord]) -> None:
        """What cannot be appended is left to a reader of its own. Raises CollectionError when that is too much."""
        targets: dict[_Target, _Documents] = {}
        for record in records:
            offset, partition, _, _ = _parts(record)
            self._ends[partition] = offset + 1
            if (document := self._document(record)) is not None and not self._is_late(document[0]):
                targets.setdefault(document[0], []).append((offset, document[1]))
        for target, failed in (await self._failed(targets)).items():
            self._set_aside(target, targets[target][0][0], failed)

    async def _failed(self, targets: dict[_Target, _Documents]) -> dict[_Target, _Appending]:
        """Appends; those appends that fail, or take too long. Raises what is no CollectionError."""
        room = asyncio.Semaphore(_AT_A_TIME)

        async def append(target: _Target, documents: _Documents) -> _Appending:
            async with room:
                appending = asyncio.get_running_loop().run_in_executor(
                    self._threads, self._append_to, target, documents
                )
                await asyncio.wait([appending], timeout=_PATIENCE_SECONDS)
                return appending

        outcomes = await asyncio.gather(*(append(*item) for item in targets.items()))
        failed = {}
        for target, appending in zip(targets, outcomes, strict=True):
            error = appending.exception() if appending.done() else None
            if error is not None and not isinstance(error, CollectionError):
                raise error
            if error is not None or not appending.done():
                failed[target] = appending
                reason = error or f"It takes longer than {_PATIENCE_SECONDS:.0f} s."
                log.warning("Documents of the collection %s cannot be appended now: %s", target.collection, reason)
        return failed

    def _is_late(self, target: _Target) -> bool:
        return target.partition in self._late and target in self._late[target.partition].first

    def _document(self, record: KafkaRecord) -> tuple[_Target, Collected] | None:
        _, partition, value, headers = _parts(record)
        try:
            collected = read_collected(value=value, headers=headers)
        except MalformedMessageError as error:
            log.error("A record of %s is no document: %s", self._topic.name, error)
            return None
        return _Target(collected.workspace, collected.collection, partition), collected

    def _set_aside(self, target: _Target, first: int, failed: _Appending) -> None:
        """Raises CollectionError when nothing else is appended either."""
        if sum(len(late.first) for late in self._late.values()) >= _LATE_TARGETS:
            raise CollectionUnavailableError("Documents of many collections cannot be appended.")
        late = self._late.setdefault(target.partition, _Late())
        late.first[target], late.running[target] = first, failed
        if late.task is None or late.task.done():
            late.task = asyncio.create_task(self._catch_up(target.partition, late))

    async def _catch_up(self, partition: int, late: _Late) -> None:
        """Reads the partition again for all late targets together, until each is as far as all others."""
        while late.first:
            await asyncio.sleep(_RETRY_SECONDS)
            if not late.idle():
                continue
            consumer = self._topic.further_reader()
            try:
                await self._read_late(partition, late, consumer)
            except KafkaException as error:
                log.warning("Documents of late collections cannot be read at the moment: %s", error)
            finally:
                await consumer.close()

    async def _read_late(self, partition: int, late: _Late, consumer: AsyncConsumer) -> None:
        """Until none of the targets can be appended to. Raises KafkaException."""
        targets = late.idle()
        offset = min(late.first[target] for target in targets)
        await consumer.assign([TopicPartition(self._topic.name, partition, offset)])
        while targets and offset < self._ends[partition]:
            records = await consumer.records(_RECORDS)
            if not records:
                continue
            read: dict[_Target, _Documents] = {}
            for record in records:
                offset = _parts(record)[0]
                document = self._document(record)
                if document is not None and document[0] in targets and offset >= late.first[document[0]]:
                    read.setdefault(document[0], []).append((offset, document[1]))
            offset += 1
            failed = await self._failed(read)
            targets -= failed.keys()
            late.running |= failed
            late.first |= {target: max(offset, late.first[target]) for target in targets}
        for target in targets:
            log.info("The collection %s is as far as the others again.", target.collection)
            del late.first[target]
            late.running.pop(target, None)

    def _appended(self) -> list[TopicPartition]:
        """Up to where everything in each partition of the topic is appended."""
        return [
            TopicPartition(self._topic.name, partition, min([end, *self._late_in(partition)]))
            for partition, end in self._ends.items()
        ]

    def _late_in(self, partition: int) -> Iterable[int]:
        return self._late[partition].first.values() if partition in self._late else ()

    def _append_to(self, target: _Target, collected: _Documents) -> None:
        """In a thread of its own."""
        try:
            writer = self._writer(target, max(one.document.partition for _, one in collected) + 1, collected[-1][1])
            documents = [
                NewDocument(
                    offset, one.document.partition, one.document.key, one.value, one.headers, one.document.deleted
                )
                for offset, one in collected
            ]
            writer.append(documents, collected[-1][0] + 1)
        except CollectionMissingError:
            if not self._store.is_deleted(target.workspace, target.collection):
                self._writers.pop(target, None)
                raise
            log.info("%d documents of a collection that was deleted are dropped.", len(collected))

    def _writer(self, target: _Target, needed: int, last: Collected) -> CollectionWriter:
        writer = self._writers.get(target)
        if writer is None or writer.partitions < needed:
            if len(self._writers) >= _WRITERS_KEPT:
                self._writers.pop(next(iter(self._writers)))
            partitions = max(needed, last.document.partitions)
            table = self._store.table(target.workspace, target.collection, partitions=partitions)
            source = f"{self._topic_id}/{target.partition}"
            writer = self._writers[target] = CollectionWriter(table, source, self._at)
        return writer


def _committed(confluent: Consumer, parts: list[TopicPartition]) -> list[TopicPartition]:
    positions: list[TopicPartition] = confluent.committed(parts, timeout=_METADATA_SECONDS)
    return positions


def _parts(record: KafkaRecord) -> tuple[int, int, bytes | None, Any]:
    offset: Any = record.offset()
    partition: Any = record.partition()
    value: Any = record.value()
    return offset, partition, value, record.headers() or []


def _bytes(records: Iterable[KafkaRecord]) -> int:
    return sum(len(record.value() or b"") for record in records)
