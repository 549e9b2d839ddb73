"""The resources that a version may need in other systems: how each is created and removed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.conf import settings

from backend.apps.pipelines.models import Provisioning
from backend.apps.pipelines.provisioning import schema_registry
from backend.apps.pipelines.provisioning.schema_registry import RegistryError
from backend.domain import routing
from backend.settings import platform_settings

_KAFKA_SECONDS = 10.0


class StepFailedError(Exception):
    """A step that failed; the message says why. ``final`` means a retry is useless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True)
class Step:
    """``do`` returns what it created, which ``undo`` removes. Both raise StepFailedError."""

    do: Callable[[Provisioning], dict[str, Any]]
    undo: Callable[[Provisioning, dict[str, Any]], None]


def _create_topic(provisioning: Provisioning) -> dict[str, Any]:
    console = settings.CONSOLE
    topic = NewTopic(
        routing.processing_source(str(provisioning.pipeline_id)),
        num_partitions=console.topic_partitions,
        replication_factor=console.topic_replication,
        config={
            "retention.ms": str(console.topic_retention_hours * 3600 * 1000),
            "max.message.bytes": "4194304",
        },
    )
    try:
        next(iter(_admin().create_topics([topic], request_timeout=_KAFKA_SECONDS).values())).result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return {"created": False}
        raise StepFailedError(f"Kafka could not create the topic: {error.args[0].str()}.") from None
    return {"created": True}


def _undo_topic(provisioning: Provisioning, result: dict[str, Any]) -> None:
    if result["created"]:
        topic_delete(str(provisioning.pipeline_id))


def topic_delete(pipeline_id: str) -> None:
    topic = routing.processing_source(pipeline_id)
    try:
        next(iter(_admin().delete_topics([topic], request_timeout=_KAFKA_SECONDS).values())).result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise StepFailedError(f"Kafka could not delete the topic: {error.args[0].str()}.") from None


def _register_schema(provisioning: Provisioning) -> dict[str, Any]:
    stage = provisioning.version.load().stream_processing
    assert stage is not None
    try:
        schema_id, added = schema_registry.register(str(provisioning.pipeline_id), stage.avro_schema)
    except RegistryError as error:
        raise StepFailedError(str(error), final=error.final) from None
    provisioning.version.schema_id = schema_id
    provisioning.version.save(update_fields=["schema_id"])
    return {"schema_id": schema_id, "added_version": added}


def _undo_schema(provisioning: Provisioning, result: dict[str, Any]) -> None:
    if result["added_version"] is None:
        return
    try:
        schema_registry.unregister(str(provisioning.pipeline_id), result["added_version"])
    except RegistryError as error:
        raise StepFailedError(str(error)) from None


@lru_cache  # a client that is garbage-collected cancels its requests
def _admin() -> AdminClient:
    return AdminClient({"bootstrap.servers": platform_settings().kafka_bootstrap_servers})


STEPS = {"topic": Step(_create_topic, _undo_topic), "schema": Step(_register_schema, _undo_schema)}
"""In the order of execution."""
