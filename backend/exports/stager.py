"""Stages the messages that outputs hand over: from the exporter's topic to Parquet parts.

The position up to which a partition is staged is stored by the manager, in the same transaction as the parts, and only
if the partition is still where this task began. So whatever a crash repeats is staged once: parts that were written
but not registered are never read.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Message as KafkaRecord
from msgspec.structs import replace

from backend.domain.message import EXPORT_OUTPUT, EXPORT_WORKSPACE, MalformedMessageError, Message
from backend.domain.stages import EXPORTER
from backend.exports.staging import Group, encode_part, part_path
from backend.exports.staging_store import StagingStore
from backend.kafka.client.consumer import AsyncConsumer
from backend.kafka.client.owned_topic import OwnedTopic
from backend.manager_api.exports import ExportClient, ManagerUnavailableError, NewPart, StagedElsewhereError
from backend.settings import KafkaSettings

log = logging.getLogger(__name__)

_RECORDS = 1000
_PART_BYTES = 16 * 1024 * 1024
_PART_ROWS = 50_000
_HELD_BYTES = 32 * 1024 * 1024
_OLDEST_SECONDS = 5.0


class _Partition:
    """What was read of a partition and is not staged yet. ``start`` is None when nothing was ever staged."""

    def __init__(self, start: int | None) -> None:
        self.start = start
        self.end: int | None = None
        self.rows = self.bytes = 0
        self.since = 0.0
        self.groups: dict[Group, list[tuple[int, Message]]] = {}

    def add(self, record: KafkaRecord) -> None:
        offset: Any = record.offset()
        if self.end is None:
            self.since = time.monotonic()
        self.end = offset + 1
        try:
            group, message = _read(record)
        except MalformedMessageError as error:
            log.error("A record of %s is not a message of an output: %s", EXPORTER.topic, error)
            return
        self.groups.setdefault(group, []).append((offset, message))
        self.rows += 1
        self.bytes += len(message.body)

    @property
    def is_due(self) -> bool:
        if self.end is None:
            return False
        is_old = time.monotonic() - self.since >= _OLDEST_SECONDS
        return is_old or self.bytes >= _PART_BYTES or self.rows >= _PART_ROWS


def _read(record: KafkaRecord) -> tuple[Group, Message]:
    """Raises MalformedMessageError."""
    key: Any = record.key()
    value: Any = record.value()
    headers: Any = record.headers() or []
    message = Message.from_kafka(key=key, value=value, headers=headers)
    try:
        output, workspace = message.extra[EXPORT_OUTPUT], message.extra[EXPORT_WORKSPACE]
    except KeyError as error:
        raise MalformedMessageError(f"The record has no header {error}.") from None
    return Group(workspace, message.pipeline_id, output, message.version), replace(message, extra={})


class Stager:
    """Used on one event loop. ``at`` is told the name of each step that is done."""

    def __init__(
        self,
        *,
        kafka: KafkaSettings,
        name: str,
        client: ExportClient,
        store: StagingStore,
        at: Callable[[str], None],
    ) -> None:
        assert EXPORTER.topic is not None
        self._topic = OwnedTopic(kafka, topic=EXPORTER.topic, group=EXPORTER.group, name=name)
        self._client = client
        self._store = store
        self._at = at
        self._partitions: dict[int, _Partition] = {}

    def progress(self) -> dict[str, Any]:
        """What the task reports to the driver."""
        return self._topic.progress()

    async def run(self) -> None:
        """Runs until it is cancelled. Whatever fails is read again from what is staged."""
        passing = (StagedElsewhereError, ManagerUnavailableError, OSError)
        failure = "Messages cannot be staged at the moment"
        await self._topic.read(self._stage, passing=passing, failure=failure)

    async def _stage(self, consumer: AsyncConsumer) -> None:
        loop = asyncio.get_running_loop()
        self._partitions = {}

        def staged_positions(_: Consumer, parts: list[TopicPartition]) -> list[TopicPartition]:
            numbers = [part.partition for part in parts]
            asking = asyncio.run_coroutine_threadsafe(self._client.staging_positions(numbers), loop)
            positions = asking.result()
            for part in parts:
                part.offset = positions.get(part.partition, OFFSET_BEGINNING)
            self._partitions = {number: _Partition(positions.get(number)) for number in numbers}
            return parts

        await self._topic.subscribe(consumer, staged_positions)
        while True:
            for record in await consumer.records(_RECORDS):
                number: Any = record.partition()
                self._partitions[number].add(record)
            for number in self._due():
                await self._flush(consumer, number)

    def _due(self) -> list[int]:
        due = [number for number, partition in self._partitions.items() if partition.is_due]
        if due or sum(partition.bytes for partition in self._partitions.values()) < _HELD_BYTES:
            return due
        return [max(self._partitions, key=lambda number: self._partitions[number].bytes)]

    async def _flush(self, consumer: AsyncConsumer, number: int) -> None:
        partition = self._partitions[number]
        assert partition.end is not None
        self._at("read")
        parts = [await self._write(number, group, rows) for group, rows in partition.groups.items()]
        self._at("parts_written")
        await self._client.register_parts(number, partition.start, partition.end, parts)
        self._at("parts_registered")
        await consumer.store([TopicPartition(self._topic.name, number, partition.end)])
        self._partitions[number] = _Partition(partition.end)

    async def _write(self, number: int, group: Group, rows: list[tuple[int, Message]]) -> NewPart:
        messages = [message for _, message in rows]
        path = part_path(group, number, rows[0][0], rows[-1][0])
        await asyncio.to_thread(lambda: self._store.write(path, encode_part(messages)))
        size = sum(len(message.body) for message in messages)
        return NewPart(**group._asdict(), path=path, rows=len(messages), bytes=size)
