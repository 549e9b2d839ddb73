"""End offsets of topics that may just have been created."""

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.infra import KAFKA
from tests.waiting import wait_until


def end_offset(topic: str, partition: int = 0, bootstrap: str = KAFKA) -> int:
    """The offset after the last record. Waits until the partition has a leader."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    ends: list[int] = []

    def known() -> bool:
        try:
            ends.append(consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)[1])
        except KafkaException:
            return False
        return True

    wait_until(known)
    consumer.close()
    return ends[-1]
