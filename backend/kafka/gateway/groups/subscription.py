"""The metadata of members whose protocol type is "consumer": Kafka's ConsumerProtocolSubscription."""

import struct

from backend.kafka.wire import primitives
from backend.kafka.wire.primitives import MalformedError


def subscribed_topics(metadata: bytes) -> list[str]:
    """The topics that a member subscribes to; none if the metadata cannot be read."""
    try:
        count, at = primitives.read_count32(metadata, 2)
        topics = []
        for _ in range(count):
            topic, at = primitives.read_string(metadata, at)
            topics.append(topic)
    except (MalformedError, struct.error, UnicodeDecodeError):
        return []
    return topics
