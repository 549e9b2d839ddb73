"""Writes records, and the offsets of the messages they result from, in one Kafka transaction."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from backend.domain.records import Record
from backend.kafka.client.producer import PARTITIONER

log = logging.getLogger(__name__)

TRANSACTION_SECONDS = 30.0
CALL_SECONDS = 5.0
"""A call to Kafka that takes longer is retried."""
_ABORTS = 12
_ABORTED_SECONDS = 0.05
_LONGEST_ABORTED_SECONDS = 5.0


class Transaction(NamedTuple):
    """The records and offsets that are written together."""

    records: Iterable[Record]
    offsets: list[TopicPartition]


class TransactionalWriter:
    """Used by one thread. ``group`` returns the consumer group's metadata, which may change at any time; once
    ``stopping`` is set, calls wait for Kafka no longer than a transaction may last."""

    def __init__(
        self, bootstrap_servers: str, transactional_id: str, group: Callable[[], Any], stopping: threading.Event
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._transactional_id = transactional_id
        self._group = group
        self._stopping = stopping

    def open(self) -> None:
        """Fences a predecessor with the same id and ends its open transaction. Raises KafkaException."""
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
                # Fills batches better, but delays each commit.
                "linger.ms": 1,
                # The coordinator answers "concurrent transactions" for some milliseconds after a
                # commit; the default back-off of 100 ms would be paid by every transaction.
                "retry.backoff.ms": 2,
                "retry.backoff.max.ms": 1000,
                "compression.type": "lz4",
                "message.max.bytes": 4 * 1024 * 1024,
                "partitioner": PARTITIONER,
                "reconnect.backoff.max.ms": 1000,
            }
        )
        self._resume(self._producer.init_transactions)

    def commit(self, transaction: Callable[[], Transaction | None]) -> None:
        """Retries an aborted transaction: under the group's new generation after a rebalance, with a new producer
        after a fatal error. ``transaction`` is called before each attempt and returns None when nothing is left to
        write.

        Raises KafkaException when the error is permanent or retries are exhausted; nothing is committed then.
        """
        for aborts in range(_ABORTS):
            contents = transaction()
            if contents is None:
                return
            try:
                self._transact(contents)
                return
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if aborts == _ABORTS - 1 or not (cause.txn_requires_abort() or cause.fatal()):
                    raise
                log.warning("Transaction aborted, retrying: %s", cause.str())
                if cause.fatal():
                    self.open()
                else:
                    self._resume(self._producer.abort_transaction)
            time.sleep(min(_ABORTED_SECONDS * 2**aborts, _LONGEST_ABORTED_SECONDS))

    def _transact(self, transaction: Transaction) -> None:
        self._producer.begin_transaction()
        for record in transaction.records:
            self._produce(record)
        group = self._group()
        self._resume(lambda seconds: self._producer.send_offsets_to_transaction(transaction.offsets, group, seconds))
        self._resume(self._producer.commit_transaction)

    def _resume(self, call: Callable[[float], object]) -> None:
        """Calls, and retries the call while Kafka is unavailable; when stopping, for a limited time."""
        began = time.monotonic()
        while True:
            try:
                call(CALL_SECONDS)
                return
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                expired = self._stopping.is_set() and time.monotonic() - began > TRANSACTION_SECONDS
                if expired or not cause.retriable():
                    raise
                log.warning("Waiting for Kafka: %s", cause.str())

    def _produce(self, record: Record) -> None:
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
                return
            except BufferError:
                self._producer.poll(0.1)
