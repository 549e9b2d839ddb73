"""What a Kafka consumer of a test receives."""

import time
from collections import Counter

from confluent_kafka import Consumer

from tests.waiting import LIMIT_SECONDS, PATIENCE


def received(consumer: Consumer, count: int, seconds: float = LIMIT_SECONDS) -> Counter[bytes]:
    """The values that it gets until it has this many, and for half a second longer."""
    counts: Counter[bytes] = Counter()
    deadline = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < deadline:
        messages = consumer.consume(500, 0.5)
        if counts.total() >= count and not messages:
            break
        for message in messages:
            assert message.error() is None or message.error().retriable(), message.error()
            if message.error() is None:
                counts[message.value()] += 1
    return counts
