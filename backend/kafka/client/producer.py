"""An asyncio interface to librdkafka's producer."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Record

PARTITIONER = "murmur2_random"
"""The Java client's partitioner, which Spark uses too: a key goes to the same partition whichever client writes it."""

RECORD_FAULTS = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError._INVALID_ARG,
}
"""Answers that blame a record: it is refused again, while others are taken."""

DEFAULTS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 10_000,
    "partitioner": PARTITIONER,
}
"""The configuration of all producers, where they do not say otherwise."""

Headers = Sequence[tuple[str, bytes | None]]
Report = tuple[asyncio.Future[Record], KafkaError | None, Record]

_FULL_SECONDS = 0.01
"""Pause before a record is offered again to a local queue that was full."""
_REPLACE_SECONDS = 1.0
"""Pause before a producer is replaced that had a fatal error: the next one may have the same."""
_PURGE_SECONDS = 5.0
"""Limit for the delivery reports of the records that a failed producer still had."""


class Outgoing(Protocol):
    """A record to be sent."""

    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes: ...
    @property
    def headers(self) -> list[tuple[str, bytes]]: ...


class _Acknowledgements:
    """Of records that are sent together: one future for all of them costs a small part of what one for each does."""

    def __init__(
        self, records: int, loop: asyncio.AbstractEventLoop, cause: Callable[[KafkaError | None], KafkaError | None]
    ) -> None:
        self._loop = loop
        self._cause = cause
        self._left = records
        self._error: KafkaError | None = None
        self.all: asyncio.Future[None] = self._loop.create_future()

    def on_delivery(self, error: KafkaError | None, _: Record) -> None:
        """Called by the polling thread alone."""
        self._error = self._error or self._cause(error)
        self._left -= 1
        if not self._left:
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if self.all.done():  # the caller was cancelled
            return
        if self._error is None:
            self.all.set_result(None)
        else:
            self.all.set_exception(KafkaException(self._error))
            self.all.exception()  # a caller that failed meanwhile does not wait for it any more


class AsyncProducer:
    """Sends records and awaits their acknowledgement by all in-sync replicas.

    One thread polls the delivery reports and hands them to the event loop in batches, which keeps the
    cost per record low at full load.

    A producer of librdkafka takes no more records after a fatal error, such as a login that may not write, or brokers
    that lost what they had acknowledged. Those on their way fail with that error, and another producer takes those that
    follow.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._reports: deque[Report] = deque()
        self._wake_pending = False
        self._closed = False
        self._config = {**DEFAULTS, **config}
        self._producer = Producer(self._config)
        self._fatal: KafkaError | None = None
        """The fatal error of the current producer."""
        self._refused: list[asyncio.Future[Record]] = []
        """Of records that came after a fatal error whose cause is not known yet."""
        self._replaced_from = 0.0
        """Until then (monotonic time) no other producer takes its place."""
        self._poller = threading.Thread(target=self._poll, name="kafka-producer-poll", daemon=True)
        self._poller.start()

    def send(self, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers) -> asyncio.Future[Record]:
        """Returns a future of the acknowledged record, which fails with KafkaException.

        Raises KafkaException immediately when the local queue is full, and after a fatal error.
        """
        future: asyncio.Future[Record] = self._loop.create_future()

        def on_delivery(error: KafkaError | None, record: Record) -> None:
            self._reports.append((future, self._cause(error), record))
            if not self._wake_pending:
                self._wake_pending = True
                self._loop.call_soon_threadsafe(self._settle)

        try:
            self._usable().produce(topic, value, key, on_delivery=on_delivery, headers=list(headers))
        except BufferError:
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, "too many unacknowledged messages")) from None
        except KafkaException as error:
            if self._closed or not _is_without_cause(error):
                raise
            self._refused.append(future)
        return future

    async def send_all(self, records: Sequence[Outgoing]) -> asyncio.Future[None]:
        """Returns once the local queue has all of them, in order; waits while it is full. The future ends once the
        brokers' answers to all of them are known, with KafkaException when one is not acknowledged.

        Raises KafkaException for a record that is refused immediately.
        """
        acknowledgements = _Acknowledgements(len(records), self._loop, self._cause)
        if not records:
            acknowledgements.all.set_result(None)
        for record in records:
            while not self._is_queued(record, acknowledgements):
                await asyncio.sleep(_FULL_SECONDS)
        return acknowledgements.all

    def _is_queued(self, record: Outgoing, acknowledgements: _Acknowledgements) -> bool:
        """Offers the record to the local queue; False when that is full, or has closed for a cause not known yet."""
        try:
            self._usable().produce(
                record.topic,
                record.value,
                record.key,
                on_delivery=acknowledgements.on_delivery,
                headers=record.headers,
            )
        except BufferError:
            return False
        except KafkaException as error:
            if self._closed or not _is_without_cause(error):
                raise
            return False
        return True

    async def close(self, timeout: float = 5.0) -> None:
        """Waits up to ``timeout`` seconds for outstanding acknowledgements. Records without one fail then."""
        self._closed = True
        # Before the flush, since only one of the two is told the cause of a fatal error.
        await asyncio.to_thread(self._poller.join)
        cause = KafkaException(KafkaError(KafkaError._FATAL, "the producer was closed"))
        try:
            await asyncio.to_thread(self._producer.flush, timeout)
        except KafkaException as error:
            cause, self._fatal = error, error.args[0]
        await asyncio.to_thread(_purge, self._producer)
        self._refuse(cause)

    def list_topics(self, timeout: float) -> Any:
        """The cluster's metadata; blocks up to ``timeout`` seconds. Raises KafkaException when no broker answers."""
        return self._producer.list_topics(timeout=timeout)

    def _poll(self) -> None:
        while not self._closed:
            producer = self._producer
            try:
                producer.poll(0.5)
            except KafkaException as error:
                self._replaced_from = time.monotonic() + _REPLACE_SECONDS
                self._fatal = error.args[0]
                self._loop.call_soon_threadsafe(self._refuse, error)
                _purge(producer)

    def _usable(self) -> Producer:
        """Raises KafkaException with the fatal error of the one that is not replaced yet."""
        if self._fatal is not None:
            if time.monotonic() < self._replaced_from:
                raise KafkaException(self._fatal)
            self._producer, self._fatal = Producer(self._config), None
        return self._producer

    def _cause(self, error: KafkaError | None) -> KafkaError | None:
        """The error to report for a record. After a fatal error librdkafka only reports that records were purged."""
        return error and (self._fatal or error)

    def _refuse(self, error: KafkaException) -> None:
        for future in self._refused:
            if not future.done():  # the caller may have been cancelled
                future.set_exception(KafkaException(*error.args))
        self._refused.clear()

    def _settle(self) -> None:
        self._wake_pending = False
        while self._reports:
            future, error, record = self._reports.popleft()
            if future.done():  # the caller was cancelled
                continue
            if error is None:
                future.set_result(record)
            else:
                future.set_exception(KafkaException(error))


def _purge(producer: Producer) -> None:
    """Gives up the records that are on their way; their delivery reports say so."""
    producer.purge()
    with suppress(KafkaException):  # a fatal error is reported a second time
        producer.flush(_PURGE_SECONDS)


def _is_without_cause(error: KafkaException) -> bool:
    """Whether a producer refuses a record only because it had a fatal error, which its poll will tell."""
    return bool(error.args[0].code() == KafkaError._FATAL)
