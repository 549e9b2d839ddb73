"""What a topic holds, as the broker tells it."""

from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.infra import KAFKA
from tests.waiting import LIMIT_SECONDS, PATIENCE


def records_of(topic: str, offset: int = 0) -> list[Message]:
    """All records of the topic's first partition by now, from this offset on."""
    records: list[Message] = []
    errors: list[KafkaError] = []
    settings = {
        "bootstrap.servers": KAFKA,
        "group.id": "records",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, offset)])
        while (record := consumer.poll(LIMIT_SECONDS * PATIENCE)) is not None:
            error = record.error()
            if error is None:
                records.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                return records
            else:
                errors.append(error)
    pytest.fail(f"The end of {topic} was not reached: {errors}")
