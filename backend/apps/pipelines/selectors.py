"""Queries on pipelines."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import msgspec
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, F, Func, OuterRef, QuerySet, Subquery, TextField, UUIDField
from django.http import Http404

from backend.apps.connectors.models import Connector
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Registration
from backend.apps.workspaces.models import Workspace
from backend.domain import json
from backend.domain.diff import changes
from backend.domain.filters.conditions import Condition
from backend.domain.idle_cache import IdleCache
from backend.domain.inputs.base import inputs
from backend.domain.inputs.filter import FilterInput
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import DEFAULT_INPUT, PipelineConfig, PipelineSnapshot
from backend.domain.registry import UnknownComponentError
from backend.domain.uses import OptionVersions

_ROWS = 5000
_FAILURE_KEPT_SECONDS = 3600.0
_version_failures: IdleCache[int, str] = IdleCache(_FAILURE_KEPT_SECONDS)
"""By the versions' ids; empty for those that can be read."""
# Only the console uses examples; the data plane need not hold them.
_WITHOUT_EXAMPLES = Func(
    F("published__config"), template="(%(expressions)s - 'examples')::text", output_field=TextField()
)


def pipelines_of(workspace: Workspace) -> QuerySet[Pipeline]:
    """With ``latest_number``, ``latest_config`` and the versions ``latest_schema_version`` and
    ``latest_option_versions`` of its form, those of the newest version, and with ``warnings`` about what was registered
    in other systems."""
    endangered = Registration.objects.filter(pipeline_id=OuterRef("pk")).exclude(warning="")
    newest = PipelineVersion.objects.filter(pipeline=OuterRef("pk")).order_by("-number")
    return (
        Pipeline.objects.filter(workspace=workspace)
        .select_related("published", "workspace")
        .prefetch_related("provisionings__version", "provisionings__steps")
        .annotate(
            warnings=ArraySubquery(endangered.order_by("pk").values("warning")),
            latest_number=Subquery(newest.values("number")[:1]),
            latest_config=Subquery(newest.values("config")[:1]),
            latest_schema_version=Subquery(newest.values("schema_version")[:1]),
            latest_option_versions=Subquery(newest.values("option_versions")[:1]),
        )
    )


def pipelines_using(connector: Connector) -> QuerySet[Pipeline]:
    """Pipelines any version of which uses the connector."""
    versions = PipelineVersion.objects.filter(connectors__contains=[connector.pk])
    return Pipeline.objects.filter(pk__in=versions.values("pipeline"))


@dataclass
class Leftover:
    """A deleted pipeline's registration, by the name under which a connector's dependents are shown."""

    pk: UUID
    name: str


def leftovers_in(connector: Connector) -> list[Leftover]:
    """What is still to be removed from the connector's system."""
    leaving = Registration.objects.filter(connector=connector).exclude(remove_at=None)
    return [
        Leftover(
            registration.pk, f"{registration.name}, which is being removed from it ({registration.error or 'soon'})"
        )
        for registration in leaving
    ]


def published_revisions(pipeline_ids: Iterable[str] | None = None) -> dict[str, Any]:
    """By id, for all published pipelines or those of these: equal as long as the snapshot of the pipeline is the same,
    since versions are immutable."""
    pipelines = Pipeline.objects.exclude(published=None)
    if pipeline_ids is not None:
        pipelines = pipelines.filter(pk__in=pipeline_ids)
    rows = pipelines.values_list("pk", "published_id", "paused", "published__schema_id")
    return {str(pk): revision for pk, *revision in rows.iterator(_ROWS)}


def published_entries(pipeline_ids: Iterable[str]) -> Iterator[tuple[UUID, bytes]]:
    """The snapshots of those that are published, as JSON. They are neither validated nor upgraded, which takes too long
    for thousands; their reader does both."""
    rows = Pipeline.objects.filter(pk__in=pipeline_ids).exclude(published=None)
    for pk, workspace_id, paused, number, config, schema_version, option_versions, schema_id in rows.values_list(
        "pk",
        "workspace_id",
        "paused",
        "published__number",
        _WITHOUT_EXAMPLES,
        "published__schema_version",
        "published__option_versions",
        "published__schema_id",
    ):
        yield (
            pk,
            json.dumps(
                {
                    "id": pk,
                    "workspace_id": workspace_id,
                    "version": number,
                    "accepting": not paused,
                    "config": msgspec.Raw(config.encode()),
                    "schema_version": schema_version,
                    "option_versions": option_versions,
                    "schema_id": schema_id,
                }
            ),
        )


def published_snapshots(pipeline_ids: Iterable[str]) -> tuple[list[PipelineSnapshot], list[tuple[Pipeline, str]]]:
    """Those of the pipelines that are published, and those whose configuration cannot be read, with the reason."""
    snapshots: list[PipelineSnapshot] = []
    unreadable: list[tuple[Pipeline, str]] = []
    published = Pipeline.objects.filter(pk__in=pipeline_ids).exclude(published=None)
    for pipeline in published.select_related("published"):
        assert pipeline.published is not None
        try:
            snapshots.append(snapshot_of(pipeline, pipeline.published))
        except UnreadableConfigError as error:
            unreadable.append((pipeline, str(error)))
    return snapshots, unreadable


def published_outputs(pipelines: QuerySet[Pipeline]) -> dict[str, dict[str, str]]:
    """By pipeline, the connector of each output of its published version, as stored: neither validated nor upgraded,
    which takes too long for thousands."""
    rows = pipelines.exclude(published=None).values_list("pk", "published__config__outputs")
    return {str(pk): _connectors_by_name(outputs) for pk, outputs in rows}


def _connectors_by_name(outputs: Any) -> dict[str, str]:
    """Of outputs that may be of a configuration that cannot be read."""
    known = [output for output in outputs if isinstance(output, dict)] if isinstance(outputs, list) else []
    return {output["name"]: output["connector"] for output in known if {"name", "connector"} <= output.keys()}


def published_breakers(workspace: Workspace) -> dict[str, list[str]]:
    """By pipeline of the workspace, the outputs and external calls of its published version."""
    published = Pipeline.objects.filter(workspace=workspace).exclude(published=None)
    return {str(pk): names for pk, names in published.values_list("pk", "published__breakers")}


def pipelines_by_connector(workspace: Workspace) -> dict[UUID, int]:
    """How many pipelines ``pipelines_using`` has for each connector of the workspace; unused ones are left out."""
    versions = PipelineVersion.objects.filter(pipeline__workspace=workspace)
    used = versions.annotate(connector=Func(F("connectors"), function="unnest", output_field=UUIDField()))
    return dict(used.values("connector").annotate(n=Count("pipeline", distinct=True)).values_list("connector", "n"))


def published_filters(pipeline_ids: Iterable[str]) -> list[tuple[PipelineSnapshot, Condition]]:
    """The filter subscriptions among the pipelines, except those of paused ones, with their conditions."""
    subscribed = Pipeline.objects.filter(pk__in=pipeline_ids, paused=False, published__config__input__type="filter")
    snapshots, _ = published_snapshots([str(pk) for pk in subscribed.values_list("pk", flat=True)])
    return [(s, s.config.input.condition) for s in snapshots if isinstance(s.config.input, FilterInput)]


def snapshot_of(pipeline: Pipeline, version: PipelineVersion) -> PipelineSnapshot:
    """Raises UnreadableConfigError."""
    return PipelineSnapshot(
        id=pipeline.id,
        workspace_id=pipeline.workspace_id,
        version=version.number,
        accepting=not pipeline.paused,
        # Only the console uses examples; the data plane need not hold them.
        config=PipelineConfig.load_stored(
            {**version.config, "examples": []}, version.schema_version, version.option_versions
        ),
        schema_id=version.schema_id,
    )


def snapshot_by_number(pipeline_id: UUID, number: int) -> PipelineSnapshot | None:
    """A version, or with number 0 the published one. Raises UnreadableConfigError."""
    pipeline = Pipeline.objects.select_related("published").filter(pk=pipeline_id).first()
    if pipeline is None:
        return None
    version = pipeline.versions.filter(number=number).first() if number else pipeline.published
    return snapshot_of(pipeline, version) if version is not None else None


def stages_needed() -> dict[str, int]:
    """How many published pipelines need each stage; those that none needs are left out. Paused ones count, since what
    they have accepted is still handled, and they may be resumed at any moment."""
    published = Pipeline.objects.exclude(published=None)
    stages = published.annotate(stage=Func(F("published__stages"), function="unnest", output_field=TextField()))
    return dict(stages.values("stage").annotate(pipelines=Count("pk")).values_list("stage", "pipelines"))


def version_changes(*, pipeline: Pipeline, number: int, since: int | None) -> list[dict[str, Any]]:
    """The differences to another version, or to the previous one."""
    return [asdict(change) for change in changes(_config(pipeline, since or number - 1), _config(pipeline, number))]


def shown_config(config: dict[str, Any], schema_version: int, option_versions: OptionVersions) -> dict[str, Any]:
    """Upgraded to the current schema; as stored if it can no longer be upgraded."""
    try:
        return PipelineConfig.upgraded(config, schema_version, option_versions)
    except UnreadableConfigError:
        return config


def latest_config(pipeline: Pipeline) -> dict[str, Any]:
    """The newest version's configuration; the pipeline must come from ``pipelines_of``."""
    newest: Any = pipeline
    return shown_config(newest.latest_config, newest.latest_schema_version, newest.latest_option_versions)


def is_posted(config: dict[str, Any]) -> bool:
    """Whether messages are posted to a pipeline with that configuration, which may be one that cannot be read."""
    source = config.get("input", {})
    type = source.get("type", DEFAULT_INPUT.type) if isinstance(source, dict) else None
    try:
        return isinstance(type, str) and inputs.get(type).posted
    except UnknownComponentError:
        return False


def pipeline_failure(pipeline: Pipeline) -> str:
    """Why the published version cannot run, in a sentence; empty when it can."""
    if pipeline.failure or pipeline.published is None:
        return pipeline.failure
    return unreadable(pipeline.published.load)


def version_failures(version_ids: Iterable[int]) -> dict[int, str]:
    """Why versions cannot be read, in a sentence, by their ids; those that can are left out. Each is loaded once, since
    versions are immutable."""
    failures = {pk: _version_failures.get(pk) for pk in version_ids}
    unknown = [pk for pk, failure in failures.items() if failure is None]
    for version in PipelineVersion.objects.filter(pk__in=unknown).iterator(_ROWS):
        failures[version.pk] = _version_failures[version.pk] = unreadable(version.load)
    return {pk: failure for pk, failure in failures.items() if failure}


def unreadable(load: Callable[[], PipelineConfig]) -> str:
    """Why a stored configuration cannot be loaded, in a sentence; empty when it can."""
    try:
        load()
    except UnreadableConfigError as error:
        return str(error)
    return ""


def _config(pipeline: Pipeline, number: int) -> dict[str, Any]:
    if number == 0:
        return {}
    version = PipelineVersion.objects.filter(pipeline=pipeline, number=number).first()
    if version is None:
        raise Http404
    return shown_config(version.config, version.schema_version, version.option_versions)
