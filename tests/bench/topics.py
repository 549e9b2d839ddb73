"""Topics that are filled before an engine reads them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Producer


class Filling(NamedTuple):
    """A record."""

    value: bytes
    key: bytes
    headers: Any


def fill(kafka: str, topic: str, records: Iterable[Filling]) -> None:
    """Returns once the topic has all of them."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, "compression.type": "lz4"})
    for record in records:
        while True:
            try:
                producer.produce(topic, record.value, record.key, headers=record.headers)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
