"""Reads the end of a topic without joining a consumer group or committing offsets."""

import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_SECONDS = 5.0


def tail(bootstrap_servers: str, topic: str, per_partition: int) -> list[Message]:
    """The committed records among the last ``per_partition`` offsets of each partition, oldest first per partition.

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
        records: list[Message] = []
        starts = []
        for partition in consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SECONDS)
            starts.append(TopicPartition(topic, partition, max(low, high - per_partition)))
        consumer.assign(starts)
        unfinished = {start.partition for start in starts}
        while unfinished:
            first = consumer.poll(_SECONDS)
            if first is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka does not answer"))
            for record in [first, *consumer.consume(1000, 0)]:
                error = record.error()
                if error is None:
                    records.append(record)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(record.partition())
                else:
                    raise KafkaException(error)
        return records
    finally:
        consumer.close()
