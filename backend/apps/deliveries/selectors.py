"""Queries on deliveries."""

from typing import Any

from django.db.models import Count, Min, QuerySet

from backend.apps.deliveries.breakers import ask_breakers, breakers_shown
from backend.apps.deliveries.models import Attempt, DeadLetter, OutputEvent
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import Workspace
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import OutputConfig
from backend.network.redis_client import redis_client
from backend.resilience.scripts import OutputKey

OPEN = (DeadLetter.State.WAITING, DeadLetter.State.REDELIVERING)


def dead_letters_of(workspace: Workspace) -> QuerySet[DeadLetter]:
    return DeadLetter.objects.filter(workspace_id=workspace.pk)


def dead_letter_summary(letters: QuerySet[DeadLetter]) -> list[dict[str, Any]]:
    """Count, oldest and next due time by pipeline, output and reason."""
    groups: Any = (
        letters.values("pipeline_id", "output", "reason")
        .annotate(count=Count("pk"), oldest=Min("first_at"), next_due=Min("due_at"))
        .order_by("-count")
    )
    return list(groups)


def waiting_by_output() -> dict[tuple[Any, str], int]:
    """Open dead letters of the installation by pipeline and output."""
    counted = DeadLetter.objects.filter(state__in=OPEN).values_list("pipeline_id", "output").annotate(n=Count("pk"))
    return {(pipeline_id, output): n for pipeline_id, output, n in counted}


def attempts_of(workspace: Workspace) -> QuerySet[Attempt]:
    return Attempt.objects.filter(workspace_id=workspace.pk)


def events_of(workspace: Workspace) -> QuerySet[OutputEvent]:
    return OutputEvent.objects.filter(workspace_id=workspace.pk)


def output_configs(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The published outputs and external calls; those of the newest version if none was ever published."""
    version = pipeline.published or pipeline.versions.first()
    if version is None:
        return []
    try:
        uses = [placed.use for placed in version.load().uses() if placed.use.breaker_name is not None]
    except UnreadableConfigError:
        return []
    outputs_first = sorted(uses, key=lambda use: not isinstance(use, OutputConfig))
    return [use.model_dump(mode="json") | {"name": use.breaker_name} for use in outputs_first]


def outputs_of(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Each of ``output_configs`` with its state."""
    configs = output_configs(pipeline)
    waiting = dict(
        DeadLetter.objects.filter(pipeline_id=pipeline.pk, state__in=OPEN).values_list("output").annotate(n=Count("pk"))
    )
    with redis_client().pipeline(transaction=False) as batch:
        ask_breakers(batch, [OutputKey(str(pipeline.pk), config["name"]) for config in configs])
        breakers = breakers_shown(batch.execute())
    return [
        {
            "name": config["name"],
            "connector": config["connector"],
            "rate_limit": config.get("rate_limit"),
            "dead_letters": waiting.get(config["name"], 0),
            "breaker": breaker,
        }
        for config, breaker in zip(configs, breakers, strict=True)
    ]
