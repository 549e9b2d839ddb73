"""What Spark does for a query. Whatever is particular to a query is in expressions and a SELECT of Spark SQL, so that
the Spark job only has to read, join, run the SELECT and write."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.joins import GRACE_MILLISECONDS, StreamJoin, TableJoin, TablesJoin, join_of, keys_of
from backend.domain.connect_sql.printer import expression as printed
from backend.domain.connect_sql.sources import WINDOW_COLUMNS, Source, check, fits_kafka
from backend.domain.connect_sql.translation import Scope, Translator, Typed, aggregates, text_literal

ROWS = "rows"
"""The view that a plan's SELECT reads: a struct for each source, named as its alias, the columns of PSEUDO_COLUMNS,
``event_time``, ``alive``, which is false for the tombstones of a table, and the record's ``key`` and ``headers``."""


@dataclass(frozen=True)
class Input:
    """A topic that is read. ``value_type`` is the type of its values in Spark SQL. ``row`` makes the struct of a row of
    a record's ``key``, ``value`` as read, and metadata; ``time`` is the row's time, of the struct ``alias``."""

    alias: str
    topic: str
    value_format: str
    value_type: str
    row: str
    time: str
    is_table: bool
    from_beginning: bool = True
    starts: dict[str, int] | None = None
    """The first offset of each partition, if not its beginning or its end."""


@dataclass(frozen=True)
class Plan:
    """``select`` gives ``key`` and ``value`` of the records to write; ``late_milliseconds`` is how long windows wait.
    ``mode`` is Spark's output mode."""

    inputs: list[Input]
    select: str
    topic: str
    mode: str = "append"
    join: TableJoin | None = None
    tables_join: TablesJoin | None = None
    stream_join: StreamJoin | None = None
    late_milliseconds: int | None = None
    onward: bool = False
    """Whether records are a pipeline's messages, which keep their keys and headers and go on as their routing slips
    say; ``topic`` is then their source."""

    @property
    def state(self) -> tuple[object, ...]:
        """What a checkpoint depends on: plans that are equal in it can replace one another."""
        # Two streams are remembered with the columns that the query needs.
        stateful = self.select if self.mode == "update" or self.stream_join else ""
        tables = self.tables_join and (self.tables_join.left_key, self.tables_join.right_key)
        joins = (self.join and self.join.table_key, tables, self.stream_join)
        return ([one.topic for one in self.inputs], joins, stateful, self.late_milliseconds)


@dataclass(frozen=True)
class Target:
    """Where a query's rows go: what it makes, or the stream or table that is there already. Without ``topic`` it is
    named as the source."""

    kind: s.Kind
    name: str
    topic: str | None = None
    value_format: str = "JSON"
    key_format: str | None = None
    from_beginning: bool = True
    onward: bool = False
    """As in Plan."""


@dataclass(frozen=True)
class _Column:
    name: str
    typed: Typed
    expression: e.Expression = field(compare=False)


def plan_of(query: s.Query, sources: Sequence[Source], target: Target) -> tuple[Plan, Source]:
    """The plan of a persistent query, and the stream or table that it makes. ``sources`` are those of its FROM and JOIN
    clauses, in their order. Raises QueryError."""
    return _Planner(query, sources, target).plan()


def is_grouped(query: s.Query) -> bool:
    """Whether the query gives a row for each group of rows."""
    return bool(query.group_by) or any(aggregates(item.expression) for item in query.items if item.expression)


def columns_of_select(query: s.Query, scope: Scope) -> list[tuple[str, e.Expression]]:
    """The columns of SELECT, with their names. Raises QueryError."""
    items: list[tuple[str, e.Expression]] = []
    for item in query.items:
        one = item.expression
        if one is None:
            items += _every_column(item.source, scope)
            continue
        if query.window is not None and isinstance(one, e.Column) and one.name.upper() in WINDOW_COLUMNS:
            one = e.Column(one.name.upper())
        else:
            one = scope.resolved(one)
        name = item.name or (one.name if isinstance(one, e.Column | e.Field) else f"COL_{len(items)}")
        items.append((name, one))
    names = [name for name, _ in items]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise QueryError(f"Two columns of the result are called {twice}: give one of them another name with AS.")
    return items


def _every_column(source: str | None, scope: Scope) -> list[tuple[str, e.Expression]]:
    aliases = [alias for alias in scope.sources if source is None or alias.lower() == source.lower()]
    if not aliases:
        raise QueryError(f"The query reads nothing that is called {source}.")
    several = len(aliases) > 1
    return [
        (f"{alias}_{column.name}" if several else column.name, e.Column(column.name, alias))
        for alias in aliases
        for column in scope.sources[alias].columns
    ]


class _Planner:
    def __init__(self, query: s.Query, sources: Sequence[Source], target: Target) -> None:
        relations = [query.source, *(join.relation for join in query.joins)]
        aliases = [relation.alias or source.name for relation, source in zip(relations, sources, strict=True)]
        if len({alias.lower() for alias in aliases}) < len(aliases):
            raise QueryError("Two sources have the same name: give one of them an alias.")
        self._query = query
        self._target = target
        self._scope = Scope(dict(zip(aliases, sources, strict=True)))
        self._aliases = aliases
        self._sources = list(sources)
        self._rows = Translator(self._scope)

    def plan(self) -> tuple[Plan, Source]:
        query = self._query
        if query.emit == "FINAL" and query.window is None:
            raise QueryError("EMIT FINAL needs a window, whose results it waits for.")
        join, self._sides = join_of(query, self._sources, self._scope)
        if isinstance(join, StreamJoin) and is_grouped(query):
            text = "A query that joins two streams does not group: let it make a stream, and group that in another."
            raise QueryError(text, supported=False)
        plan, source = self._grouped() if is_grouped(query) else self._projected()
        inputs = [self._input(alias, one) for alias, one in zip(self._aliases, self._sources, strict=True)]
        plan = replace(plan, inputs=inputs)
        match join:
            case StreamJoin():
                plan = replace(plan, stream_join=join)
            case TablesJoin():
                plan = replace(plan, tables_join=join)
            case TableJoin():
                plan = replace(plan, join=join)
        return plan, source

    def _input(self, alias: str, source: Source) -> Input:
        decoded = {column.name: _decoded(column) for column in source.values}
        decoded |= dict(zip((one.name for one in source.keys), _keys_of(source), strict=True))
        own = {"ROWPARTITION": "partition", "ROWOFFSET": "offset"}
        own["ROWTIME"] = "unix_millis(timestamp)"
        if source.window:
            own["WINDOWSTART"], own["WINDOWEND"] = _bounds(source)
        if source.timestamp is not None:
            of = decoded[source.timestamp]
            is_time = dict(source.all_columns())[source.timestamp] == t.TIMESTAMP
            own["ROWTIME"] = f"unix_millis({of})" if is_time else of
        row = ", ".join(f"{text_literal(name)}, {sql}" for name, sql in (decoded | own).items())
        fields = [f"{t.quoted_name(one.name)}: {_stored_type(one.type)}" for one in source.values]
        return Input(
            alias=alias,
            topic=source.topic,
            value_format=source.value_format,
            value_type=f"STRUCT<{', '.join(fields)}>",
            row=f"named_struct({row})",
            time=f"timestamp_millis({t.quoted_name(alias)}.ROWTIME)",
            is_table=source.kind is s.Kind.TABLE,
            from_beginning=self._target.from_beginning or source.kind is s.Kind.TABLE,
        )

    # -- rows in, rows out ------------------------------------------------------------

    def _projected(self) -> tuple[Plan, Source]:
        query, target = self._query, self._target
        from_table = self._sources[0].kind is s.Kind.TABLE
        if query.window is not None or query.having is not None:
            raise QueryError("WINDOW and HAVING need GROUP BY.")
        kind = s.Kind.TABLE if from_table else s.Kind.STREAM
        if target.kind is not kind:
            other = "a table: write CREATE TABLE" if from_table else "a stream: write CREATE STREAM, or GROUP BY"
            raise QueryError(f"The result is {other}.")
        columns = [_Column(name, self._rows.translate(one), one) for name, one in columns_of_select(query, self._scope)]
        keys = self._keys(columns)
        if len(query.partition_by) > 1 or (query.partition_by and from_table):
            raise QueryError("PARTITION BY takes one expression, of a stream.", supported=False)
        source = self._result(columns, keys)
        where = self._rows.condition(self._scope.resolved(query.where)) if query.where is not None else ""
        value = _encoded_row(source, columns)
        if from_table:
            condition = f"alive AND ({where})" if where else "alive"
            value, where = f"CASE WHEN {condition} THEN {value} END", ""
        key = f"{_encoded_key(source, [one.typed for one in keys])} AS key"
        if target.onward:
            key = "key, headers"
        select = f"SELECT {key}, {value} AS value FROM {ROWS}" + (f" WHERE {where}" if where else "")
        return Plan(inputs=[], select=select, topic=source.topic, onward=target.onward), source

    def _keys(self, columns: list[_Column]) -> list[_Column]:
        """What becomes the records' key: as columns of the result, if it has them."""
        wanted: list[tuple[e.Expression, ...]]
        if self._query.partition_by:
            wanted = [(self._scope.resolved(self._query.partition_by[0]),)]
        elif self._sides is not None:
            wanted = [keys_of(self._query.joins[0], self._sides)]
        else:
            wanted = [(e.Column(one.name, self._aliases[0]),) for one in self._sources[0].keys]
        keys = []
        for same in wanted:
            one = same[0]
            column = next((column for column in columns if column.expression in same), None)
            if column is None and self._target.kind is s.Kind.TABLE:
                raise QueryError(f"The key has to be among the columns of a table: SELECT {printed(one)} too.")
            keys.append(column or _Column("", self._rows.translate(one), one))
        return keys

    # -- groups ------------------------------------------------------------

    def _grouped(self) -> tuple[Plan, Source]:
        query, window = self._query, self._query.window
        if self._target.kind is not s.Kind.TABLE:
            raise QueryError("What GROUP BY gives is a table: write CREATE TABLE.")
        if self._sources[0].kind is s.Kind.TABLE:
            raise QueryError("This release groups the rows of streams, not those of tables.", supported=False)
        if not query.group_by:
            raise QueryError("An aggregate function needs GROUP BY.")
        if query.partition_by:
            raise QueryError("PARTITION BY and GROUP BY cannot stand in one query.")
        groups = [self._scope.resolved(one) for one in query.group_by]
        inner = {one: self._rows.translate(one) for one in groups}
        known = {one: Typed(f"__group_{number}", inner[one].type) for number, one in enumerate(groups)}
        translator = Translator(self._scope, dict(known))
        if window is not None and window.kind == "SESSION" and query.emit != "FINAL":
            raise QueryError("A session is written once it has ended: use EMIT FINAL.", supported=False)
        if window is not None:
            for bound, part in (("WINDOWSTART", "start"), ("WINDOWEND", "end")):
                translator.known[e.Column(bound)] = Typed(f"unix_millis(__window.{part})", t.BIGINT)  # type: ignore[index]
        if any(item.expression is None for item in query.items):
            raise QueryError("A star cannot stand beside GROUP BY: name the columns.")
        columns = [_Column(name, translator.translate(one), one) for name, one in columns_of_select(query, self._scope)]
        if missing := next((one for one in groups if one not in [column.expression for column in columns]), None):
            raise QueryError(f"The key has to be among the columns of a table: SELECT {printed(missing)} too.")
        keys = [column for column in columns if column.expression in groups]
        having = translator.condition(self._scope.resolved(query.having)) if query.having is not None else None
        # The bounds are columns of every windowed table.
        stored = [one for one in columns if one.expression not in _BOUNDS or one.name.upper() not in WINDOW_COLUMNS]
        source = self._result(stored, keys)
        selected = [f"{inner[one].sql} AS {known[one].sql}" for one in groups]
        selected += [f"{sql} AS {name}" for sql, name in translator.calls.items()]
        by = [inner[one].sql for one in groups]
        late = None
        if window is not None:
            by.append(_window(window))
            selected.append(f"{'session_window' if window.kind == 'SESSION' else 'window'} AS __window")
            late = window.grace.milliseconds if window.grace else GRACE_MILLISECONDS
        # Rows whose key is NULL belong to no group.
        where = " AND ".join(f"({one}) IS NOT NULL" for one in (inner[group].sql for group in groups))
        if query.where is not None:
            where += f" AND ({self._rows.condition(self._scope.resolved(query.where))})"
        groups_sql = f"SELECT {', '.join(selected)} FROM {ROWS} WHERE {where} GROUP BY {', '.join(by)}"
        value = _encoded_row(source, stored)
        if having is not None:
            value = f"CASE WHEN {having} THEN {value} END"
        key = _encoded_key(source, [one.typed for one in keys])
        select = f"SELECT {key} AS key, {value} AS value FROM ({groups_sql})"
        mode = "append" if query.emit == "FINAL" else "update"
        return Plan(inputs=[], select=select, topic=source.topic, mode=mode, late_milliseconds=late), source

    # -- the result ------------------------------------------------------------

    def _result(self, columns: list[_Column], keys: list[_Column]) -> Source:
        if unknown := next((column for column in columns if column.typed.type is None), None):
            raise QueryError(f"The type of {unknown.name} is unknown: CAST the NULL.")
        target, window = self._target, self._query.window
        marker = "PRIMARY KEY" if target.kind is s.Kind.TABLE else "KEY"
        named = [column.name for column in keys if column.name]
        definitions = tuple(
            s.ColumnDefinition(one.name, one.typed.type, marker if one.name in named else None)  # type: ignore[arg-type]
            for one in columns
        )
        key_columns = [s.ColumnDefinition(one.name, one.typed.type or t.VARCHAR) for one in keys]
        key_format = target.key_format or ("KAFKA" if fits_kafka(key_columns) else "JSON")
        if key_format == "KAFKA" and not fits_kafka(key_columns):
            raise QueryError("This key cannot be written in the format KAFKA: use key_format = 'JSON'.")
        source = Source(
            name=target.name,
            kind=target.kind,
            topic=target.topic or target.name,
            columns=definitions,
            value_format=target.value_format,
            key_format=key_format,
            window=window.kind if window else None,
            window_size=window.size.milliseconds if window and window.kind != "SESSION" else None,
        )
        check(source)
        return source


_BOUNDS = (e.Column("WINDOWSTART"), e.Column("WINDOWEND"))


def _window(window: s.Window) -> str:
    size = f"'{window.size.milliseconds} milliseconds'"
    match window.kind:
        case "SESSION":
            return f"session_window(event_time, {size})"
        case "HOPPING":
            assert window.advance is not None
            return f"window(event_time, {size}, '{window.advance.milliseconds} milliseconds')"
    return f"window(event_time, {size})"


# -- what is stored in records ------------------------------------------------------------


def _stored_type(type: e.Type) -> str:
    """Times are stored as numbers: milliseconds and days since 1970."""
    if type == t.TIMESTAMP:
        return "BIGINT"
    return "INT" if type == t.DATE else t.spark_type(type)


def _decoded(column: s.ColumnDefinition) -> str:
    sql = f"value.{t.quoted_name(column.name)}"
    return _from_stored(sql, column.type)


def _from_stored(sql: str, type: e.Type) -> str:
    if type == t.TIMESTAMP:
        return f"timestamp_millis({sql})"
    return f"date_from_unix_date({sql})" if type == t.DATE else sql


def _to_stored(sql: str, type: e.Type | None) -> str:
    if type == t.TIMESTAMP:
        return f"unix_millis({sql})"
    return f"unix_date({sql})" if type == t.DATE else sql


def _encoded_row(source: Source, columns: Sequence[_Column]) -> str:
    """The struct of the columns that are in a record's value; the job writes it in the source's format."""
    by_name = {one.name: one for one in columns}
    parts = []
    for column in source.values:
        typed = by_name[column.name].typed
        sql = _to_stored(f"CAST({typed.sql} AS {t.spark_type(column.type)})", column.type)
        parts.append(f"{text_literal(column.name)}, {sql}")
    if not parts:
        raise QueryError("A row has to have a column beside its key.")
    return f"named_struct({', '.join(parts)})"


_BOUND_BYTES = 8


def _keys_of(source: Source) -> list[str]:
    """The key columns, of a record's ``key``."""
    keys = source.keys
    raw = "key"
    if source.window:
        bounds = 2 * _BOUND_BYTES if source.window == "SESSION" else _BOUND_BYTES
        raw = f"substring(key, 1, octet_length(key) - {bounds})"
    if source.key_format == "KAFKA":
        return [_kafka_key(raw, key.type) for key in keys]
    text = f"CAST({raw} AS STRING)"
    ddl = ", ".join(f"{t.quoted_name(key.name)} {_stored_type(key.type)}" for key in keys)
    whole = f"from_json({text}, {text_literal(ddl)})"
    if len(keys) > 1:
        return [_one_of_json_keys(text, whole, place, key) for place, key in enumerate(keys)]
    return [_single_json_key(text, whole, key) for key in keys]


def _one_of_json_keys(text: str, whole: str, place: int, key: s.ColumnDefinition) -> str:
    """Several key columns are stored as an object, and by inputs that read tables as a list of texts."""
    listed = f"CAST(get(from_json({text}, 'ARRAY<STRING>'), {place}) AS {_stored_type(key.type)})"
    stored = f"CASE WHEN {text} LIKE '[%' THEN {listed} ELSE {whole}.{t.quoted_name(key.name)} END"
    return _from_stored(stored, key.type)


def _single_json_key(text: str, whole: str, key: s.ColumnDefinition) -> str:
    """A single key column is stored as a plain value, and by Kafka Connect as an object with one field."""
    plain = f"get(from_json(concat('[', {text}, ']'), 'ARRAY<{_stored_type(key.type)}>'), 0)"
    stored = f"CASE WHEN {text} LIKE '{{%' THEN {whole}.{t.quoted_name(key.name)} ELSE {plain} END"
    return _from_stored(stored, key.type)


def _kafka_key(raw: str, type: e.Type) -> str:
    if type == t.VARCHAR:
        return f"CAST({raw} AS STRING)"
    number = f"CAST(conv(hex({raw}), 16, -10) AS BIGINT)"
    if type == t.INTEGER:
        return f"CASE WHEN octet_length({raw}) = 4 THEN CAST(shiftright(shiftleft({number}, 32), 32) AS INT) END"
    return f"CASE WHEN octet_length({raw}) = 8 THEN {number} END"


def _bounds(source: Source) -> tuple[str, str]:
    """The start and the end of the window that a record's ``key`` ends with."""

    def number(back: int) -> str:
        return f"CAST(conv(hex(substring(key, octet_length(key) - {back - 1}, 8)), 16, -10) AS BIGINT)"

    if source.window == "SESSION":
        return number(_BOUND_BYTES), number(2 * _BOUND_BYTES)
    return number(_BOUND_BYTES), f"({number(_BOUND_BYTES)} + {source.window_size or 0})"


def _encoded_key(source: Source, keys: Sequence[Typed]) -> str:
    """The record's key. Keys with a window end with its start, those of sessions with its end and its start."""
    if not keys:
        return "CAST(NULL AS BINARY)"
    if source.key_format == "KAFKA":
        key = f"CAST({keys[0].sql} AS BINARY)"
    elif len(keys) == 1:
        text = f"to_json(array({_to_stored(keys[0].sql, keys[0].type)}))"
        key = f"CAST(substring({text}, 2, length({text}) - 2) AS BINARY)"
    else:
        names = [column.name for column in source.keys]
        members = ", ".join(
            f"{text_literal(name)}, {_to_stored(one.sql, one.type)}" for name, one in zip(names, keys, strict=True)
        )
        key = f"CAST(to_json(named_struct({members})) AS BINARY)"
    if source.window is None:
        return key
    start, end = (f"CAST(unix_millis(__window.{part}) AS BINARY)" for part in ("start", "end"))
    return f"concat({key}, {end}, {start})" if source.window == "SESSION" else f"concat({key}, {start})"
