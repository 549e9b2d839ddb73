"""Puts versions in force that need something in other systems: as a saga, so that nothing is half made.

Each step is recorded, tried again with back-off, and taken back when a later one cannot be made. Steps may be
done twice: a worker may die between doing one and recording it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from backend.apps.pipelines import schema_registry
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning, ProvisioningStep, Removal
from backend.apps.pipelines.schema_registry import RegistryError
from backend.domain import routing
from backend.domain.pipeline import PipelineConfig
from backend.settings import platform_settings

_ATTEMPTS = 6
_KAFKA_SECONDS = 10.0
_LANES_HOLD = timedelta(minutes=5)
"""For so long lanes may still write what they have in hand to a deleted pipeline's topic."""
_LONGEST_WAIT = timedelta(hours=1)


class StepFailedError(Exception):
    """A step that could not be done; the message says why. ``final`` tells that trying again is useless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True)
class Step:
    """``do`` returns what it made, which ``undo`` takes back. Both raise StepFailedError."""

    do: Callable[[Provisioning], dict[str, Any]]
    undo: Callable[[Provisioning, dict[str, Any]], None]


def is_needed(config: PipelineConfig) -> bool:
    """Whether a version needs anything in other systems."""
    return config.stream_processing is not None


def provisioning_start(*, pipeline: Pipeline, version: PipelineVersion) -> None:
    """The version is in force once all is made. One at a time: the caller has locked the pipeline."""
    found = Provisioning.objects.create(pipeline=pipeline, version=version)
    ProvisioningStep.objects.bulk_create(ProvisioningStep(provisioning=found, kind=kind) for kind in STEPS)


def provisionings_advance(put_in_force: Callable[[Provisioning], None]) -> None:
    """One step of each saga that is due. Several workers may do this: rows are claimed with SKIP LOCKED."""
    while True:
        with transaction.atomic():
            due = Provisioning.objects.filter(state=Provisioning.State.PROVISIONING, next_try_at__lte=timezone.now())
            found = due.select_for_update(skip_locked=True, of=("self",)).select_related("pipeline", "version").first()
            if found is None:
                return
            _advance(found, put_in_force)


def removal_start(pipeline_id: UUID) -> None:
    """What a deleted pipeline has elsewhere goes once no lane holds messages of it."""
    Removal.objects.create(pipeline_id=pipeline_id, next_try_at=timezone.now() + _LANES_HOLD)


def removals_advance() -> None:
    """Removes what is due; what cannot be removed yet is tried again, ever more seldom."""
    for pipeline_id in list(Removal.objects.filter(next_try_at__lte=timezone.now()).values_list("pk", flat=True)):
        with transaction.atomic():
            found = Removal.objects.select_for_update(skip_locked=True).filter(pk=pipeline_id).first()
            if found is not None:
                _remove(found)


def _remove(found: Removal) -> None:
    try:
        _delete_topic(str(found.pipeline_id))
        schema_registry.forget(str(found.pipeline_id))
    except (StepFailedError, RegistryError) as error:
        found.attempts += 1
        found.error = str(error)
        found.next_try_at = timezone.now() + min(timedelta(seconds=2 ** min(found.attempts, 12)), _LONGEST_WAIT)
        found.save()
        return
    found.delete()


def _advance(found: Provisioning, put_in_force: Callable[[Provisioning], None]) -> None:
    step = found.steps.filter(state=ProvisioningStep.State.PENDING).first()
    if step is None:
        found.state = Provisioning.State.ACTIVE
        found.save()
        put_in_force(found)
        return
    step.attempts += 1
    try:
        step.result, step.state, step.error = STEPS[step.kind].do(found), ProvisioningStep.State.DONE, ""
    except StepFailedError as error:
        step.error = str(error)
        if error.final or step.attempts == _ATTEMPTS:
            step.state = ProvisioningStep.State.FAILED
            _compensate(found, step.error)
        else:
            found.next_try_at = timezone.now() + timedelta(seconds=2**step.attempts)
            found.save()
    step.save()


def _compensate(found: Provisioning, cause: str) -> None:
    for done in found.steps.filter(state=ProvisioningStep.State.DONE).reverse():
        try:
            STEPS[done.kind].undo(found, done.result)
            done.state = ProvisioningStep.State.UNDONE
        except StepFailedError as error:
            done.error = f"It could not be taken back: {error}"
        done.save()
    found.state, found.cause = Provisioning.State.FAILED, cause
    found.save()


# -- steps ---------------------------------------------------------------------


def _create_topic(found: Provisioning) -> dict[str, Any]:
    console = settings.CONSOLE
    topic = NewTopic(
        routing.processing_source(str(found.pipeline_id)),
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
        raise StepFailedError(f"Kafka could not make the topic: {error.args[0].str()}.") from None
    return {"created": True}


def _undo_topic(found: Provisioning, result: dict[str, Any]) -> None:
    if result["created"]:
        _delete_topic(str(found.pipeline_id))


def _delete_topic(pipeline_id: str) -> None:
    topic = routing.processing_source(pipeline_id)
    try:
        next(iter(_admin().delete_topics([topic], request_timeout=_KAFKA_SECONDS).values())).result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise StepFailedError(f"Kafka could not delete the topic: {error.args[0].str()}.") from None


def _register_schema(found: Provisioning) -> dict[str, Any]:
    stage = found.version.load().stream_processing
    assert stage is not None
    try:
        schema_id, added = schema_registry.register(str(found.pipeline_id), stage.avro_schema)
    except RegistryError as error:
        raise StepFailedError(str(error), final=error.final) from None
    found.version.schema_id = schema_id
    found.version.save(update_fields=["schema_id"])
    return {"schema_id": schema_id, "added_version": added}


def _undo_schema(found: Provisioning, result: dict[str, Any]) -> None:
    if result["added_version"] is None:
        return
    try:
        schema_registry.unregister(str(found.pipeline_id), result["added_version"])
    except RegistryError as error:
        raise StepFailedError(str(error)) from None


@lru_cache  # a client that is let go gives up what it was asked
def _admin() -> AdminClient:
    return AdminClient({"bootstrap.servers": platform_settings().kafka_bootstrap_servers})


STEPS = {"topic": Step(_create_topic, _undo_topic), "schema": Step(_register_schema, _undo_schema)}
"""In the order in which they are made."""
