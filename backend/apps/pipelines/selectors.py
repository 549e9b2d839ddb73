"""Queries on pipelines."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404

from backend.apps.connectors.models import Connector
from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.apps.workspaces.models import Workspace
from backend.domain.diff import changes
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot


def pipelines_of(workspace: Workspace) -> QuerySet[Pipeline]:
    """With ``latest_number``, ``latest_config`` and ``latest_schema_version``: those of the newest version."""
    newest = PipelineVersion.objects.filter(pipeline=OuterRef("pk")).order_by("-number")
    return (
        Pipeline.objects.filter(workspace=workspace)
        .select_related("published", "workspace")
        .prefetch_related("provisionings__version", "provisionings__steps")
        .annotate(
            latest_number=Subquery(newest.values("number")[:1]),
            latest_config=Subquery(newest.values("config")[:1]),
            latest_schema_version=Subquery(newest.values("schema_version")[:1]),
        )
    )


def pipelines_using(connector: Connector) -> QuerySet[Pipeline]:
    """Pipelines any version of which uses the connector."""
    versions = PipelineVersion.objects.filter(connectors__contains=[connector.pk])
    return Pipeline.objects.filter(pk__in=versions.values("pipeline"))


def published_snapshots() -> tuple[list[PipelineSnapshot], list[tuple[Pipeline, str]]]:
    """All published pipelines, and those whose configuration cannot be read, with the reason."""
    snapshots: list[PipelineSnapshot] = []
    unreadable: list[tuple[Pipeline, str]] = []
    for pipeline in Pipeline.objects.exclude(published=None).select_related("published"):
        assert pipeline.published is not None
        try:
            snapshots.append(snapshot_of(pipeline, pipeline.published))
        except UnreadableConfigError as error:
            unreadable.append((pipeline, str(error)))
    return snapshots, unreadable


def snapshot_of(pipeline: Pipeline, version: PipelineVersion) -> PipelineSnapshot:
    """Raises UnreadableConfigError."""
    return PipelineSnapshot(
        id=pipeline.id,
        workspace_id=pipeline.workspace_id,
        version=version.number,
        accepting=not pipeline.paused,
        # Only the console uses examples; the data plane need not hold them.
        config=PipelineConfig.load_stored({**version.config, "examples": []}, version.schema_version),
        schema_id=version.schema_id,
    )


def snapshot_by_number(pipeline_id: UUID, number: int) -> PipelineSnapshot | None:
    """A version, or with number 0 the published one. Raises UnreadableConfigError."""
    pipeline = Pipeline.objects.select_related("published").filter(pk=pipeline_id).first()
    if pipeline is None:
        return None
    version = pipeline.versions.filter(number=number).first() if number else pipeline.published
    return snapshot_of(pipeline, version) if version is not None else None


def version_changes(*, pipeline: Pipeline, number: int, since: int | None) -> list[dict[str, Any]]:
    """The differences to another version, or to the previous one."""
    return [asdict(change) for change in changes(_config(pipeline, since or number - 1), _config(pipeline, number))]


def shown_config(config: dict[str, Any], schema_version: int) -> dict[str, Any]:
    """Upgraded to the current schema; as stored if it can no longer be upgraded."""
    try:
        return PipelineConfig.upgraded(config, schema_version)
    except UnreadableConfigError:
        return config


def latest_config(pipeline: Pipeline) -> dict[str, Any]:
    """The newest version's configuration; the pipeline must come from ``pipelines_of``."""
    return shown_config(pipeline.latest_config, pipeline.latest_schema_version)  # type: ignore[attr-defined]


def _config(pipeline: Pipeline, number: int) -> dict[str, Any]:
    if number == 0:
        return {}
    version = PipelineVersion.objects.filter(pipeline=pipeline, number=number).first()
    if version is None:
        raise Http404
    return shown_config(version.config, version.schema_version)
