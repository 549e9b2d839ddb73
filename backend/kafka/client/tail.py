"""Reads the end of a topic."""

from contextlib import closing

from confluent_kafka import KafkaError, KafkaException, Message

from backend.kafka.client.scan import TopicScan
from backend.settings import KafkaSettings


def tail(kafka: KafkaSettings, topic: str, per_partition: int) -> list[Message]:
    """The committed records among the last ``per_partition`` offsets of each partition, oldest first per partition.

    None if there is no such topic. Raises KafkaException when Kafka does not answer.
    """
    try:
        with closing(TopicScan(kafka, topic, last=per_partition)) as scan:
            return [record for batch in scan.until_caught_up() for record in batch]
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        raise
