"""Kafka's consumer."""

import asyncio
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.kafka.client.consumer import AsyncConsumer
from tests.infra import KAFKA, Server
from tests.waiting import LIMIT_SECONDS, wait_until_async


async def test_the_lag_counts_partitions_of_which_nothing_was_returned_yet(kafka: Server) -> None:
    topic = f"consumed-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, 3, 1)])[topic].result)
    producer = Producer({"bootstrap.servers": KAFKA})
    for partition in (0, 0, 0, 1, 1):
        producer.produce(topic, b"{}", partition=partition)
    assert await asyncio.to_thread(producer.flush, LIMIT_SECONDS) == 0
    consumer = AsyncConsumer({"bootstrap.servers": KAFKA, "group.id": topic})

    def begin_with_the_oldest(assigned: Consumer, partitions: list[TopicPartition]) -> None:
        assigned.assign([TopicPartition(topic, partition.partition, 0) for partition in partitions])

    async def is_told() -> bool:
        return await consumer.lag() is not None

    try:
        await consumer.subscribe([topic], begin_with_the_oldest)
        assert not await is_told()
        await wait_until_async(lambda: consumer.records(1))
        await wait_until_async(is_told)
        assert await consumer.lag() == 4
    finally:
        await consumer.close()
