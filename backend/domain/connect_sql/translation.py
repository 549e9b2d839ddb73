"""Writes expressions in Spark SQL, with their types. Columns are fields of a struct that has the alias of their stream
or table as its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.functions import FUNCTIONS, Function
from backend.domain.connect_sql.printer import expression as printed
from backend.domain.connect_sql.printer import type_name
from backend.domain.connect_sql.sources import Source

_LARGEST_INTEGER = 2**31 - 1


@dataclass(frozen=True)
class Typed:
    """An expression in Spark SQL; ``type`` is None for NULL."""

    sql: str
    type: e.Type | None


@dataclass
class Scope:
    """The streams and tables that a query reads, by their aliases."""

    sources: Mapping[str, Source]

    def resolved(self, expression: e.Expression) -> e.Expression:
        """The expression with every column as it is declared, and with the alias of its source. Raises QueryError."""
        if isinstance(expression, e.Column):
            return self._column(expression)
        resolved: e.Expression = mapped(expression, self.resolved)
        return resolved

    def type_of(self, column: e.Column) -> e.Type:
        """Of a column that was resolved."""
        assert column.source is not None
        return dict(self.sources[column.source].all_columns())[column.name]

    def _column(self, column: e.Column) -> e.Column:
        sources = self.sources
        if column.source is not None:
            alias = member_named(column.source, list(sources))
            if alias is None:
                raise QueryError(f"The query reads nothing that is called {column.source}.")
            sources = {alias: sources[alias]}
        found: list[e.Column] = []
        for alias, source in sources.items():
            name = member_named(column.name, [name for name, _ in source.all_columns()])
            if name is not None:
                found.append(e.Column(name, alias))
        if not found:
            raise QueryError(f"There is no column {column.name} in {' or '.join(sources)}.")
        if len(found) > 1:
            either = " or ".join(f"{one.source}.{one.name}" for one in found)
            raise QueryError(f"Several of the sources have the column {column.name}: write {either}.")
        return found[0]


def member_named(name: str, names: list[str]) -> str | None:
    """The one of the names that is meant: the same, or else the only one that differs in case only."""
    if name in names:
        return name
    same = [one for one in names if one.lower() == name.lower()]
    return same[0] if len(same) == 1 else None


def mapped(part: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of the expression, of whose direct parts each was changed."""

    def inner(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(inner, value))
        return change(value) if isinstance(value, e.Expression) else value

    if not is_dataclass(part):
        return part
    return replace(part, **{one.name: inner(getattr(part, one.name)) for one in fields(part)})  # type: ignore[type-var]


def aggregates(expression: e.Expression) -> bool:
    """Whether the expression calls a function of all rows of a group."""
    if isinstance(expression, e.Call) and (known := FUNCTIONS.get(expression.function.upper())) and known.aggregates:
        return True
    if isinstance(expression, e.Call) and expression.every_row:
        return True
    inner: list[bool] = []

    def visit(part: e.Expression) -> e.Expression:
        inner.append(aggregates(part))
        return part

    mapped(expression, visit)
    return any(inner)


@dataclass
class Translator:
    """Translates expressions that were resolved. With ``known``, which has the expressions of GROUP BY, every column
    has to be in one of these or in a call of a function of all rows; such calls are collected in ``calls``, with
    names."""

    scope: Scope
    known: Mapping[e.Expression, Typed] | None = None
    calls: dict[str, str] = field(default_factory=dict)

    def translate(self, node: e.Expression) -> Typed:
        """Raises QueryError."""
        if self.known is not None and node in self.known:
            return self.known[node]
        match node:
            case e.Literal(value=value):
                return _literal(value)
            case e.Column():
                if self.known is not None:
                    raise QueryError(f"The column {node.name} is neither in GROUP BY nor in an aggregate function.")
                return Typed(f"{t.quoted_name(node.source or '')}.{t.quoted_name(node.name)}", self.scope.type_of(node))
            case e.Call():
                return self._call(node)
            case e.Operation():
                return self._operation(node)
            case e.Field(struct=struct, name=name):
                return self._field(self.translate(struct), name, node)
            case e.Item(container=container, key=key):
                return self._item(self.translate(container), self.translate(key), node)
            case e.Minus(operand=operand):
                return self._minus(self.translate(operand), node)
            case e.Cast(operand=operand, type=type):
                return Typed(f"CAST({self.translate(operand).sql} AS {t.spark_type(type)})", type)
            case e.Case():
                return self._case(node)
            case e.Struct(members=members):
                return self._struct(members)
        return self._predicate(node)

    def condition(self, node: e.Expression) -> str:
        """The expression, which has to be true or false. Raises QueryError."""
        typed = self.translate(node)
        if typed.type not in (None, t.BOOLEAN):
            raise QueryError(f"This is no condition: {printed(node)}.")
        return typed.sql

    def _predicate(self, node: e.Expression) -> Typed:
        match node:
            case e.AnyOf(operands=operands):
                sql = " OR ".join(f"({self.condition(one)})" for one in operands)
            case e.AllOf(operands=operands):
                sql = " AND ".join(f"({self.condition(one)})" for one in operands)
            case e.Not(operand=operand):
                sql = f"NOT ({self.condition(operand)})"
            case e.IsNull(operand=operand, negated=negated):
                sql = f"({self.translate(operand).sql}) IS {'NOT ' if negated else ''}NULL"
            case e.Between(operand=operand, low=low, high=high, negated=negated):
                one, least, most = (self.translate(part) for part in (operand, low, high))
                _comparable(node, one, least, most)
                sql = f"({one.sql}) {'NOT ' if negated else ''}BETWEEN ({least.sql}) AND ({most.sql})"
            case e.InList(operand=operand, items=items, negated=negated):
                one, among = self.translate(operand), [self.translate(item) for item in items]
                _comparable(node, one, *among)
                listed = ", ".join(item.sql for item in among)
                sql = f"({one.sql}) {'NOT ' if negated else ''}IN ({listed})"
            case e.Like(operand=operand, pattern=pattern, negated=negated):
                one, like = self.translate(operand), self.translate(pattern)
                if one.type != t.VARCHAR or like.type != t.VARCHAR:
                    raise QueryError(f"LIKE compares texts: {printed(node)}.")
                sql = f"({one.sql}) {'NOT ' if negated else ''}LIKE ({like.sql})"
            case _:
                raise QueryError(f"This cannot be part of a query: {printed(node)}.")
        return Typed(sql, t.BOOLEAN)

    def _operation(self, node: e.Operation) -> Typed:
        left, right = self.translate(node.left), self.translate(node.right)
        sql = f"({left.sql}) {node.operator} ({right.sql})"
        if node.operator in ("=", "<>", "<", "<=", ">", ">="):
            _comparable(node, left, right)
            return Typed(sql, t.BOOLEAN)
        if left.type is None or right.type is None:
            return Typed("NULL", None)
        if t.VARCHAR in (left.type, right.type) and node.operator in ("||", "+"):
            if left.type != right.type:
                raise QueryError(f"Only texts can be put together: CAST the other one in {printed(node)}.")
            return Typed(f"({left.sql}) || ({right.sql})", t.VARCHAR)
        try:
            type = t.arithmetic(node.operator, left.type, right.type)
        except TypeError:
            raise QueryError(f"This needs two numbers: {printed(node)}.") from None
        if node.operator == "/" and t.is_whole(type):
            sql = f"({left.sql}) DIV ({right.sql})"
        if isinstance(type, e.DecimalType):
            sql = f"{_as_decimal(left)} {node.operator} {_as_decimal(right)}"
        return Typed(f"CAST({sql} AS {t.spark_type(type)})", type)

    def _call(self, node: e.Call) -> Typed:
        if node.every_row:
            if node.function.upper() != "COUNT":
                raise QueryError(f"Only COUNT takes a star: {printed(node)}.")
            return self._of_group(Typed("count(1)", t.BIGINT))
        function = FUNCTIONS.get(node.function.upper())
        if function is None:
            raise QueryError(f"There is no function {node.function}.")
        if not function.least <= len(node.arguments) <= function.most:
            raise QueryError(f"This is the wrong number of arguments: {printed(node)}.")
        if not function.aggregates:
            return self._called(node, function, self)
        if self.known is None:
            raise QueryError(f"This needs GROUP BY, and may stand in SELECT and HAVING only: {printed(node)}.")
        return self._of_group(self._called(node, function, Translator(self.scope)))

    def _of_group(self, typed: Typed) -> Typed:
        if self.known is None:
            raise QueryError("COUNT needs GROUP BY, and may stand in SELECT and HAVING only.")
        name = self.calls.setdefault(typed.sql, f"__aggregate_{len(self.calls)}")
        return Typed(name, typed.type)

    @staticmethod
    def _called(node: e.Call, function: Function, translator: "Translator") -> Typed:
        arguments = [translator.translate(argument) for argument in node.arguments]
        try:
            type = function.result([argument.type for argument in arguments])
        except TypeError:
            given = ", ".join(_shown(argument.type) for argument in arguments)
            raise QueryError(f"{node.function} does not take {given}: {printed(node)}.") from None
        sqls = [argument.sql for argument in arguments]
        sql = function.template.format(*sqls, all=", ".join(sqls))
        return Typed(f"CAST({sql} AS {t.spark_type(type)})" if type is not None else sql, type)

    @staticmethod
    def _field(struct: Typed, name: str, node: e.Expression) -> Typed:
        if isinstance(struct.type, e.StructType):
            members = dict(struct.type.fields)
            if (member := member_named(name, list(members))) is not None:
                return Typed(f"({struct.sql}).{t.quoted_name(member)}", members[member])
        raise QueryError(f"There is no such field: {printed(node)}.")

    @staticmethod
    def _item(container: Typed, key: Typed, node: e.Expression) -> Typed:
        match container.type:
            case e.ArrayType(element=element) if t.is_whole(key.type):
                return Typed(f"try_element_at({container.sql}, CAST({key.sql} AS INT))", element)
            case e.MapType(key=of, value=value) if key.type == of:
                return Typed(f"try_element_at({container.sql}, {key.sql})", value)
        raise QueryError(f"This needs an array and a whole number, or a map and one of its keys: {printed(node)}.")

    @staticmethod
    def _minus(operand: Typed, node: e.Expression) -> Typed:
        if operand.type is not None and not t.is_numeric(operand.type):
            raise QueryError(f"This needs a number: {printed(node)}.")
        return Typed(f"-({operand.sql})", operand.type)

    def _case(self, node: e.Case) -> Typed:
        operand = self.translate(node.operand) if node.operand is not None else None
        parts = ["CASE" if operand is None else f"CASE {operand.sql}"]
        type: e.Type | None = None
        results = [self.translate(branch.result) for branch in node.branches]
        for branch, result in zip(node.branches, results, strict=True):
            when = self.condition(branch.condition) if operand is None else self.translate(branch.condition).sql
            parts.append(f"WHEN {when} THEN {result.sql}")
        if node.otherwise is not None:
            results.append(self.translate(node.otherwise))
            parts.append(f"ELSE {results[-1].sql}")
        try:
            for result in results:
                type = t.common(type, result.type)
        except TypeError:
            raise QueryError(f"The results have different types: {printed(node)}.") from None
        return Typed(" ".join([*parts, "END"]), type)

    def _struct(self, members: tuple[tuple[str, e.Expression], ...]) -> Typed:
        typed = [(name, self.translate(member)) for name, member in members]
        if empty := next((name for name, member in typed if member.type is None), None):
            raise QueryError(f"The type of {empty} is unknown: CAST the NULL.")
        listed = ", ".join(f"{text_literal(name)}, {member.sql}" for name, member in typed)
        pairs = tuple((name, member.type) for name, member in typed if member.type is not None)
        return Typed(f"named_struct({listed})", e.StructType(pairs))


def _as_decimal(typed: Typed) -> str:
    """Spark would give a constant no more digits than it has, and the result fewer than its type says."""
    assert typed.type is not None
    return f"CAST({typed.sql} AS {t.spark_type(t.decimal_of(typed.type))})"


def _comparable(node: e.Expression, first: Typed, *others: Typed) -> None:
    try:
        type = first.type
        for other in others:
            type = t.common(type, other.type)
    except TypeError:
        types = " and ".join(dict.fromkeys(_shown(one.type) for one in (first, *others)))
        raise QueryError(f"{types} cannot be compared: {printed(node)}.") from None


def _shown(type: e.Type | None) -> str:
    return "NULL" if type is None else type_name(type)


def _literal(value: str | int | Decimal | float | bool | None) -> Typed:
    match value:
        case None:
            return Typed("NULL", None)
        case bool():
            return Typed(str(value).upper(), t.BOOLEAN)
        case str():
            return Typed(text_literal(value), t.VARCHAR)
        case int():
            return Typed(str(value), t.INTEGER) if value <= _LARGEST_INTEGER else Typed(f"{value}L", t.BIGINT)
        case float():
            return Typed(f"{value!r}D", t.DOUBLE)
    digits, exponent = len(value.as_tuple().digits), value.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 0
    if max(digits, scale) > 38:
        raise QueryError("A decimal number has at most 38 digits.")
    return Typed(f"{value:f}BD", e.DecimalType(max(digits, scale), scale))


def text_literal(value: str) -> str:
    """A literal of Spark SQL, in which a backslash escapes."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
