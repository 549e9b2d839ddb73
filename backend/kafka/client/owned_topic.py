"""Reads the partitions of a topic that a task owns."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from backend.kafka.client.consumer import AsyncConsumer
from backend.kafka.client.ends import is_loss
from backend.settings import KafkaSettings

log = logging.getLogger(__name__)

_RESTART_SECONDS = 2.0
_WATERMARK_SECONDS = 5.0

Positions = Callable[[Consumer, list[TopicPartition]], list[TopicPartition]]
"""Where the reader begins in the partitions that are assigned to it. Called in the consumer's thread."""


class _ReassignedError(Exception):
    """Kafka has distributed the partitions anew."""


class OwnedTopic:
    """Used on one event loop. ``losses`` are messages that Kafka deleted before they were read: partition, first offset
    and number."""

    def __init__(self, kafka: KafkaSettings, *, topic: str, group: str, name: str, **config: Any) -> None:
        """``name`` is the task's, for good; ``config`` is for librdkafka."""
        self.name = topic
        self._config = {
            **kafka.client(),
            "group.id": group,
            "client.id": name,
            # A restarted task takes its partitions over without waiting for the session of a killed one to expire.
            "group.instance.id": name,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 1000,
            **config,
        }
        self.losses: set[tuple[int, int, int]] = set()
        self._consumer: AsyncConsumer | None = None

    def progress(self) -> dict[str, Any]:
        """What a task reports to the driver: what was lost, and for how many seconds no records were asked for, because
        those before them are not stored."""
        at = self._consumer.polled_at if self._consumer is not None else time.monotonic()
        return {"losses": list(self.losses), "turned": round(time.monotonic() - at, 1)}

    async def read(
        self, read: Callable[[AsyncConsumer], Awaitable[None]], *, passing: tuple[type[Exception], ...], failure: str
    ) -> None:
        """Runs ``read`` with a consumer of its own, and again after each reassignment and each ``passing`` error, until
        it is cancelled. ``failure`` is what the log says of such an error."""
        while True:
            consumer = self._consumer = AsyncConsumer(self._config)
            try:
                await read(consumer)
            except _ReassignedError:
                log.info("Partitions were reassigned.")
            except (*passing, KafkaException) as error:
                log.warning("%s: %s", failure, error)
            finally:
                await consumer.close()
            await asyncio.sleep(_RESTART_SECONDS)

    def further_reader(self) -> AsyncConsumer:
        """A consumer beside the task's own one: it is no member of the group, has to be assigned its partitions, and
        commits nothing."""
        config = {name: value for name, value in self._config.items() if name != "group.instance.id"}
        return AsyncConsumer(config | {"enable.auto.commit": False})

    async def subscribe(self, consumer: AsyncConsumer, positions: Positions) -> None:
        """Has the group's partitions assigned. What was fetched before might be confused with what is fetched now, so a
        second assignment ends ``read``, which begins with a new consumer."""
        assigned: list[TopicPartition] = []

        def on_assign(confluent: Consumer, parts: list[TopicPartition]) -> None:
            if assigned:
                raise _ReassignedError
            assigned.extend(positions(confluent, parts))
            for part in assigned:
                first, _ = confluent.get_watermark_offsets(part, _WATERMARK_SECONDS)
                if is_loss(part.offset, first):
                    self.losses.add((part.partition, part.offset, first - part.offset))
            confluent.assign(assigned)

        await consumer.subscribe([self.name], on_assign)
