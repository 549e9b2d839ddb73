"""The streams and tables of a workspace, and the queries that fill them."""

from dataclasses import replace
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction

from backend.apps.audit.services import audit_record
from backend.apps.jobs.services import job_demand
from backend.apps.sql import topics
from backend.apps.sql.errors import SqlError
from backend.apps.sql.leases import query_check, query_end, query_name, readings_end
from backend.apps.sql.models import SqlQuery, SqlSource
from backend.apps.workspaces.models import User, Workspace
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.plans import Plan, Target, plan_of
from backend.domain.connect_sql.printer import printed
from backend.domain.connect_sql.sources import Source, declared, source_of
from backend.domain.stages import Application

_LONGEST_NAME = 100
_LONGEST_TOPIC = 249
_WORDS = {s.Kind.STREAM: "stream", s.Kind.TABLE: "table"}


class Catalogue:
    """What statements about streams, tables and queries do. Its methods raise SqlError and QueryError."""

    def __init__(self, workspace: Workspace, actor: User) -> None:
        self._workspace = workspace
        self._actor = actor

    # -- streams and tables ------------------------------------------------------------

    def sources(self) -> list[SqlSource]:
        return list(SqlSource.objects.filter(workspace=self._workspace))

    def find(self, name: str) -> SqlSource | None:
        return SqlSource.objects.filter(workspace=self._workspace, name__iexact=name).first()

    def get(self, name: str) -> SqlSource:
        source = self.find(name)
        if source is None:
            raise SqlError(f"There is no stream or table {name}.", status=404)
        return source

    def declare(self, statement: s.Declare) -> str:
        """Declares a stream or table on a topic; returns what was done."""
        _check_elided(statement.properties)
        source = declared(statement)
        existing = self._free(statement)
        if existing is None and self.find(statement.name) is not None:
            return f"There is a stream or table {statement.name} already; it stays as it is."
        topics.check_available(self._workspace, source.topic)
        properties = {key.lower(): value for key, value in statement.properties.as_dict().items()}
        made = self._topic(source, properties, None)
        with transaction.atomic():
            self._save(source, existing or None)
        on = f"the new topic {source.topic}" if made else f"the topic {source.topic}"
        return f"Declared {_WORDS[source.kind]} {source.name} on {on}."

    def drop(self, statement: s.DropSource) -> str | None:
        """Removes a stream or table, with the query that fills it; None if there is none, and that is allowed."""
        record = self.find(statement.name)
        if record is None or source_of(record.definition).kind is not statement.kind:
            if statement.if_exists and record is None:
                return None
            raise SqlError(f"There is no {_WORDS[statement.kind]} {statement.name}.", status=404)
        readers = list(record.readers.values_list("name", flat=True))
        inserting = list(record.writers.filter(makes_sink=False).values_list("name", flat=True))
        if readers or inserting:
            names = ", ".join(sorted({*readers, *inserting}))
            raise SqlError(f"{record.name} is used by {names}: TERMINATE that first.", status=409)
        ended = [self._end(query) for query in record.writers.all()]
        with transaction.atomic():
            audit_record(action="sql_source.delete", actor=self._actor, workspace=self._workspace, target=record)
            record.delete()
        text = f"Dropped {record.name}."
        if ended:
            text += f" The query {ended[0]} was terminated."
        if statement.delete_topic:
            topics.topic_delete(record.topic)
            return f"{text} The topic {record.topic} was deleted."
        return f"{text} Its topic {record.topic} is still there."

    # -- queries ------------------------------------------------------------

    def queries(self) -> list[SqlQuery]:
        readings_end()
        return list(SqlQuery.objects.filter(workspace=self._workspace).select_related("sink"))

    def plan(self, query: s.Query, target: Target) -> tuple[Plan, Source, list[SqlSource]]:
        """How a query is executed, what it makes, and what it reads."""
        records = [self.get(relation.name) for relation in (query.source, *(join.relation for join in query.joins))]
        plan, source = plan_of(query, [source_of(record.definition) for record in records], target)
        return plan, source, records

    def create_as(self, statement: s.CreateAs) -> str:
        """Makes a stream or table of a query, which runs until it is terminated; returns what was done."""
        _check_elided(statement.properties)
        properties = {key.lower(): value for key, value in statement.properties.as_dict().items()}
        self._check_persistent(statement.query)
        existing = self._free(statement)
        if existing is None and self.find(statement.name) is not None:
            return f"There is a stream or table {statement.name} already; it stays as it is."
        target = _target(statement, properties)
        plan, source, reads = self.plan(statement.query, target)
        topics.check_available(self._workspace, source.topic)
        if source.topic in [record.topic for record in reads]:
            raise SqlError("A query cannot write to a topic that it reads.")
        if existing:
            return self._replace(existing, statement, plan, source, reads)
        query_check(self._workspace)
        self._topic(source, properties, reads[0].topic)
        name = self._query_name(statement.kind, statement.name)
        with transaction.atomic():
            sink = self._save(source, None)
            self._start(name, printed(statement), plan, sink, reads, makes_sink=True)
        return f"Created {_WORDS[source.kind]} {source.name}; the query {name} fills it."

    def insert_select(self, statement: s.InsertSelect) -> str:
        """Lets a query write to a stream that exists; returns what was done."""
        self._check_persistent(statement.query)
        record = self.get(statement.name)
        existing = source_of(record.definition)
        if existing.kind is s.Kind.TABLE:
            raise SqlError("A query can be inserted into streams only.")
        target = Target(existing.kind, existing.name, existing.topic, existing.value_format, existing.key_format)
        plan, source, reads = self.plan(statement.query, target)
        if {(one.name.lower(), one.type, one.key) for one in source.columns} != {
            (one.name.lower(), one.type, one.key) for one in existing.columns
        }:
            columns = printed(s.Declare(existing.kind, existing.name, existing.columns, s.Properties()))
            raise SqlError(f"The result has to have the columns of the stream: {columns.partition(' WITH')[0]}.")
        query_check(self._workspace)
        name = self._query_name(None, existing.name)
        with transaction.atomic():
            self._start(name, printed(statement), plan, record, reads, makes_sink=False)
        return f"The query {name} inserts into {existing.name}."

    def terminate(self, query_id: str | None) -> list[str]:
        """Ends the query, or all; returns their names."""
        if query_id is not None:
            query = self.query(query_id)
            if query.pipeline_id is not None:
                text = "This query is the stream processing of a pipeline: it ends when the pipeline is deleted."
                raise SqlError(text, status=409)
            return [self._end(query)]
        return [self._end(query) for query in self.queries() if query.pipeline_id is None]

    def query(self, name: str) -> SqlQuery:
        query = SqlQuery.objects.filter(workspace=self._workspace, name__iexact=name).select_related("sink").first()
        if query is None:
            raise SqlError(f"There is no query {name}: SHOW QUERIES lists them.", status=404)
        return query

    # -- parts ------------------------------------------------------------

    @staticmethod
    def _check_persistent(query: s.Query) -> None:
        if query.emit is None:
            raise SqlError("A query that runs on needs EMIT CHANGES at its end.")
        if query.limit is not None:
            raise SqlError("LIMIT is for queries that end; this one runs until it is terminated.")

    def _free(self, statement: s.Declare | s.CreateAs) -> SqlSource | None:
        """What is replaced. None when the name is free, or what is there stays."""
        if not statement.name.strip() or len(statement.name) > _LONGEST_NAME:
            raise SqlError(f"The name of a stream or table has 1 to {_LONGEST_NAME} characters.")
        existing = self.find(statement.name)
        if existing is None or (statement.if_not_exists and not statement.or_replace):
            return None
        if not statement.or_replace:
            text = f"There is a stream or table {existing.name} already: DROP it, or write CREATE OR REPLACE."
            raise SqlError(text, status=409)
        if source_of(existing.definition).kind is not statement.kind:
            raise SqlError("A stream cannot be replaced by a table, nor a table by a stream.", status=409)
        return existing

    def _topic(self, source: Source, properties: dict[str, Any], like: str | None) -> bool:
        """Makes the topic of a source unless it exists; whether it did not."""
        if not 1 <= len(source.topic) <= _LONGEST_TOPIC:
            raise SqlError(f"The name of a topic has 1 to {_LONGEST_TOPIC} characters.")
        counts = {key: _count(properties, key) for key in ("partitions", "replicas")}
        known = topics.topic_partitions(self._workspace)
        if source.topic in known:
            return False
        partitions = counts["partitions"] or (known.get(like, settings.CONSOLE.topic_partitions) if like else None)
        if partitions is None:
            text = f"There is no topic {source.topic}: give the number of partitions with which it is made."
            raise SqlError("The topic does not exist.", properties={"partitions": [text]})
        compacted = source.kind is s.Kind.TABLE
        topics.topic_make(source.topic, partitions=partitions, replicas=counts["replicas"], compacted=compacted)
        return True

    def _save(self, source: Source, existing: SqlSource | None) -> SqlSource:
        record = existing or SqlSource(workspace=self._workspace, name=source.name)
        record.topic, record.definition = source.topic, source.definition()
        record.save()
        action = "sql_source.update" if existing else "sql_source.create"
        audit_record(
            action=action,
            actor=self._actor,
            workspace=self._workspace,
            target=record,
            after={"definition": record.definition},
        )
        return record

    def _query_name(self, kind: s.Kind | None, name: str) -> str:
        start = {s.Kind.STREAM: "CSAS", s.Kind.TABLE: "CTAS", None: "INSERT"}[kind]
        return query_name(self._workspace, f"{start}_{name}".upper().replace("-", "_").replace(".", "_"))

    def _start(
        self, name: str, statement: str, plan: Plan, sink: SqlSource, reads: list[SqlSource], *, makes_sink: bool
    ) -> None:
        query = SqlQuery.objects.create(
            workspace=self._workspace,
            name=name,
            statement=statement,
            sink=sink,
            makes_sink=makes_sink,
            plan=msgspec.to_builtins(plan),
        )
        query.reads.set(reads)
        audit_record(action="sql_query.create", actor=self._actor, workspace=self._workspace, target=query)
        demand()

    def _replace(
        self, existing: SqlSource, statement: s.CreateAs, plan: Plan, source: Source, reads: list[SqlSource]
    ) -> str:
        query = existing.writers.filter(makes_sink=True).first()
        if query is None:
            raise SqlError(f"{existing.name} was not made by a query: DROP it first.", status=409)
        before, old = plan_from(query), source_of(existing.definition)
        source = replace(source, topic=old.topic)
        plan = replace(plan, topic=old.topic)
        if missing := [one.name for one in old.columns if one not in source.columns]:
            raise SqlError(f"What reads {existing.name} relies on its columns: keep {', '.join(missing)}.", status=409)
        if plan.state != before.state:
            text = "What the query remembers would not fit the new one: DROP it, and create it again."
            raise SqlError(text, status=409)
        with transaction.atomic():
            self._save(source, existing)
            query.plan, query.revision = msgspec.to_builtins(plan), query.revision + 1
            query.statement, query.running, query.error = printed(statement), False, ""
            query.save(update_fields=["plan", "revision", "statement", "running", "error"])
            query.reads.set(reads)
        return f"Replaced {existing.name}; once {query.name} is RUNNING again, it goes on where it was."

    def _end(self, query: SqlQuery) -> str:
        with transaction.atomic():
            audit_record(action="sql_query.delete", actor=self._actor, workspace=self._workspace, target=query)
            query_end(query)
        return query.name


def demand() -> None:
    """Lets the application run as long as there are queries."""
    job_demand(application=Application.SQL, wanted=SqlQuery.objects.exclude(plan=None).exists())


def query_deleted(**_: Any) -> None:
    """A query was deleted, perhaps with its pipeline."""
    demand()


def plan_from(query: SqlQuery) -> Plan:
    """The plan of a query that Spark runs."""
    return msgspec.convert(query.plan, Plan)


def _target(statement: s.CreateAs, properties: dict[str, Any]) -> Target:
    if unknown := [key for key in properties if key not in _CREATE_PROPERTIES]:
        raise SqlError(
            "The properties are not valid; nothing was made.",
            properties={key: [f"This is one of {', '.join(_CREATE_PROPERTIES)}."] for key in unknown},
        )
    value_format = str(properties.get("value_format") or properties.get("format") or "JSON").upper()
    key_format = properties.get("key_format")
    offset = str(properties.get("auto.offset.reset") or "earliest").lower()
    errors: dict[str, list[str]] = {}
    if value_format not in ("JSON",):
        errors["value_format"] = ["Results are written as JSON."]
    if offset not in ("earliest", "latest"):
        errors["auto.offset.reset"] = ["This is earliest or latest."]
    if key_format is not None and str(key_format).upper() not in ("KAFKA", "JSON"):
        errors["key_format"] = ["This is KAFKA or JSON."]
    if errors:
        raise SqlError("The properties are not valid; nothing was made.", properties=errors)
    return Target(
        kind=statement.kind,
        name=statement.name,
        topic=str(properties["kafka_topic"]) if properties.get("kafka_topic") else None,
        value_format=value_format,
        key_format=str(key_format).upper() if key_format else None,
        from_beginning=offset == "earliest",
    )


_CREATE_PROPERTIES = (
    *("kafka_topic", "value_format", "key_format", "format", "partitions", "replicas"),
    "auto.offset.reset",
)


def _count(properties: dict[str, Any], key: str) -> int | None:
    value = properties.get(key)
    if value is None:
        return None
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number <= 1000:
        raise SqlError("The properties are not valid.", properties={key: ["This is a number from 1 to 1000."]})
    return number


def _check_elided(properties: s.Properties) -> None:
    if properties.elided:
        raise SqlError("The three dots stand for properties: write them out.")
