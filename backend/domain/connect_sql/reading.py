"""Queries that are read rather than kept running: what they select of one stream or table, row by row, and what Spark
runs for those that join or group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.evaluation import Evaluated, Evaluator, NotEvaluatedError
from backend.domain.connect_sql.plans import Plan, Target, columns_of_select, is_grouped, plan_of
from backend.domain.connect_sql.sources import WINDOW_COLUMNS, Source
from backend.domain.connect_sql.translation import Scope, Translator, mapped
from backend.domain.connect_sql.types import VARCHAR

_RESULT = "result"
_HIDDEN = "__key_"
"""How the columns begin that a group needs and the query does not select."""


@dataclass(frozen=True)
class Reading:
    """What a query selects of the rows of ``source``."""

    source: Source
    columns: tuple[s.ColumnDefinition, ...]
    of_keys: Evaluated
    """The part of the condition that needs only the key columns."""
    condition: Evaluated
    values: tuple[Evaluated, ...]
    limit: int | None = None

    def selected(self, row: dict[str, Any]) -> list[Any] | None:
        """The values of the columns; None if the row does not fulfil the condition."""
        return [value(row) for value in self.values] if self.condition(row) else None


def reading_of(query: s.Query, source: Source) -> Reading:
    """Raises QueryError, and NotEvaluatedError when only Spark executes it."""
    if query.joins or is_grouped(query) or query.partition_by:
        raise NotEvaluatedError
    if query.window is not None or query.having is not None:
        raise QueryError("WINDOW and HAVING need GROUP BY.")
    if query.emit == "FINAL":
        raise QueryError("EMIT FINAL needs a window, whose results it waits for.")
    scope = Scope({query.source.alias or source.name: source})
    translator, evaluator = Translator(scope), Evaluator(scope)
    items = columns_of_select(query, scope)
    condition = scope.resolved(query.where) if query.where is not None else None
    if condition is not None:
        translator.condition(condition)
    keys = {column.name for column in source.keys} | (WINDOW_COLUMNS.keys() if source.window else set())
    parts = condition.operands if isinstance(condition, e.AllOf) else (condition,) if condition is not None else ()
    of_keys = [evaluator.condition(part) for part in parts if _columns(part) <= keys]
    of_rows = [evaluator.condition(part) for part in parts if not _columns(part) <= keys]
    return Reading(
        source=source,
        columns=tuple(
            # NULL has no type; it is shown as a text.
            s.ColumnDefinition(name, translator.translate(one).type or VARCHAR)
            for name, one in items
        ),
        of_keys=_all(of_keys),
        condition=_all(of_keys + of_rows),
        values=tuple(evaluator.evaluated(one) for _, one in items),
        limit=query.limit,
    )


def spark_reading(query: s.Query, sources: Sequence[Source], topic: str) -> tuple[Plan, Reading]:
    """What Spark writes to the topic, and what is read of it. Raises QueryError."""
    if query.emit is None:
        text = "A query that ends reads one stream or table, without joins and groups: write EMIT CHANGES at its end."
        raise QueryError(text, supported=False)
    kind = s.Kind.TABLE if is_grouped(query) or sources[0].kind is s.Kind.TABLE else s.Kind.STREAM
    aliases = [one.alias or source.name for one, source in zip(_relations(query), sources, strict=True)]
    scope = Scope(dict(zip(aliases, sources, strict=True)))
    columns = columns_of_select(query, scope)
    selected = [one for _, one in columns]
    missing = [one for one in query.group_by if scope.resolved(one) not in selected]
    hidden = tuple(s.SelectItem(one, f"{_HIDDEN}{number}") for number, one in enumerate(missing))
    complete = replace(query, items=(*query.items, *hidden), limit=None)
    plan, result = plan_of(complete, sources, Target(kind, _RESULT, topic, from_beginning=False))
    items = tuple(s.SelectItem(e.Column(name)) for name, _ in columns)
    return plan, reading_of(s.Query(items, s.Relation(_RESULT), limit=query.limit), result)


def _relations(query: s.Query) -> list[s.Relation]:
    return [query.source, *(join.relation for join in query.joins)]


def _columns(expression: e.Expression) -> set[str]:
    """The names of the columns that it reads."""
    return set(_names(expression))


def _names(expression: e.Expression) -> Iterator[str]:
    if isinstance(expression, e.Column):
        yield expression.name
        return
    parts: list[e.Expression] = []

    def visit(part: e.Expression) -> e.Expression:
        parts.append(part)
        return part

    mapped(expression, visit)
    for part in parts:
        yield from _names(part)


def _all(conditions: list[Evaluated]) -> Evaluated:
    return lambda row: all(condition(row) for condition in conditions)
