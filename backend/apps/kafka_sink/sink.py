"""Writes a Kafka topic into PostgreSQL, each record exactly once: a batch and its offsets
are one database transaction."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from django.db import DatabaseError, InterfaceError, close_old_connections, connection, transaction

from backend.apps.kafka_sink.faults import is_data_fault, write_good
from backend.apps.kafka_sink.models import SinkOffset
from backend.apps.kafka_sink.services import record_quarantine
from backend.settings import platform_settings

log = logging.getLogger(__name__)

T = TypeVar("T")

_BATCH = 2000
_POLL_SECONDS = 0.5
_RETRY_SECONDS = 1.0


class Sink(ABC):
    """Writes the records of one topic to the database."""

    name: ClassVar[str]
    topic: ClassVar[str]

    @abstractmethod
    def write(self, records: Sequence[Message]) -> None:
        """Writes a batch, in the order of each partition. Called within a transaction, and again if that fails:
        with the same batch after an outage, with parts of it if a record cannot be written because of what is in it.
        """


class _MovedError(Exception):
    """Another worker has written past this one's position."""


def run(sink: Sink, stop: threading.Event) -> None:
    """Runs until ``stop`` is set. Waits as long as the database or Kafka is unavailable; a record that cannot be
    written because of what is in it is quarantined, and the others go on."""
    consumer = Consumer(
        {
            **platform_settings().kafka.client(),
            "group.id": f"headrace-{sink.name}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 1000,
            "queued.max.messages.kbytes": 16 * 1024,
        }
    )
    positions: dict[int, int] = {}

    def write(records: Sequence[Message]) -> None:
        _retried(lambda: _write(sink, records, positions, lambda: sink.write(records)), stop)

    def set_aside(record: Message, error: Exception) -> None:
        def keep() -> None:
            record_quarantine(sink=sink.name, record=record, error=error)

        _retried(lambda: _write(sink, [record], positions, keep), stop)

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
                write_good(records, write, set_aside)
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


def _write(sink: Sink, records: Sequence[Message], positions: dict[int, int], write: Callable[[], None]) -> None:
    """Calls ``write`` and moves the offsets past the records, in one transaction.

    Raises _MovedError, with nothing written, when this worker no longer owns a partition.
    """
    ends: dict[int, int] = {}
    for record in records:
        ends[record.partition()] = record.offset() + 1  # type: ignore[index,operator]
    # A COPY raises psycopg's errors, not Django's.
    with connection.wrap_database_errors, transaction.atomic():
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
        write()
    positions.update(ends)


def _retried(action: Callable[[], T], stop: threading.Event) -> T:
    """Repeats the action while the database is unavailable."""
    while True:
        close_old_connections()
        try:
            return action()
        except (InterfaceError, DatabaseError) as error:
            if stop.is_set() or is_data_fault(error):
                raise
            log.warning("The database is unavailable: %s", str(error).splitlines()[0] if str(error) else error)
            connection.close()
            stop.wait(_RETRY_SECONDS)
