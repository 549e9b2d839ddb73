"""The resources that a version may need in other systems: how each is created and removed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from django.conf import settings

from backend.apps.pipelines.models import Provisioning, ProvisioningStep
from backend.apps.pipelines.provisioning import registrations, schema_registry
from backend.apps.pipelines.provisioning.registrations import RegistrationFailedError
from backend.apps.pipelines.provisioning.schema_registry import RegistryError
from backend.domain import routing
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig
from backend.kafka.client.topics import own_topic, topic_create
from backend.settings import platform_settings

_KAFKA_SECONDS = 10.0


class StepFailedError(Exception):
    """A step that failed; the message says why. ``final`` means a retry is useless; ``field`` is the pipeline's field
    that is to blame, if one is."""

    def __init__(self, message: str, *, final: bool = False, field: str = "") -> None:
        super().__init__(message)
        self.final = final
        self.field = field


@dataclass(frozen=True)
class Step:
    """``do`` returns what it created, which ``undo`` removes. Both raise StepFailedError.

    A step that may have created something before it failed is undone in that case, too.
    """

    do: Callable[[Provisioning, ProvisioningStep], dict[str, Any]]
    undo: Callable[[Provisioning, ProvisioningStep], None]
    undone_if_failed: bool = False


def _config(provisioning: Provisioning) -> PipelineConfig:
    """Raises StepFailedError when another release stored it, so that it does not hold up other pipelines."""
    try:
        return provisioning.version.load()
    except UnreadableConfigError as error:
        raise StepFailedError(str(error), final=True) from None


def _create_topic(provisioning: Provisioning, _: ProvisioningStep) -> dict[str, Any]:
    topic = own_topic(routing.processing_source(str(provisioning.pipeline_id)), settings.CONSOLE)
    try:
        return {"created": topic_create(_admin(), topic, _KAFKA_SECONDS)}
    except KafkaException as error:
        raise StepFailedError(f"Kafka could not create the topic: {error.args[0].str()}.") from None


def _undo_topic(provisioning: Provisioning, step: ProvisioningStep) -> None:
    if step.result["created"]:
        topic_delete(str(provisioning.pipeline_id))


def topic_delete(pipeline_id: str) -> None:
    topic = routing.processing_source(pipeline_id)
    try:
        next(iter(_admin().delete_topics([topic], request_timeout=_KAFKA_SECONDS).values())).result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise StepFailedError(f"Kafka could not delete the topic: {error.args[0].str()}.") from None


def _register_schema(provisioning: Provisioning, _: ProvisioningStep) -> dict[str, Any]:
    stage = _config(provisioning).stream_processing
    assert stage is not None
    try:
        schema_id, added = schema_registry.register(str(provisioning.pipeline_id), stage.avro_schema)
    except RegistryError as error:
        raise StepFailedError(str(error), final=error.final) from None
    provisioning.version.schema_id = schema_id
    provisioning.version.save(update_fields=["schema_id"])
    return {"schema_id": schema_id, "added_version": added}


def _undo_schema(provisioning: Provisioning, step: ProvisioningStep) -> None:
    if step.result["added_version"] is None:
        return
    try:
        schema_registry.unregister(str(provisioning.pipeline_id), step.result["added_version"])
    except RegistryError as error:
        raise StepFailedError(str(error)) from None


def _register_use(provisioning: Provisioning, step: ProvisioningStep) -> dict[str, Any]:
    config = _config(provisioning)
    try:
        return registrations.registration_make(pipeline_id=provisioning.pipeline_id, config=config, place=step.place)
    except RegistrationFailedError as error:
        raise StepFailedError(str(error), final=error.final, field=error.field) from None


def _undo_use(provisioning: Provisioning, step: ProvisioningStep) -> None:
    try:
        registrations.registration_undo(pipeline=provisioning.pipeline, place=step.place)
    except RegistrationFailedError as error:
        raise StepFailedError(str(error)) from None


@lru_cache  # a client that is garbage-collected cancels its requests
def _admin() -> AdminClient:
    return AdminClient(platform_settings().kafka.client())


STEPS = {
    "topic": Step(_create_topic, _undo_topic),
    "schema": Step(_register_schema, _undo_schema),
    "register": Step(_register_use, _undo_use, undone_if_failed=True),
}
"""By kind."""
