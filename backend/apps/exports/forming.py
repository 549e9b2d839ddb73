"""Decides which staged messages make a file, and what it is called."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Max, Min, Q, Sum
from django.utils import timezone

from backend.apps.exports.models import Export, StagedPart, StoredName
from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.domain.export_policy import ExportPolicy
from backend.domain.model import UnreadableConfigError
from backend.domain.reasons import Reason

log = logging.getLogger(__name__)

_LOCK = 0x6578706F72740001
"""Of PostgreSQL's advisory locks: one process at a time forms files."""
_AT_A_TIME = 200
_SUPERSEDED_AFTER = timedelta(seconds=30)
"""Messages of a version that is not published any more may still arrive for about as long."""


@dataclass(frozen=True)
class Target:
    """Where an output's files go, according to one version."""

    policy: ExportPolicy
    connector_id: UUID


@dataclass
class _Slice:
    """Rows of a part."""

    part: StagedPart
    first: int
    rows: int

    @property
    def bytes(self) -> int:
        return self.part.bytes * self.rows // self.part.rows


@dataclass
class _File:
    slices: list[_Slice] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, added: _Slice) -> None:
        self.slices.append(added)
        self.rows += added.rows
        self.bytes += added.bytes


@lru_cache(maxsize=2000)
def target_of(pipeline_id: UUID, output: str, version: int) -> Target | None:
    """None when there is no such version or output. Versions are immutable. Raises UnreadableConfigError."""
    stored = PipelineVersion.objects.filter(pipeline_id=pipeline_id, number=version).first()
    if stored is None:
        raise LookupError
    config = next((config for config in stored.load().outputs if config.name == output), None)
    return None if config is None else Target(config.file_policy, config.connector)


def exports_form(*, only: tuple[UUID, str] | None = None) -> list[Export]:
    """Makes exports of what is staged: full files, and what has waited long enough. With ``only``, everything of that
    pipeline's output. Another process may be doing it; then nothing is done."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            if only is None:
                cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
                if not cursor.fetchone()[0]:
                    return []
            else:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        waiting = StagedPart.objects.filter(taken__lt=F("rows"))
        if only is not None:
            waiting = waiting.filter(pipeline_id=only[0], output=only[1])
        groups = waiting.values("pipeline_id", "output", "version").annotate(
            total=Sum(F("rows") - F("taken")),
            size=Sum(F("bytes") * (F("rows") - F("taken")) / F("rows")),
            oldest=Min("staged_at"),
        )
        oldest_first = list(groups.order_by("oldest"))
        pipelines = Pipeline.objects.select_related("published").in_bulk({g["pipeline_id"] for g in oldest_first})
        made: list[Export] = []
        for group in oldest_first:
            if len(made) >= _AT_A_TIME:
                break
            made += _form(group, pipelines.get(group["pipeline_id"]), everything=only is not None)
        return made


def empty_files_form() -> list[Export]:
    """Makes exports without messages of published outputs that want them, where a time of the schedule has passed and
    no file was made since then. Of several such times there is one file, for the first. A paused pipeline takes no
    messages, so that nobody can say that there were none."""
    config = {"outputs": [{"files": {"empty_files": True}}]}
    made: list[Export] = []
    pipelines = Pipeline.objects.filter(published__config__contains=config, paused=False)
    for pipeline in pipelines.select_related("published"):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            made += _empty_files(pipeline, timezone.now())
    return made


def _empty_files(pipeline: Pipeline, now: datetime) -> list[Export]:
    assert pipeline.published is not None
    version = pipeline.published.number
    try:
        config = pipeline.published.load()
    except UnreadableConfigError as error:
        log.warning("Files without messages of pipeline %s wait: %s", pipeline.pk, error)
        return []
    return [
        _export(_File(), (pipeline.pk, output.name, version), pipeline, Target(policy, output.connector), now)
        for output in config.outputs
        if (policy := output.file_policy).empty_files and _is_file_missing(pipeline, output.name, policy, now)
    ]


def _is_file_missing(pipeline: Pipeline, output: str, policy: ExportPolicy, now: datetime) -> bool:
    """Whether a time of the schedule has passed since the last file of the output, or since its version was published,
    and no messages wait that will make one."""
    files = Export.objects.filter(pipeline_id=pipeline.pk, output=output)
    last = files.aggregate(last=Max("created_at"))["last"]
    due = policy.next_scheduled(max(filter(None, [last, pipeline.published_at]), default=now))
    if due is None or due > now:
        return False
    waiting = StagedPart.objects.filter(pipeline_id=pipeline.pk, output=output, taken__lt=F("rows"))
    return not waiting.filter(staged_at__lte=due).exists()


def _form(group: Mapping[str, Any], pipeline: Pipeline | None, *, everything: bool) -> list[Export]:
    now = timezone.now()
    names = (group["pipeline_id"], group["output"], group["version"])
    try:
        target = target_of(*names)
    except LookupError:
        target = None
    except UnreadableConfigError as error:
        log.warning("Staged messages of pipeline %s wait: %s", names[0], error)
        return []
    if target is None or pipeline is None:
        return [_orphaned(file, names, now) for file in _files(names, None, everything=True)]
    published = pipeline.published.number if pipeline.published else None
    superseded = published != group["version"] and now - group["oldest"] > _SUPERSEDED_AFTER
    policy = target.policy
    complete = everything or superseded or policy.is_due(group["oldest"], now)
    full = (policy.rows and group["total"] >= policy.rows) or (policy.bytes and group["size"] >= policy.bytes)
    if not complete and not full:
        return []
    return [_export(file, names, pipeline, target, now) for file in _files(names, policy, everything=bool(complete))]


def _files(names: tuple[UUID, str, int], policy: ExportPolicy | None, *, everything: bool) -> Iterator[_File]:
    """The group's rows in files as large as the policy allows; with ``everything``, what is left as the last one.
    Takes the rows of what it yields."""
    pipeline_id, output, version = names
    parts = StagedPart.objects.filter(pipeline_id=pipeline_id, output=output, version=version, taken__lt=F("rows"))
    most_rows = policy.rows if policy else None
    most_bytes = policy.bytes if policy else None
    file = _File()
    for part in parts.order_by("pk").iterator(1000):
        taken = part.taken
        while taken < part.rows:
            rows = part.rows - taken
            if most_rows is not None:
                rows = min(rows, most_rows - file.rows)
            if most_bytes is not None and part.bytes:
                fitting = (most_bytes - file.bytes) * part.rows // part.bytes
                rows = min(rows, max(fitting, 0 if file.rows else 1))
            if rows:
                file.add(_Slice(part, taken, rows))
                taken += rows
            is_full = file.rows == most_rows or (
                most_bytes is not None and (file.bytes >= most_bytes or taken < part.rows)
            )
            if is_full:
                yield _taken(file)
                file = _File()
    if everything and file.rows:
        yield _taken(file)


def _taken(file: _File) -> _File:
    *whole, last = file.slices  # only the last one may leave rows to the next file
    StagedPart.objects.filter(pk__in=[piece.part.pk for piece in whole]).update(taken=F("rows"), users=F("users") + 1)
    StagedPart.objects.filter(pk=last.part.pk).update(taken=last.first + last.rows, users=F("users") + 1)
    return file


def _export(file: _File, names: tuple[UUID, str, int], pipeline: Pipeline, target: Target, now: datetime) -> Export:
    export = _made(file, names, pipeline.workspace_id)
    export.connector_id = target.connector_id
    export.due_at = now
    name_file(export, pipeline, target.policy)
    export.save(force_insert=True)
    return export


def name_file(export: Export, pipeline: Pipeline, policy: ExportPolicy) -> None:
    """Gives it the first number of its output whose name no other file of the connector has."""
    for number in count(export.number):
        export.number = number
        export.path = policy.file_name(
            pipeline=pipeline.name,
            pipeline_id=str(pipeline.pk),
            output=export.output,
            version=export.version,
            number=number,
            id=str(export.pk),
            at=export.created_at or timezone.now(),
        )
        same_name = Q(connector_id=export.connector_id, path=export.path)
        same_number = Q(pipeline_id=export.pipeline_id, output=export.output, number=number)
        taken = Export.objects.filter(same_name | same_number).exclude(pk=export.pk).exists()
        if not taken and not StoredName.objects.filter(same_name).exists():
            return


def _orphaned(file: _File, names: tuple[UUID, str, int], now: datetime) -> Export:
    """Staged for a pipeline that was deleted meanwhile: nobody knows where it should go."""
    part = file.slices[0].part
    export = _made(file, names, part.workspace_id)
    export.path = f"{names[1]}/{export.number:08d}"
    export.state, export.reason = Export.State.FAILED, Reason.PIPELINE_DELETED
    export.error = "The pipeline was deleted before its last messages were stored. They are kept until this is aborted."
    export.save(force_insert=True)
    return export


def _made(file: _File, names: tuple[UUID, str, int], workspace_id: UUID) -> Export:
    pipeline_id, output, version = names
    last = Export.objects.filter(pipeline_id=pipeline_id, output=output).aggregate(last=Max("number"))["last"]
    return Export(
        workspace_id=workspace_id,
        pipeline_id=pipeline_id,
        output=output,
        version=version,
        number=(last or 0) + 1,
        rows=file.rows,
        bytes=file.bytes,
        slices=[[piece.part.pk, piece.part.path, piece.first, piece.rows] for piece in file.slices],
    )
