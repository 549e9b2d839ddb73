"""How two sources are joined."""

from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.printer import expression as printed
from backend.domain.connect_sql.sources import Source
from backend.domain.connect_sql.translation import Scope, Translator, mapped

GRACE_MILLISECONDS = 24 * 3_600_000
"""How late a row may come unless the statement says otherwise."""
Sides = tuple[e.Expression, e.Expression]
"""The expressions of ON, of the first source and of the second."""


@dataclass(frozen=True)
class TableJoin:
    """The second input is a table, whose latest row by key is added to each row of the first. The keys are texts in
    Spark SQL: of the first input's row, and of the table's."""

    stream_key: str
    table_key: str
    keeps_unmatched: bool


@dataclass(frozen=True)
class TablesJoin:
    """Both inputs are tables, joined by their keys, which are texts in Spark SQL. ``kind`` is INNER, LEFT, RIGHT or
    FULL."""

    left_key: str
    right_key: str
    kind: str


@dataclass(frozen=True)
class StreamJoin:
    """Both inputs are streams. Rows are joined that have the same key, if the second's time is at most ``before``
    milliseconds before the first's and ``after`` milliseconds after it. Rows may come ``late`` milliseconds late.
    ``kind`` is one of Spark's, and the keys are texts in Spark SQL."""

    left_key: str
    right_key: str
    kind: str
    before: int
    after: int
    late: int


Join = TableJoin | TablesJoin | StreamJoin
_KINDS = {"INNER": "inner", "LEFT": "left_outer", "RIGHT": "right_outer", "FULL": "full_outer"}


def join_of(query: s.Query, sources: Sequence[Source], scope: Scope) -> tuple[Join | None, Sides | None]:
    """How the query joins its sources, if it does. Raises QueryError."""
    if not query.joins:
        return None, None
    if len(query.joins) > 1:
        raise QueryError("A query joins two sources: join the result with the third in another.", supported=False)
    [join] = query.joins
    kinds = [source.kind for source in sources]
    if kinds == [s.Kind.STREAM, s.Kind.TABLE]:
        return _with_table(join, sources[1], scope)
    if kinds == [s.Kind.STREAM, s.Kind.STREAM]:
        return _of_streams(join, scope)
    if kinds == [s.Kind.TABLE, s.Kind.TABLE]:
        return _of_tables(join, sources, scope)
    raise QueryError("A stream is joined with a table in this order: FROM the stream JOIN the table.")


def keys_of(join: s.Join, sides: Sides) -> tuple[e.Expression, ...]:
    """What is the key of the joined rows: expressions of the same value."""
    match join.kind:
        case "INNER":
            return sides
        case "FULL":
            return (e.Call("COALESCE", sides),)
        case "RIGHT":
            return (sides[1],)
    return (sides[0],)


def _with_table(join: s.Join, table: Source, scope: Scope) -> tuple[TableJoin, Sides]:
    if join.kind not in ("INNER", "LEFT"):
        raise QueryError("A join of a stream with a table is INNER or LEFT.")
    _check_tables(join, table)
    sides = _sides(join.on, scope)
    alias = list(scope.sources)[1]
    key = e.Column(table.keys[0].name, alias)
    if sides is None or sides[1] != key:
        raise QueryError(f"A table is joined by its primary key: ON … = {alias}.{key.name}.")
    left, right = _keys(join.on, sides, scope)
    return TableJoin(left, right, join.kind == "LEFT"), sides


def _of_tables(join: s.Join, tables: Sequence[Source], scope: Scope) -> tuple[TablesJoin, Sides]:
    _check_tables(join, *tables)
    sides = _sides(join.on, scope)
    keys = tuple(e.Column(table.keys[0].name, alias) for alias, table in scope.sources.items())
    if sides != keys:
        text = " = ".join(f"{key.source}.{key.name}" for key in keys)
        raise QueryError(f"Two tables are joined by their primary keys: ON {text}.", supported=sides is None)
    left, right = _keys(join.on, sides, scope)
    return TablesJoin(left, right, join.kind), sides


def _check_tables(join: s.Join, *tables: Source) -> None:
    if join.within is not None:
        raise QueryError("WITHIN is for joins of two streams: a table has one row for each key, whatever its time.")
    if any(table.window or len(table.keys) != 1 for table in tables):
        raise QueryError("A table that is joined has one key column, and no windows.", supported=False)


def _of_streams(join: s.Join, scope: Scope) -> tuple[StreamJoin, Sides]:
    within = join.within
    if within is None:
        raise QueryError("A join of two streams needs WITHIN, such as WITHIN 1 HOUR: how far apart their rows may be.")
    if join.kind != "INNER" and within.grace is None:
        text = "This join needs GRACE PERIOD after WITHIN: rows without a counterpart are written once it has passed."
        raise QueryError(text)
    sides = _sides(join.on, scope)
    if sides is None:
        left, right = scope.sources
        raise QueryError(f"Two streams are joined by one equation between them: ON {left}.… = {right}.….")
    left_key, right_key = _keys(join.on, sides, scope)
    late = within.grace.milliseconds if within.grace else GRACE_MILLISECONDS
    before, after = within.before.milliseconds, within.after.milliseconds
    return StreamJoin(left_key, right_key, _KINDS[join.kind], before, after, late), sides


def _keys(on: e.Expression, sides: Sides, scope: Scope) -> tuple[str, str]:
    translator = Translator(scope)
    one, other = (translator.translate(side) for side in sides)
    if one.type != other.type and not (t.is_whole(one.type) and t.is_whole(other.type)):
        raise QueryError(f"The two sides of ON have different types: CAST one of them: {printed(on)}.")
    return f"CAST({one.sql} AS STRING)", f"CAST({other.sql} AS STRING)"


def _sides(on: e.Expression, scope: Scope) -> Sides | None:
    """None if it is no equation between the first source and the second."""
    first, second = scope.sources
    resolved = scope.resolved(on)
    if isinstance(resolved, e.Operation) and resolved.operator == "=":
        for one, other in ((resolved.left, resolved.right), (resolved.right, resolved.left)):
            if _reads(one, first) and _reads(other, second) and not (_reads(one, second) or _reads(other, first)):
                return one, other
    return None


def _reads(expression: e.Expression, alias: str) -> bool:
    if isinstance(expression, e.Column):
        return expression.source == alias
    parts: list[bool] = []

    def visit(part: e.Expression) -> e.Expression:
        parts.append(_reads(part, alias))
        return part

    mapped(expression, visit)
    return any(parts)
