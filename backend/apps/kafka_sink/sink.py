"""Writes a Kafka topic into PostgreSQL, each record exactly once: a batch and its offsets
are one database transaction."""

import logging
import threading
from abc import ABC, abstractmethod
from typing import ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from django.db import DatabaseError, InterfaceError, close_old_connections, connection, transaction

from backend.apps.kafka_sink.models import SinkOffset
from backend.settings import platform_settings

log = logging.getLogger(__name__)

_BATCH = 2000
_POLL_SECONDS = 0.5
_RETRY_SECONDS = 1.0


class Sink(ABC):
    """Writes the records of one topic to the database."""

    name: ClassVar[str]
    topic: ClassVar[str]

    @abstractmethod
    def write(self, records: list[Message]) -> None:
        """Writes a batch, in the order of each partition. Called within a transaction, and again
        with the same batch if that fails."""


class _MovedError(Exception):
    """Another worker has written past this one's position."""


def run(sink: Sink, stop: threading.Event) -> None:
    """Runs until ``stop`` is set. Waits as long as the database or Kafka is unavailable."""
    consumer = Consumer(
        {
            "bootstrap.servers": platform_settings().kafka_bootstrap_servers,
            "group.id": f"headrace-{sink.name}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 1000,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 16 * 1024,
        }
    )
    positions: dict[int, int] = {}

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        stored = _retried(lambda: _stored(sink), stop)
        for part in partitions:
            part.offset = positions[part.partition] = stored.get(part.partition, 0)
        consumer.assign(partitions)

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        for part in partitions:
            positions.pop(part.partition, None)

    consumer.subscribe([sink.topic], on_assign=assigned, on_revoke=revoked)
    try:
        while not stop.is_set():
            records = [record for record in consumer.consume(_BATCH, _POLL_SECONDS) if _is_data(record)]
            if not records:
                continue
            try:
                _retried(lambda batch=records: _write(sink, batch, positions), stop)  # type: ignore[misc]
            except _MovedError:
                stored = _retried(lambda: _stored(sink), stop)
                positions.update({partition: stored.get(partition, 0) for partition in positions})
                for partition, offset in positions.items():
                    consumer.seek(TopicPartition(sink.topic, partition, offset))
            else:
                # Only for lag monitoring; the offsets in the database are authoritative.
                consumer.commit(
                    offsets=[TopicPartition(sink.topic, part, offset) for part, offset in positions.items()],
                    asynchronous=True,
                )
    finally:
        consumer.close()
        connection.close()


def _is_data(record: Message) -> bool:
    error = record.error()
    if error is None:
        return True
    if error.fatal():
        raise KafkaException(error)
    if error.code() != KafkaError._PARTITION_EOF:
        log.warning("Kafka: %s", error.str())
    return False


def _stored(sink: Sink) -> dict[int, int]:
    return dict(SinkOffset.objects.filter(sink=sink.name).values_list("partition", "next_offset"))


def _write(sink: Sink, records: list[Message], positions: dict[int, int]) -> None:
    """Raises _MovedError, with nothing written, when this worker no longer owns a partition."""
    ends: dict[int, int] = {}
    for record in records:
        ends[record.partition()] = record.offset() + 1  # type: ignore[index,operator]
    with transaction.atomic():
        for partition, end in ends.items():
            if partition not in positions:
                raise _MovedError
            moved = SinkOffset.objects.filter(
                sink=sink.name, partition=partition, next_offset=positions[partition]
            ).update(next_offset=end)
            if not moved:
                _, created = SinkOffset.objects.get_or_create(
                    sink=sink.name, partition=partition, defaults={"next_offset": end}
                )
                if not created:
                    raise _MovedError
        sink.write(records)
    positions.update(ends)


def _retried(action, stop: threading.Event):  # type: ignore[no-untyped-def]
    while True:
        close_old_connections()
        try:
            return action()
        except (InterfaceError, DatabaseError) as error:
            if stop.is_set():
                raise
            log.warning("The database is unavailable: %s", str(error).splitlines()[0] if str(error) else error)
            connection.close()
            stop.wait(_RETRY_SECONDS)
