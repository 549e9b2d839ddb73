"""The end of a topic, read without a group and without leaving a trace."""

import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_SECONDS = 5.0


def tail(bootstrap_servers: str, topic: str, per_partition: int) -> list[Message]:
    """The committed records among the last ``per_partition`` of each partition, oldest first by partition.

    Raises KafkaException when Kafka does not answer.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"headrace-tail-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        found: list[Message] = []
        starts = []
        for partition in consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SECONDS)
            starts.append(TopicPartition(topic, partition, max(low, high - per_partition)))
        consumer.assign(starts)
        left = {start.partition for start in starts}
        while left:
            first = consumer.poll(_SECONDS)
            if first is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka does not answer"))
            for record in [first, *consumer.consume(1000, 0)]:
                error = record.error()
                if error is None:
                    found.append(record)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(record.partition())
                else:
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()
