"""An asyncio interface to librdkafka's producer."""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Record

PARTITIONER = "murmur2_random"
"""The Java client's partitioner, which Spark uses too: a key goes to the same partition whichever client writes it."""

_DEFAULTS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 10_000,
    "partitioner": PARTITIONER,
}

Headers = Sequence[tuple[str, bytes]]
Report = tuple[asyncio.Future[Record], KafkaError | None, Record]


class AsyncProducer:
    """Sends records and awaits their acknowledgement by all in-sync replicas.

    One thread polls the delivery reports and hands them to the event loop in batches, which keeps the
    cost per record low at full load.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._reports: deque[Report] = deque()
        self._wake_pending = False
        self._closed = False
        self._producer = Producer({**_DEFAULTS, **config})
        self._poller = threading.Thread(target=self._poll, name="kafka-producer-poll", daemon=True)
        self._poller.start()

    def send(self, topic: str, *, key: bytes | None, value: bytes, headers: Headers) -> asyncio.Future[Record]:
        """Returns a future of the acknowledged record, which fails with KafkaException.

        Raises KafkaException immediately when the local queue is full.
        """
        future: asyncio.Future[Record] = self._loop.create_future()

        def on_delivery(error: KafkaError | None, record: Record) -> None:
            self._reports.append((future, error, record))
            if not self._wake_pending:
                self._wake_pending = True
                self._loop.call_soon_threadsafe(self._settle)

        try:
            self._producer.produce(topic, value, key, on_delivery=on_delivery, headers=list(headers))
        except BufferError:
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, "too many unacknowledged messages")) from None
        return future

    async def close(self, timeout: float = 5.0) -> None:
        """Waits up to ``timeout`` seconds for outstanding acknowledgements."""
        await asyncio.to_thread(self._producer.flush, timeout)
        self._closed = True
        await asyncio.to_thread(self._poller.join)

    def list_topics(self, timeout: float) -> Any:
        """The cluster's metadata; blocks up to ``timeout`` seconds. Raises KafkaException when no broker answers."""
        return self._producer.list_topics(timeout=timeout)

    def _poll(self) -> None:
        while not self._closed:
            self._producer.poll(0.5)

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
