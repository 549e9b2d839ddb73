"""librdkafka's producer for threads, which wait for Kafka's answers themselves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Record

from backend.kafka.client.producer import DEFAULTS, Headers

_FULL_SECONDS = 0.1
"""Limit of a wait for delivery reports, which make room in a local queue that is full."""
_REPORT_SECONDS = 1.0
"""Limit of the time until it is reported that a record's time is over."""


class BlockingProducer:
    """Sends records and waits for their acknowledgement by all in-sync replicas. Threads may share one.

    A producer of librdkafka takes no more records after a fatal error, such as a login that may not write. The call
    that learns of it fails, and another producer takes the records that follow.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = {**DEFAULTS, **config}
        self._producer = Producer(self._config)

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        on_delivery: Callable[[KafkaError | None, Record], None],
    ) -> None:
        """Returns once the local queue has the record; waits while it is full. ``on_delivery`` is called with Kafka's
        answer by a later call of any method.

        Raises KafkaException for a record that is refused immediately, and for a fatal error.
        """
        with self._replaced_if_fatal() as producer:
            while True:
                try:
                    producer.produce(topic, value, key, headers=list(headers), on_delivery=on_delivery)
                    return
                except BufferError:
                    producer.poll(_FULL_SECONDS)

    def flush(self) -> None:
        """Waits for the answers to all records. Those that Kafka does not answer fail at ``message.timeout.ms``.
        Raises KafkaException for a fatal error."""
        with self._replaced_if_fatal() as producer:
            producer.flush(self._config["message.timeout.ms"] / 1000 + _REPORT_SECONDS)

    @contextmanager
    def _replaced_if_fatal(self) -> Iterator[Producer]:
        producer = self._producer
        try:
            yield producer
        except KafkaException as error:
            if _is_fatal(error) and producer is self._producer:  # another thread may have replaced it
                self._producer = Producer(self._config)
            raise


def _is_fatal(error: KafkaException) -> bool:
    """Whether the producer that raised it takes no more records."""
    cause: KafkaError = error.args[0]
    return bool(cause.fatal()) or cause.code() == KafkaError._FATAL
