"""Received messages that Kafka still retains."""

import contextlib
from typing import Any

from backend.apps.pipelines.models import Pipeline
from backend.domain import message as names
from backend.domain import routing
from backend.domain.message import Message
from backend.domain.model import UnreadableConfigError
from backend.kafka.client.tail import tail
from backend.settings import platform_settings

_TAIL = 2000
"""Records read per partition, of all pipelines."""


def captured_messages(*, pipeline: Pipeline, limit: int) -> list[Message]:
    """The newest retained messages of the pipeline, newest first. Raises KafkaException."""
    messages: list[Message] = []
    newest = pipeline.versions.first()
    entry = routing.INPUT
    if newest is not None:
        with contextlib.suppress(UnreadableConfigError):
            entry, _ = routing.route(newest.load(), str(pipeline.pk))
    for topic in {routing.INPUT, routing.TRANSFORMER, entry}:
        for record in tail(platform_settings().kafka, topic, _TAIL):
            headers: Any = record.headers() or []
            if dict(headers).get(names.PIPELINE, b"").decode() == str(pipeline.pk):
                messages.append(Message.from_kafka(key=record.key(), value=record.value(), headers=headers))  # type: ignore[arg-type]
    return sorted(messages, key=lambda message: message.id, reverse=True)[:limit]
