"""The SQL of pipelines' stream processing: a query for each published pipeline that has one."""

from typing import Any

import msgspec

from backend.apps.pipelines.models import Pipeline
from backend.apps.sql.catalogue import demand, plan_from
from backend.apps.sql.models import SqlQuery, SqlSource
from backend.domain import routing
from backend.domain.connect_sql.errors import QueryError, StatementError
from backend.domain.connect_sql.plans import Plan
from backend.domain.connect_sql.sources import Source, source_of
from backend.domain.connect_sql.stage import stage_plan
from backend.domain.errors import ConfigError
from backend.domain.pipeline import PipelineConfig
from backend.domain.stream_processing import StreamProcessing


def stage_check(*, pipeline: Pipeline, config: PipelineConfig, **_: Any) -> None:
    """Raises ConfigError when the SQL does not fit the tables of the workspace, or what the stage remembers."""
    stage = config.stream_processing
    if stage is None or stage.sql is None:
        return
    try:
        plan, _reads = _plan(pipeline, stage)
    except (QueryError, StatementError) as error:
        raise ConfigError({"config.stream_processing.sql": [error.message]}) from None
    running = SqlQuery.objects.filter(pipeline=pipeline).first()
    if running is not None and plan_from(running).state != plan.state:
        text = (
            "What the published SQL remembers of its table would not fit this one: publish a version without SQL and "
            "outputs first, or make another pipeline."
        )
        raise ConfigError({"config.stream_processing.sql": [text]})


def stage_follow(*, pipeline: Pipeline, config: PipelineConfig | None, **_: Any) -> None:
    """Lets the query of the published version run."""
    stage = config.stream_processing if config is not None else None
    running = SqlQuery.objects.filter(pipeline=pipeline).first()
    if stage is None or stage.sql is None:
        if running is not None:
            running.delete()
        return
    plan, reads = _plan(pipeline, stage)
    stored = msgspec.to_builtins(plan)
    if running is None:
        running = SqlQuery(
            workspace=pipeline.workspace, pipeline=pipeline, name=f"PIPELINE_{pipeline.pk}", makes_sink=False
        )
    elif running.plan != stored:
        running.revision += 1
    running.plan, running.statement = stored, stage.sql
    running.save()
    running.reads.set(reads)
    demand()


def _plan(pipeline: Pipeline, stage: StreamProcessing) -> tuple[Plan, list[SqlSource]]:
    assert stage.sql is not None
    reads: list[SqlSource] = []

    def table(name: str) -> Source:
        record = SqlSource.objects.filter(workspace=pipeline.workspace, name__iexact=name).first()
        if record is None:
            raise QueryError(f"There is no table {name}: declare it in SQL, with CREATE TABLE.")
        reads.append(record)
        return source_of(record.definition)

    topic = routing.processing_source(str(pipeline.pk))
    return stage_plan(stage.sql, avro_schema=stage.avro_schema, topic=topic, table=table), reads
