"""Publishes versions that need resources in other systems: as a saga, so that none is left half provisioned.

Each step is recorded, retried with back-off, and compensated if a later one fails. Steps must be idempotent: a
worker may die between executing one and recording it.
"""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning, ProvisioningStep, Removal
from backend.apps.pipelines.provisioning import registrations, schema_registry
from backend.apps.pipelines.provisioning.schema_registry import RegistryError
from backend.apps.pipelines.provisioning.steps import STEPS, StepFailedError, topic_delete
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig

_ATTEMPTS = 6


def is_needed(config: PipelineConfig) -> bool:
    """Whether a version needs anything in other systems."""
    return config.stream_processing is not None or any(registrations.registered_uses(config))


def provisioning_start(*, pipeline: Pipeline, version: PipelineVersion, config: PipelineConfig) -> None:
    """The version is published once all steps are done. One at a time: the caller has locked the pipeline."""
    provisioning = Provisioning.objects.create(pipeline=pipeline, version=version)
    steps = [("topic", ""), ("schema", "")] if config.stream_processing is not None else []
    steps += [("register", place) for place in registrations.registrations_claim(pipeline=pipeline, config=config)]
    ProvisioningStep.objects.bulk_create(
        ProvisioningStep(provisioning=provisioning, kind=kind, place=place) for kind, place in steps
    )


Publish = Callable[[Provisioning, PipelineConfig], None]
"""Makes the version of a complete provisioning, which has this configuration, the published one."""


def provisionings_advance(publish: Publish) -> None:
    """Executes one step of each due saga. Several workers may run: rows are claimed with SKIP LOCKED."""
    while True:
        with transaction.atomic():
            due = Provisioning.objects.filter(state=Provisioning.State.PROVISIONING, next_try_at__lte=timezone.now())
            provisioning = (
                due.select_for_update(skip_locked=True, of=("self",))
                .select_related("pipeline__published", "version")
                .first()
            )
            if provisioning is None:
                return
            _advance(provisioning, publish)


def removal_start(pipeline_id: UUID) -> None:
    """Schedules the removal of a deleted pipeline's resources, once no lane holds messages of it."""
    Removal.objects.create(pipeline_id=pipeline_id, next_try_at=registrations.lanes_hold_until())


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
        removal.next_try_at = timezone.now() + registrations.removal_wait(removal.attempts)
        removal.save()
        return
    removal.delete()


def _advance(provisioning: Provisioning, publish: Publish) -> None:
    step = provisioning.steps.filter(state=ProvisioningStep.State.PENDING).first()
    if step is None:
        _complete(provisioning, publish)
        return
    step.attempts += 1
    try:
        step.result = STEPS[step.kind].do(provisioning, step)
        step.state, step.error, step.field = ProvisioningStep.State.DONE, "", ""
    except StepFailedError as error:
        step.error, step.field = str(error), error.field
        if error.final or step.attempts == _ATTEMPTS:
            step.state = ProvisioningStep.State.FAILED
            if STEPS[step.kind].undone_if_failed:
                with contextlib.suppress(StepFailedError):  # the error that is shown is the one that ended it
                    STEPS[step.kind].undo(provisioning, step)
            _compensate(provisioning, step.error)
        else:
            provisioning.next_try_at = timezone.now() + timedelta(seconds=2**step.attempts)
            provisioning.save()
    step.save()


def _complete(provisioning: Provisioning, publish: Publish) -> None:
    try:
        config = provisioning.version.load()
    except UnreadableConfigError as error:  # another release took over meanwhile
        _compensate(provisioning, str(error))
        return
    provisioning.state = Provisioning.State.ACTIVE
    provisioning.save()
    publish(provisioning, config)


def _compensate(provisioning: Provisioning, cause: str) -> None:
    """Undoes what was done, last things first."""
    for done in provisioning.steps.filter(state=ProvisioningStep.State.DONE).reverse():
        try:
            STEPS[done.kind].undo(provisioning, done)
            done.state = ProvisioningStep.State.UNDONE
        except StepFailedError as error:
            done.error = f"It could not be undone: {error}"
        done.save()
    provisioning.state, provisioning.cause = Provisioning.State.FAILED, cause
    provisioning.save()
