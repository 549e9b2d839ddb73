"""A message that a person sends from the console, to see it go through a pipeline."""

from asgiref.sync import async_to_sync
from django.conf import settings

from backend.apps.audit.services import audit_record
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import is_posted, snapshot_of
from backend.apps.workspaces.models import User
from backend.domain import json, limits
from backend.domain.errors import ConfigError, ConflictError
from backend.domain.message import Message, utc_now
from backend.domain.message_maker import MessageMaker
from backend.domain.model import UnreadableConfigError
from backend.kafka.client.producer import AsyncProducer
from backend.settings import platform_settings
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

_JSON = "application/json"
_ACKNOWLEDGED_MS = 10_000


def message_send(*, pipeline: Pipeline, actor: User, body: str) -> str:
    """Puts one JSON message into the published version, as the HTTP input does, and returns its id.

    It is delivered and counted like any other. Raises ConflictError when the pipeline accepts no posted messages now,
    ConfigError for a body that is not JSON or too large, and KafkaException.
    """
    maker = _maker(pipeline)
    try:
        message = maker.make(body.encode(), _JSON, received_at=utc_now())
    except json.InvalidJsonError as error:
        raise ConfigError({"body": [f"The message is not JSON: {error}"]}) from None
    except limits.TooLargeError as error:
        raise ConfigError({"body": [str(error)]}) from None
    async_to_sync(_produce)(maker.topic, message)
    audit_record(
        action="pipeline.send",
        actor=actor,
        workspace=pipeline.workspace,
        target=pipeline,
        after={"message": message.id},
    )
    return message.id


def _maker(pipeline: Pipeline) -> MessageMaker:
    published = pipeline.published
    if published is None:
        raise ConflictError("The pipeline is not published: publish it, then send a message.")
    if not is_posted(published.config):
        raise ConflictError("The input of this pipeline reads from another system: send the message there.")
    if pipeline.paused:
        raise ConflictError("The pipeline is paused: resume it, then send a message.")
    try:
        return MessageMaker(snapshot_of(pipeline, published))
    except UnreadableConfigError as error:
        raise ConflictError(str(error)) from None


async def _produce(topic: str, message: Message) -> None:
    """Waits until all in-sync replicas have stored it. Raises KafkaException."""
    producer = AsyncProducer({**platform_settings().kafka.client(), "delivery.timeout.ms": _ACKNOWLEDGED_MS})
    recorder = Recorder(settings.REDIS_URL)
    try:
        await producer.send(topic, key=message.key, value=message.body, headers=message.headers())
        recorder.count(message.pipeline_id, events.ACCEPTED)
    finally:
        await producer.close()
        await recorder.close()
