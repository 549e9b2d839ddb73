"""Records and the offsets that they follow from, written in one Kafka transaction."""

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
"""A call to Kafka that takes longer is made again."""
_ABORTS = 12
_ABORTED_SECONDS = 0.05
_LONGEST_ABORTED_SECONDS = 5.0


class Transaction(NamedTuple):
    """What is written together."""

    records: Iterable[Record]
    offsets: list[TopicPartition]


class TransactionalWriter:
    """One thread's own. ``group`` tells the consumer group's generation, which may change at any time; once
    ``stopping`` is set, Kafka is waited for no longer than a transaction may last."""

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
                # For fuller batches. A commit waits for it.
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
        """Tries again when the transaction was aborted: under the group's new generation after a rebalance, with a
        new producer after Kafka gave the old one up. ``transaction`` is asked before each try, and answers None
        when nothing of it is left to write.

        Raises KafkaException when that does not help: nothing is committed then.
        """
        for aborts in range(_ABORTS):
            wanted = transaction()
            if wanted is None:
                return
            try:
                self._transact(wanted)
                return
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if aborts == _ABORTS - 1 or not (cause.txn_requires_abort() or cause.fatal()):
                    raise
                log.warning("Transaction aborted, trying again: %s", cause.str())
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
        """Calls, and goes on with the same call for as long as Kafka is away; when stopping, not forever."""
        began = time.monotonic()
        while True:
            try:
                call(CALL_SECONDS)
                return
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                over = self._stopping.is_set() and time.monotonic() - began > TRANSACTION_SECONDS
                if over or not cause.retriable():
                    raise
                log.warning("Waiting for Kafka: %s", cause.str())

    def _produce(self, record: Record) -> None:
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
                return
            except BufferError:
                self._producer.poll(0.1)
