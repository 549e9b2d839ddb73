"""Keeps each message as a line of a file below the folder of files."""

import asyncio
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from backend.domain.stages import stage_named
from backend.kafka.client.consumer import AsyncConsumer
from backend.kafka.client.owned_topic import OwnedTopic
from backend.network import tasks
from backend.settings import Settings
from spark_jobs.streaming.slot_process import prepare_process
from spark_jobs.streaming.stop_channel import Address, watched

STAGE = stage_named("toy_shelf")


def run_slot(environment: Settings, stop_address: Address, slot: int) -> None:
    prepare_process(STAGE.name, slot)
    asyncio.run(_run(environment, stop_address, slot))


async def _run(environment: Settings, stop_address: Address, slot: int) -> None:
    assert STAGE.topic is not None
    topic = OwnedTopic(environment.kafka, topic=STAGE.topic, group=STAGE.group, name=f"{STAGE.group}-{slot}")

    async def keep(consumer: AsyncConsumer) -> None:
        await topic.subscribe(consumer, _committed)
        while True:
            for record in await consumer.records(100):
                with Path(environment.files_root, "shelf").open("ab") as shelf:
                    shelf.write((record.value() or b"") + b"\n")
                await consumer.store([TopicPartition(record.topic(), record.partition(), record.offset() + 1)])

    stop = await watched(stop_address, environment.service_token, slot, topic.progress)
    keeping = asyncio.create_task(topic.read(keep, passing=(), failure="The shelf cannot be filled"))
    done, pending = await asyncio.wait([keeping, stop], return_when=asyncio.FIRST_COMPLETED)
    await tasks.cancel(*pending)
    for ended in done - {stop}:
        ended.result()


def _committed(consumer: Consumer, parts: list[TopicPartition]) -> list[TopicPartition]:
    positions: list[TopicPartition] = consumer.committed(parts, timeout=10)
    return positions
