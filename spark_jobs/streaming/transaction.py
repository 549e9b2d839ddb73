"""Writes records, and the offsets of the messages they result from, in one Kafka transaction."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, NamedTuple

from cachetools import TTLCache
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from backend.domain import limits, routing
from backend.domain.records import Record
from backend.kafka.client.committed import CommittedOffsets
from backend.kafka.client.producer import PARTITIONER, RECORD_FAULTS
from backend.settings import KafkaSettings

log = logging.getLogger(__name__)

TRANSACTION_SECONDS = 30.0
CALL_SECONDS = 5.0
"""A call to Kafka that takes longer is retried."""
_FENCED = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED})
_ATTEMPTS = 12
_RETRY_SECONDS = 0.05
_LONGEST_RETRY_SECONDS = 5.0
_LONGEST_RESUME_SECONDS = 1.0
"""Most of these calls have waited for CALL_SECONDS by themselves."""

_TOPIC_SECONDS = 60.0
_TOPICS_KNOWN = 10_000
_PASSING_SECONDS = 5.0
_UNUSABLE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""Errors of a topic that do not pass, in contrast to that of a leader being elected."""
_SUSPICIOUS = RECORD_FAULTS | {KafkaError._INCONSISTENT, KafkaError._STATE}
"""Errors of a transaction that may be a single record's fault."""


class Transaction(NamedTuple):
    """The records and offsets that are written together."""

    records: Iterable[Record]
    offsets: list[TopicPartition]


class TransactionalWriter:
    """Used by one thread. ``group`` returns the metadata of the consumer group ``group_id``, which may change at any
    time; once ``stopping`` is set, calls wait for Kafka no longer than a transaction may last."""

    def __init__(
        self,
        kafka: KafkaSettings,
        transactional_id: str,
        group_id: str,
        group: Callable[[], Any],
        stopping: threading.Event,
    ) -> None:
        self._kafka = kafka
        self._transactional_id = transactional_id
        self._group_id = group_id
        self._group = group
        self._stopping = stopping
        self._one_by_one = False
        self._refused: list[tuple[Record, KafkaError]] = []
        self._commit_sent = False
        self._topics: TTLCache[str, None] = TTLCache(_TOPICS_KNOWN, _TOPIC_SECONDS)
        """Topics of pipelines that existed a short time ago."""
        self._failing_topics: TTLCache[str, float] = TTLCache(_TOPICS_KNOWN, _TOPIC_SECONDS)
        """Those whose metadata has an error, and since when."""

    def open(self, *, one_by_one: bool = False) -> None:
        """Fences a predecessor with the same id and ends its open transaction. Raises KafkaException.

        Kafka answers for whole batches. ``one_by_one`` sends each record as a batch, and so learns which it refuses.
        """
        self._one_by_one = one_by_one
        self._producer = Producer(
            {
                **self._kafka.client(),
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
                # Fills batches better, but delays each commit.
                "linger.ms": 1,
                # The coordinator answers "concurrent transactions" for some milliseconds after a
                # commit; the default back-off of 100 ms would be paid by every transaction.
                "retry.backoff.ms": 2,
                "retry.backoff.max.ms": 1000,
                "compression.type": "lz4",
                "message.max.bytes": limits.RECORD_BYTES,
                "partitioner": PARTITIONER,
                "reconnect.backoff.max.ms": 1000,
                **({"batch.num.messages": 1} if one_by_one else {}),
            }
        )
        self._resume(self._producer.init_transactions)

    def commit(
        self, transaction: Callable[[], Transaction | None], refuse: Callable[[Record, KafkaError], None]
    ) -> None:
        """Retries until the transaction is committed: under the group's new generation after a rebalance, with a new
        producer after a fatal error, and without records that Kafka refuses.

        ``transaction`` is called before each attempt and returns None when nothing is left to write; after
        ``refuse`` it returns something else in place of that record.

        Raises KafkaException when a successor has taken over or retries are exhausted.
        """
        if self._one_by_one:
            self.open()
        self._commit_sent = False
        attempts = 0
        was_fenced = False
        while (contents := transaction()) is not None:
            # The answer to a commit may be lost: the offsets tell whether it happened, since they were written with
            # the records. The predecessor's transaction has ended when its successor is open.
            if self._commit_sent and self._is_committed(contents.offsets):
                return
            try:
                self._transact(contents)
                return
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                log.warning("Transaction aborted: %s", cause.str())
                # After a stall the consumer may have joined the group anew, under another id than this attempt was
                # made with, or Kafka has ended the transaction: then only this attempt is fenced. Who is fenced again
                # has a successor, which a new producer would fence in turn.
                is_fenced = cause.code() in _FENCED
                if is_fenced and was_fenced:
                    raise
                was_fenced = is_fenced
                self._abort()
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
            refused, self._refused = self._refused, []
            for record, reason in refused:
                refuse(record, reason)
            if refused:
                attempts = 0
            elif cause.code() in _SUSPICIOUS:
                self.open(one_by_one=True)
            time.sleep(_pause(attempts, _LONGEST_RETRY_SECONDS))

    def _transact(self, transaction: Transaction) -> None:
        self._commit_sent = False
        self._producer.begin_transaction()
        for record in transaction.records:
            self._produce(record)
        if self._refused:
            raise KafkaException(self._refused[0][1])
        group = self._group()
        self._resume(lambda seconds: self._producer.send_offsets_to_transaction(transaction.offsets, group, seconds))
        self._commit_sent = True
        self._resume(self._producer.commit_transaction)
        self._commit_sent = False

    def _abort(self) -> None:
        """Ends the transaction, with a new producer when this one cannot."""
        try:
            self._resume(self._producer.abort_transaction)
        except KafkaException as error:
            log.warning("The transaction is ended by a new producer: %s", error.args[0].str())
            self.open()

    def _is_committed(self, offsets: list[TopicPartition]) -> bool:
        """Whether these offsets, each with its metadata, are the group's. Raises KafkaException."""
        parts = [(tp.topic, tp.partition) for tp in offsets]
        committed: list[TopicPartition] = []

        with closing(CommittedOffsets(self._kafka.client())) as asking:
            self._resume(lambda seconds: committed.extend(asking.of(self._group_id, parts, seconds)))
        return _positions(committed) == _positions(offsets)

    def _resume(self, call: Callable[[float], object]) -> None:
        """Calls, and retries the call while Kafka is unavailable; when stopping, for a limited time.

        librdkafka reports a conflict as retriable, but it lasts for as long as the other call of this producer that
        was given up is not resumed, and so for ever.
        """
        began = time.monotonic()
        failures = 0
        while True:
            try:
                call(CALL_SECONDS)
                return
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                expired = self._stopping.is_set() and time.monotonic() - began > TRANSACTION_SECONDS
                if expired or not cause.retriable() or cause.code() == KafkaError._CONFLICT:
                    raise
                log.warning("Waiting for Kafka: %s", cause.str())
                time.sleep(_pause(failures, _LONGEST_RESUME_SECONDS))
                failures += 1

    def _produce(self, record: Record) -> None:
        missing = self._topic_error(record.topic)
        if missing is not None:
            self._refused.append((record, missing))
            return
        reported: Any = functools.partial(self._note, record) if self._one_by_one else None
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, headers=list(record.headers), on_delivery=reported
                )
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if not self._note(record, error.args[0]):
                    raise
                return

    def _note(self, record: Record, error: KafkaError | None, _: object = None) -> bool:
        """Notes the record if Kafka refuses it for its own fault."""
        if error is None or error.code() not in RECORD_FAULTS:
            return False
        self._refused.append((record, error))
        return True

    def _topic_error(self, topic: str) -> KafkaError | None:
        """Why nothing can be written to a pipeline's own topic, which may have been deleted: a producer would try until
        the transaction expires. An error that may pass is waited for, but once a minute at most, since others wait
        meanwhile. Raises KafkaException."""
        if topic in routing.TOPICS or topic in self._topics:
            return None
        while (error := self._metadata_error(topic)) is not None:
            failing_since = self._failing_topics.setdefault(topic, time.monotonic())
            if error.code() in _UNUSABLE or time.monotonic() - failing_since > _PASSING_SECONDS:
                return error
            log.warning("Waiting for the topic %s: %s", topic, error.str())
            time.sleep(_RETRY_SECONDS)
        self._failing_topics.pop(topic, None)
        self._topics[topic] = None
        return None

    def _metadata_error(self, topic: str) -> KafkaError | None:
        errors: list[KafkaError | None] = []
        self._resume(lambda seconds: errors.append(self._producer.list_topics(topic, seconds).topics[topic].error))
        return errors[0]


def _pause(failures: int, longest: float) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(_RETRY_SECONDS * 2.0 ** min(failures, 10), longest)


def _positions(offsets: list[TopicPartition]) -> set[tuple[int, int, str]]:
    return {(tp.partition, tp.offset, tp.metadata or "") for tp in offsets}
