"""Queries on deliveries."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Count, F, Func, Min, Q, QuerySet

from backend.apps.deliveries.breakers import ask_breakers, ask_states, breakers_shown, is_closed
from backend.apps.deliveries.models import Attempt, DeadLetter, OutputEvent
from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.apps.workspaces.models import Workspace
from backend.domain.breaker import BreakerState
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import OutputConfig
from backend.domain.rate_limit import RateLimitPolicy
from backend.domain.reasons import Reason
from backend.network.redis_client import redis_client
from backend.resilience.scripts import OutputKey

_HAS_RATE_LIMIT = Func(
    F("published__config"),
    template="jsonb_path_exists(%(expressions)s, '$.**.rate_limit ? (@ != null)')",
    output_field=BooleanField(),
)
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


def letters_by_reason(pipeline_ids: Iterable[UUID]) -> dict[UUID, list[dict[str, Any]]]:
    """Open dead letters by pipeline and reason, most frequent first: ``reason``, ``count`` and ``oldest``."""
    letters = DeadLetter.objects.filter(pipeline_id__in=pipeline_ids, state__in=OPEN)
    groups: Any = letters.values("pipeline_id", "reason").annotate(count=Count("pk"), oldest=Min("first_at"))
    by_pipeline: dict[UUID, list[dict[str, Any]]] = {}
    for group in groups.order_by("-count"):
        by_pipeline.setdefault(group.pop("pipeline_id"), []).append(group)
    return by_pipeline


def breakers_not_closed(names: Mapping[UUID, Iterable[str]]) -> dict[UUID, list[dict[str, Any]]]:
    """Those of these outputs and external calls, by pipeline, whose breakers are open or half-open: ``output`` and
    ``breaker``. Of the others, which are nearly all and are looked at every few seconds, only the state is read."""
    keys = [OutputKey(str(pipeline_id), name) for pipeline_id, outputs in names.items() for name in outputs]
    with redis_client().pipeline(transaction=False) as batch:
        ask_states(batch, keys)
        conspicuous = [key for key, state in zip(keys, batch.execute(), strict=True) if not is_closed(state)]
        ask_breakers(batch, conspicuous)
        shown = breakers_shown(batch.execute())
    by_pipeline: dict[UUID, list[dict[str, Any]]] = {}
    for key, breaker in zip(conspicuous, shown, strict=True):
        if breaker["state"] != BreakerState.CLOSED:
            by_pipeline.setdefault(UUID(key.pipeline_id), []).append({"output": key.output, "breaker": breaker})
    return by_pipeline


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


def limits_of(workspace: Workspace, pipelines: Iterable[str]) -> dict[OutputKey, RateLimitPolicy | None]:
    """The published outputs and external calls of these pipelines of the workspace, each with its rate limit."""
    published = Pipeline.objects.filter(workspace=workspace, pk__in=pipelines).exclude(published=None)
    return {
        OutputKey(str(pipeline_id), name): rate_limits_of(version_id).get(name)
        for pipeline_id, version_id, names in published.values_list("pk", "published", "published__breakers")
        for name in names
    }


def limited_pipelines(workspace: Workspace) -> list[str]:
    """The published pipelines of the workspace with an output or external call that has a rate limit."""
    published = Pipeline.objects.filter(workspace=workspace).exclude(published=None)
    return [str(pk) for pk in published.filter(_HAS_RATE_LIMIT).values_list("pk", flat=True)]


@lru_cache(maxsize=4096)
def rate_limits_of(version_id: int) -> dict[str, RateLimitPolicy]:
    """The rate limits of a version, which is never changed, by the names of outputs and external calls; none if it
    cannot be read."""
    try:
        uses = [placed.use for placed in PipelineVersion.objects.get(pk=version_id).load().uses()]
    except (UnreadableConfigError, PipelineVersion.DoesNotExist):
        return {}
    limits = {use.breaker_name: getattr(use, "rate_limit", None) for use in uses}
    return {name: limit for name, limit in limits.items() if name is not None and limit is not None}


def open_letters_of(pipelines: Iterable[str]) -> dict[OutputKey, dict[str, int]]:
    """How many dead letters each output has (``dead_letters``), and how many of these wait for its rate limit
    (``limited``); outputs without any are left out."""
    letters = DeadLetter.objects.filter(pipeline_id__in=pipelines, state__in=OPEN)
    limited = Count("pk", filter=Q(reason=Reason.RATE_LIMITED))
    groups: Any = letters.values("pipeline_id", "output").annotate(dead_letters=Count("pk"), limited=limited)
    return {OutputKey(str(group.pop("pipeline_id")), group.pop("output")): group for group in groups}


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
