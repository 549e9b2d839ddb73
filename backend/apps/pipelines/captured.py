"""Received messages that Kafka still retains, and what was made of them."""

import contextlib
from collections.abc import Iterator
from typing import Any

from backend.apps.pipelines.models import Pipeline
from backend.domain import limits, routing
from backend.domain import message as names
from backend.domain.message import Message, child_message_id
from backend.domain.model import UnreadableConfigError
from backend.kafka.client.tail import tail
from backend.settings import platform_settings

_TAIL = 2000
"""Records read per partition, of all pipelines."""


def captured_messages(*, pipeline: Pipeline, limit: int) -> list[Message]:
    """The newest retained messages of the pipeline, newest first. Raises KafkaException."""
    return _received(pipeline)[:limit]


def captured_message(*, pipeline: Pipeline, message_id: str) -> Message | None:
    """One of them, if Kafka retains it. Raises KafkaException."""
    return next((message for message in _received(pipeline) if message.id == message_id), None)


def adapted_messages(*, pipeline: Pipeline, received: Message) -> list[Message]:
    """What was handed to the pipeline's outputs of a message, as far as Kafka retains it: the message itself or those
    that were made of it, in their order. Raises KafkaException."""
    handed = {message.id: message for message in _of(pipeline, routing.ADAPTED)}
    if received.id in handed:
        return [handed[received.id]]
    made = (child_message_id(received.id, number) for number in range(limits.FAN_OUT_MESSAGES)) if handed else ()
    return [handed[one] for one in made if one in handed]


def _received(pipeline: Pipeline) -> list[Message]:
    newest = pipeline.versions.first()
    entry = routing.INPUT
    if newest is not None:
        with contextlib.suppress(UnreadableConfigError):
            entry, _ = routing.route(newest.load(), str(pipeline.pk))
    topics = {routing.INPUT, routing.TRANSFORMER, entry}
    messages = [message for topic in topics for message in _of(pipeline, topic)]
    return sorted(messages, key=lambda message: message.id, reverse=True)


def _of(pipeline: Pipeline, topic: str) -> Iterator[Message]:
    for record in tail(platform_settings().kafka, topic, _TAIL):
        headers: Any = record.headers() or []
        if dict(headers).get(names.PIPELINE, b"").decode() == str(pipeline.pk):
            yield Message.from_kafka(key=record.key(), value=record.value(), headers=headers)  # type: ignore[arg-type]
