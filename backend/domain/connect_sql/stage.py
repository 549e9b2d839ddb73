"""The SQL of a pipeline's stream processing: one SELECT over the pipeline's messages."""

from collections.abc import Callable
from typing import Any

from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.avro import columns_of
from backend.domain.connect_sql.errors import QueryError, StatementError
from backend.domain.connect_sql.parser import parse
from backend.domain.connect_sql.plans import Plan, Target, is_grouped, plan_of
from backend.domain.connect_sql.sources import Source

MESSAGES = "messages"
"""What the pipeline's messages are called in its SQL."""


def stage_query(sql: str) -> s.Query:
    """The query. Raises QueryError and StatementError."""
    statements = parse(sql)
    if len(statements) != 1 or not isinstance(statements[0], s.Select):
        raise QueryError(f"This has to be one SELECT … FROM {MESSAGES}.")
    query = statements[0].query
    if query.source.name.lower() != MESSAGES:
        raise QueryError(f"This has to read FROM {MESSAGES}: these are the pipeline's messages.")
    if is_grouped(query) or query.window is not None or query.partition_by or query.limit is not None:
        text = "A pipeline's SQL gives one message for each: without GROUP BY, PARTITION BY, WINDOW and LIMIT."
        raise QueryError(text)
    return query


def stage_plan(sql: str, *, avro_schema: dict[str, Any], topic: str, table: Callable[[str], Source]) -> Plan:
    """The plan of a pipeline's SQL; its messages are in ``topic``. ``table`` gives a table by its name. Raises
    QueryError and StatementError."""
    query = stage_query(sql)
    columns = tuple(s.ColumnDefinition(name, type) for name, type in columns_of(avro_schema))
    messages = Source(MESSAGES, s.Kind.STREAM, topic, columns, value_format="AVRO")
    tables = [table(join.relation.name) for join in query.joins]
    plan, _ = plan_of(query, [messages, *tables], Target(s.Kind.STREAM, MESSAGES, topic, onward=True))
    return plan


def check_stage(sql: str, avro_schema: dict[str, Any]) -> None:
    """Raises ValueError, with a sentence, as far as that can be said without the tables that are joined."""
    try:
        if not stage_query(sql).joins:
            stage_plan(sql, avro_schema=avro_schema, topic=MESSAGES, table=_no_table)
    except StatementError as error:
        raise ValueError(f"Line {error.line}, column {error.column}: {error.message}") from None
    except QueryError as error:
        raise ValueError(error.message) from None


def _no_table(name: str) -> Source:
    raise QueryError(f"There is no table {name}.")
