"""What the syndicating lane has read, and is done with."""

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaRecord

from backend.apps.pipelines.models import PipelineVersion
from backend.domain import routing
from backend.domain.message import Message
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig
from backend.domain.stages import SYNDICATING
from backend.kafka.client.positions import Part, Positions
from backend.settings import platform_settings

_SECONDS = 30.0
_BATCH = 2000


class LaneMessage(NamedTuple):
    """A message, and the outputs that it goes to; none are known when its version no longer exists,
    or was stored by another release."""

    position: str
    pipeline_id: UUID
    id: str
    outputs: tuple[str, ...] | None


class LaneInput:
    """Reads the topic of the syndicating lane. Its methods raise KafkaException."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._consumer = Consumer(
            {
                **platform_settings().kafka.client(),
                "group.id": "headrace-usage-reconcile",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 16 * 1024,
            }
        )

    def done(self) -> dict[Part, int]:
        """The offsets before which the lane is done with everything."""
        return self._positions.committed(SYNDICATING.group, self._positions.ends([routing.ADAPTED]))

    def messages(self, since: datetime, until: datetime, done: dict[Part, int]) -> Iterator[LaneMessage]:
        """The messages before ``done`` from the first one of the time ``since`` up to the first one of ``until``, one
        partition after the other; records that are no messages, which the lane made dead letters, are left out."""
        begins, ends = self._offsets_at(since, done), self._offsets_at(until, done)
        for (topic, partition), begin in begins.items():
            if begin < ends[topic, partition]:
                self._consumer.assign([TopicPartition(topic, partition, begin)])
                for record in self._until(ends[topic, partition]):
                    message = _message(record)
                    if message is not None:
                        yield message

    def close(self) -> None:
        self._consumer.close()

    def _offsets_at(self, moment: datetime, done: dict[Part, int]) -> dict[Part, int]:
        """The first offset of each partition whose record is as new, at most ``done``."""
        milliseconds = int(moment.timestamp() * 1000)
        if not done:
            return {}
        offsets = self._consumer.offsets_for_times([TopicPartition(*part, milliseconds) for part in done], _SECONDS)
        firsts = {(offset.topic, offset.partition): offset.offset for offset in offsets}
        return {part: min(firsts[part], end) if firsts[part] >= 0 else end for part, end in done.items()}

    def _until(self, end: int) -> Iterator[KafkaRecord]:
        while True:
            # Waiting for a whole batch would take until the time is over at the end of each partition.
            first = self._consumer.poll(_SECONDS)
            if first is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "The topic could not be read in time."))
            for record in [first, *self._consumer.consume(_BATCH, 0)]:
                error = record.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is not None or (record.offset() or 0) >= end:
                    return
                yield record


def _message(record: KafkaRecord) -> LaneMessage | None:
    try:
        message = Message.from_kafka(key=record.key(), value=b"", headers=record.headers() or [])  # type: ignore[arg-type]
        pipeline_id = UUID(message.pipeline_id)
    except ValueError:  # MalformedMessageError as well
        return None
    plain, redelivery = message.split_redelivery()
    outputs = _outputs(pipeline_id, plain.version)
    if outputs is not None and redelivery is not None and redelivery.output:
        outputs = tuple(output for output in outputs if output == redelivery.output)
    return LaneMessage(f"{record.topic()}[{record.partition()}]@{record.offset()}", pipeline_id, plain.id, outputs)


@lru_cache(maxsize=10_000)
def _outputs(pipeline_id: UUID, version: int) -> tuple[str, ...] | None:
    """None when it is not known: the version was deleted, or stored by another release."""
    versions = PipelineVersion.objects.filter(pipeline_id=pipeline_id, number=version)
    try:
        upgraded = [PipelineConfig.upgraded(*stored) for stored in versions.values_list("config", "schema_version")]
    except UnreadableConfigError:
        return None
    return tuple(output["name"] for output in upgraded[0].get("outputs", ())) if upgraded else None
