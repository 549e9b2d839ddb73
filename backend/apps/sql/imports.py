"""Tables of a database that a connector brings into topics, each declared as a table of Connect SQL.

They come from properties of CREATE SOURCE CONNECTOR, beside those of the connection. What a user has made is never
overwritten: a name that is taken is reported, and tried again later.
"""

import asyncio
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from pydantic import ValidationError

from backend.apps.audit.services import audit_record
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import runtime_connector
from backend.apps.connectors.selectors import connectors_of
from backend.apps.connectors.services import connector_check, connector_create
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import pipelines_using
from backend.apps.pipelines.services import pipeline_create, pipeline_delete, pipeline_pause, pipeline_publish
from backend.apps.sql import topics
from backend.apps.sql.errors import SqlError
from backend.apps.sql.models import SqlImport, SqlSource
from backend.apps.workspaces.models import User, Workspace
from backend.connectors.parts.database import Session, SqlConnection, Table, opened_in_time
from backend.connectors.postgres_cdc.connection import PostgresConnection
from backend.domain.capabilities import DeliveryError
from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.imported import table_of, with_new_columns
from backend.domain.connect_sql.sources import Source, source_of
from backend.domain.connector import RuntimeConnector
from backend.domain.errors import ConfigError, ConflictError
from backend.settings import platform_settings

log = logging.getLogger(__name__)

TABLES = "tables"
PREFIX = "topic.prefix"
_PARTITIONS = "topic.partitions"
_KAFKA = "kafka.connector"
_CDC = "postgres_cdc"
_SQL = "sql"
_JDBC = {
    "mode": "Which rows are read: bulk, incrementing, timestamp or timestamp+incrementing.",
    "timestamp.column.name": "Column with the time of a row's last change.",
    "incrementing.column.name": "Column whose values increase with each row.",
}
"""How rows are read that do not come as changes, by the names that JDBC connectors have for it."""
_DESCRIBED = {
    TABLES: "Tables that are brought into topics, separated by commas, each declared as a table of Connect SQL.",
    PREFIX: "Beginning of the topics' names; the connector's name and a dash by default.",
    _PARTITIONS: "Partitions of the topics.",
    _KAFKA: "Connector of the class kafka by which the topics are written.",
}
_MOST_TABLES = 100
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_INVALID = "The properties are not valid; nothing was made."


@dataclass(frozen=True)
class Wanted:
    """What the properties ask for."""

    tables: list[str]
    prefix: str
    partitions: int
    kafka: str | None
    mode: dict[str, Any]


def properties_of(type: str) -> dict[str, str]:
    """The properties of this class by which a connector brings tables into topics, each with a description."""
    return {_CDC: _DESCRIBED, _SQL: _DESCRIBED | _JDBC}.get(type, {})


def wanted_of(name: str, type: str, properties: dict[str, str]) -> Wanted | None:
    """What a connector of this name is to bring into topics, if anything; its properties are taken out of
    ``properties``. Raises SqlError."""
    if type not in (_CDC, _SQL) or TABLES not in properties:
        return None
    errors: dict[str, list[str]] = {}
    tables = list(dict.fromkeys(one.strip() for one in properties.pop(TABLES).split(",") if one.strip()))
    if not 1 <= len(tables) <= _MOST_TABLES or not all(map(_NAME.fullmatch, tables)):
        text = f"This is a list of 1 to {_MOST_TABLES} tables, separated by commas, with their schemas in front."
        errors[TABLES] = [text]
    if type == _CDC:
        tables = [one if "." in one else f"public.{one}" for one in tables]
    prefix = properties.pop(PREFIX, f"{_plain(name)}-")
    if prefix and not _NAME.fullmatch(prefix):
        errors[PREFIX] = ["A topic has letters, digits, dots, dashes and underscores."]
    partitions = properties.pop(_PARTITIONS, str(settings.CONSOLE.topic_partitions))
    if not partitions.isdecimal() or not 1 <= int(partitions) <= 1000:
        errors[_PARTITIONS] = ["This is a number from 1 to 1000."]
    mode, kafka = _mode(properties, errors) if type == _SQL else {}, properties.pop(_KAFKA, None)
    if errors:
        raise SqlError(_INVALID, properties=errors)
    return Wanted(tables, prefix, int(partitions), kafka, mode)


def imports_create(*, connector: Connector, actor: User, wanted: Wanted) -> list[str]:
    """Makes topics, tables and the pipelines that fill them; returns what was done. Called within a transaction.
    Raises SqlError."""
    _check(connector)
    described = _described(connector, wanted.tables)
    tables = {name: table for name, table in described.items() if not isinstance(table, str)}
    if missing := [f"{name}: {reason}" for name, reason in described.items() if isinstance(reason, str)]:
        raise SqlError(_INVALID, properties={TABLES: missing})
    kafka = _kafka_connector(connector.workspace, actor, wanted.kafka)
    done = []
    imports = [
        SqlImport.objects.create(connector=connector, table=name, topic=f"{wanted.prefix}{name}") for name in tables
    ]
    for one in imports:
        topics.check_available(connector.workspace, one.topic)
        if SqlImport.objects.filter(topic=one.topic).exclude(connector=connector).exists():
            text = f"The topic {one.topic} is filled by another connector: use another prefix."
            raise SqlError(_INVALID, properties={PREFIX: [text]})
        source = _source(one, tables[one.table])
        topics.topic_make(one.topic, partitions=wanted.partitions, replicas=None, compacted=True)
        done.append(_declare(one, source, actor))
    for name, filled, config in _pipelines(connector, kafka, wanted):
        try:
            pipeline = pipeline_create(workspace=connector.workspace, actor=actor, name=name, config=config)
            pipeline_publish(pipeline=pipeline, actor=actor)
        except (ConfigError, ConflictError) as error:
            raise SqlError(f"The pipeline {name} cannot be made: {error}", status=409) from None
        SqlImport.objects.filter(connector=connector, table__in=filled).update(pipeline=pipeline)
        done.append(f"The pipeline {name} fills {'it' if len(filled) == 1 else 'them'}.")
    return done


def imports_end(*, connector: Connector, actor: User) -> list[str]:
    """Ends the pipelines that were made for the connector; returns what was done. Tables and topics stay. Raises
    SqlError if others use it."""
    imports = SqlImport.objects.filter(connector=connector)
    pipelines = Pipeline.objects.filter(pk__in=imports.values("pipeline"))
    if pipelines and (others := pipelines_using(connector).exclude(pk__in=pipelines)):
        text = f"The connector is used by: {', '.join(one.name for one in others)}. Take it out of these first."
        raise SqlError(text, status=409)
    names = []
    for pipeline in pipelines:
        if pipeline.published is not None:
            pipeline_pause(pipeline=pipeline, actor=actor)
        pipeline_delete(pipeline=pipeline, actor=actor)
        names.append(pipeline.name)
    if not names:
        return []
    kept = ", ".join(one.source.name for one in imports if one.source is not None)
    sentences = [f"Deleted the pipelines that it filled topics by: {', '.join(names)}."]
    return [*sentences, f"These tables stay, with their topics: {kept}."] if kept else sentences


def imports_of(connector: Connector) -> list[SqlImport]:
    return list(SqlImport.objects.filter(connector=connector).select_related("source"))


def imports_follow() -> None:
    """Adds the columns that the databases' tables have got since."""
    imports = SqlImport.objects.select_related("connector__workspace", "connector__created_by", "source")
    for connector in Connector.objects.filter(pk__in=imports.values("connector")):
        of_connector = list(imports.filter(connector=connector))
        described = _described(connector, [one.table for one in of_connector])
        for one in of_connector:
            if one.source is None and not one.problem:
                continue  # a user has dropped it
            problem = _followed(one, described[one.table])
            SqlImport.objects.filter(pk=one.pk).exclude(problem=problem).update(problem=problem)


def _followed(one: SqlImport, table: Table | str) -> str:
    """Why it does not follow the database's table; empty if it does."""
    if isinstance(table, str):
        return table
    try:
        if one.source is not None:
            _follow(one.source, table)
        else:
            _declare(one, _source(one, table), one.connector.created_by)
            return one.problem
    except QueryError as error:
        return error.message
    except SqlError as error:
        return " ".join(sentence for sentences in error.properties.values() for sentence in sentences)
    return ""


def _follow(record: SqlSource, table: Table) -> None:
    source = source_of(record.definition)
    extended = with_new_columns(source, _types(table))
    if extended != source:
        SqlSource.objects.filter(pk=record.pk, definition=record.definition).update(definition=extended.definition())
        log.info("The table %s has new columns.", record.name)


def _declare(one: SqlImport, source: Source, actor: User) -> str:
    """Declares the table unless its name is taken; says what was done."""
    workspace = one.connector.workspace
    if SqlSource.objects.filter(workspace=workspace, name__iexact=source.name).exists():
        one.problem = f"There is a stream or table {source.name} already, which stays as it is."
        one.save(update_fields=["problem"])
        return f"{one.problem} Declare one on the topic {one.topic} under another name."
    record = SqlSource.objects.create(
        workspace=workspace, name=source.name, topic=source.topic, definition=source.definition()
    )
    audit_record(
        action="sql_source.create",
        actor=actor,
        workspace=workspace,
        target=record,
        after={"definition": record.definition},
    )
    one.source, one.problem = record, ""
    one.save(update_fields=["source", "problem"])
    return f"Declared table {source.name} on the topic {source.topic}."


def _source(one: SqlImport, table: Table) -> Source:
    name = f"{_plain(one.connector.name)}_{one.table.removeprefix('public.')}"
    try:
        return table_of(re.sub(r"\W", "_", name), one.topic, _types(table), table.primary_key)
    except QueryError as error:
        raise SqlError(_INVALID, properties={TABLES: [f"{one.table}: {error.message}"]}) from None


def _types(table: Table) -> dict[str, str]:
    return {name: column.type for name, column in table.columns.items()}


def _check(connector: Connector) -> None:
    """Whether changes of its rows can be read. Raises SqlError."""
    if connector.type != _CDC:
        return
    try:
        connector_check(
            workspace=connector.workspace, type=connector.type, connection=connector.connection, stored=connector
        )
    except ConfigError as error:
        errors = {path.partition(".")[2] or TABLES: sentences for path, sentences in error.errors.items()}
        raise SqlError(_INVALID, properties=errors) from None


def _described(connector: Connector, names: list[str]) -> dict[str, Table | str]:
    """The tables, or why they cannot be described."""
    runtime = runtime_connector(connector)
    if runtime.error:
        return dict.fromkeys(names, runtime.error)

    async def describe() -> dict[str, Table | str]:
        session = await _session(runtime)
        try:
            return {name: await table(session, name) for name in names}
        finally:
            session.abort()

    async def table(session: Session, name: str) -> Table | str:
        try:
            return await session.table(name)
        except DeliveryError as error:
            return str(error)

    try:
        return asyncio.run(describe())
    except DeliveryError as error:
        return dict.fromkeys(names, str(error))
    except ValidationError:
        return dict.fromkeys(names, f"The connection of {connector.name} is not valid: save it again.")


async def _session(runtime: RuntimeConnector) -> Session:
    if runtime.type == _SQL:
        from backend.connectors.sql.session import opened_session

        return await opened_session(SqlConnection.model_validate(runtime.connection))
    from backend.connectors.parts.postgresql import PostgresqlSession

    connection = PostgresConnection.model_validate(runtime.connection)
    return await opened_in_time(connection, PostgresqlSession.open(connection))


def _pipelines(
    connector: Connector, kafka: Connector, wanted: Wanted
) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """Their names, tables and configurations: one for all changes, or else one for each table."""

    def config(options: dict[str, Any], written: dict[str, Any], transforms: list[dict[str, Any]]) -> dict[str, Any]:
        output = {"name": "topic", "connector": str(kafka.pk), "options": written}
        read = {"type": "connector", "connector": str(connector.pk), "options": options}
        return {"input": read, "transforms": transforms, "outputs": [output]}

    if connector.type == _CDC:
        # A truncation has no key, and says nothing of single rows.
        kept = [{"type": "drop_unless", "path": "op", "condition": "not_equals", "value": "truncate"}]
        written = {"topic": f"{wanted.prefix}{{{{schema}}}}.{{{{table}}}}", "value": "after"}
        yield connector.name, wanted.tables, config({"tables": wanted.tables}, written, kept)
        return
    for name in wanted.tables:
        read = {"source": {"type": "table", "table": name}, "mode": wanted.mode}
        yield f"{connector.name} {name}", [name], config(read, {"topic": f"{wanted.prefix}{name}"}, [])


def _mode(properties: dict[str, str], errors: dict[str, list[str]]) -> dict[str, Any]:
    mode, timestamp, number = (properties.pop(key, "") for key in _JDBC)
    needs = {
        "bulk": (False, False),
        "incrementing": (False, True),
        "timestamp": (True, False),
        "timestamp+incrementing": (True, True),
    }
    if mode not in needs:
        text = f"This is one of {', '.join(needs)}. The class postgres_cdc reads every change, and deletions too."
        errors["mode"] = [text]
        return {}
    by_time, by_number = needs[mode]
    needed = (False, by_time, by_number)
    for key, value, is_needed in zip(_JDBC, (mode, timestamp, number), needed, strict=True):
        if is_needed and not value:
            errors[key] = [f"The mode {mode} needs this column."]
    made: dict[str, Any] = {"type": mode.replace("+", "_")}
    if by_time:
        made["timestamp_column"] = timestamp
    if by_number:
        made["incrementing_column" if by_time else "column"] = number
    return made


def _kafka_connector(workspace: Workspace, actor: User, name: str | None) -> Connector:
    """The connector by which topics are written. Without a name that is one to Headrace's own Kafka, which is made
    where that asks for no credentials."""
    known = connectors_of(workspace).filter(type="kafka")
    if name is not None:
        if (connector := known.filter(name=name).first()) is None:
            text = f"There is no connector {name} of the class kafka."
            raise SqlError(_INVALID, properties={_KAFKA: [text]})
        return connector
    kafka = platform_settings().kafka
    if connector := known.filter(connection__bootstrap_servers=kafka.bootstrap_servers).first():
        return connector
    if kafka.tls or kafka.sasl_mechanism:
        text = "Name a connector of the class kafka with the address of Headrace's own Kafka, and with a login for it."
        raise SqlError(_INVALID, properties={_KAFKA: [text]})
    try:
        connection = {"bootstrap_servers": kafka.bootstrap_servers}
        return connector_create(workspace=workspace, actor=actor, name="kafka", type="kafka", connection=connection)
    except ConfigError as error:
        text = f"A connector to Headrace's own Kafka cannot be made: {error}"
        raise SqlError(_INVALID, properties={_KAFKA: [text]}) from None


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)
