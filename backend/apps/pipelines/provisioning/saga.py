"""Publishes versions that need resources in other systems: as a saga, so that none is left half provisioned.

Each step is recorded, retried with back-off, and compensated if a later one fails. Steps must be idempotent: a
worker may die between executing one and recording it.
"""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning, ProvisioningStep, Removal
from backend.apps.pipelines.provisioning import schema_registry
from backend.apps.pipelines.provisioning.schema_registry import RegistryError
from backend.apps.pipelines.provisioning.steps import STEPS, StepFailedError, topic_delete
from backend.domain.pipeline import PipelineConfig

_ATTEMPTS = 6
_LANES_HOLD = timedelta(minutes=5)
"""How long lanes may still write messages in flight to the topic of a deleted pipeline."""
_LONGEST_WAIT = timedelta(hours=1)


def is_needed(config: PipelineConfig) -> bool:
    """Whether a version needs anything in other systems."""
    return config.stream_processing is not None


def provisioning_start(*, pipeline: Pipeline, version: PipelineVersion) -> None:
    """The version is published once all steps are done. One at a time: the caller has locked the pipeline."""
    provisioning = Provisioning.objects.create(pipeline=pipeline, version=version)
    ProvisioningStep.objects.bulk_create(ProvisioningStep(provisioning=provisioning, kind=kind) for kind in STEPS)


def provisionings_advance(publish: Callable[[Provisioning], None]) -> None:
    """Executes one step of each due saga. Several workers may run: rows are claimed with SKIP LOCKED."""
    while True:
        with transaction.atomic():
            due = Provisioning.objects.filter(state=Provisioning.State.PROVISIONING, next_try_at__lte=timezone.now())
            provisioning = (
                due.select_for_update(skip_locked=True, of=("self",)).select_related("pipeline", "version").first()
            )
            if provisioning is None:
                return
            _advance(provisioning, publish)


def removal_start(pipeline_id: UUID) -> None:
    """Schedules the removal of a deleted pipeline's resources, once no lane holds messages of it."""
    Removal.objects.create(pipeline_id=pipeline_id, next_try_at=timezone.now() + _LANES_HOLD)


def removals_advance() -> None:
    """Removes what is due; failures are retried with exponential back-off."""
    for pipeline_id in list(Removal.objects.filter(next_try_at__lte=timezone.now()).values_list("pk", flat=True)):
        with transaction.atomic():
            removal = Removal.objects.select_for_update(skip_locked=True).filter(pk=pipeline_id).first()
            if removal is not None:
                _remove(removal)


def _remove(removal: Removal) -> None:
    try:
        topic_delete(str(removal.pipeline_id))
        schema_registry.delete_subject(str(removal.pipeline_id))
    except (StepFailedError, RegistryError) as error:
        removal.attempts += 1
        removal.error = str(error)
        removal.next_try_at = timezone.now() + min(timedelta(seconds=2 ** min(removal.attempts, 12)), _LONGEST_WAIT)
        removal.save()
        return
    removal.delete()


def _advance(provisioning: Provisioning, publish: Callable[[Provisioning], None]) -> None:
    step = provisioning.steps.filter(state=ProvisioningStep.State.PENDING).first()
    if step is None:
        provisioning.state = Provisioning.State.ACTIVE
        provisioning.save()
        publish(provisioning)
        return
    step.attempts += 1
    try:
        step.result, step.state, step.error = STEPS[step.kind].do(provisioning), ProvisioningStep.State.DONE, ""
    except StepFailedError as error:
        step.error = str(error)
        if error.final or step.attempts == _ATTEMPTS:
            step.state = ProvisioningStep.State.FAILED
            _compensate(provisioning, step.error)
        else:
            provisioning.next_try_at = timezone.now() + timedelta(seconds=2**step.attempts)
            provisioning.save()
    step.save()


def _compensate(provisioning: Provisioning, cause: str) -> None:
    for done in provisioning.steps.filter(state=ProvisioningStep.State.DONE).reverse():
        try:
            STEPS[done.kind].undo(provisioning, done.result)
            done.state = ProvisioningStep.State.UNDONE
        except StepFailedError as error:
            done.error = f"It could not be undone: {error}"
        done.save()
    provisioning.state, provisioning.cause = Provisioning.State.FAILED, cause
    provisioning.save()
