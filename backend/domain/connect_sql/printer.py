"""Writes statements as text that parses into the same statements, with secrets masked where they are shown."""

import re
from dataclasses import replace
from decimal import Decimal

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.keywords import keywords
from backend.domain.masking import MASK

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SHOWN = ("connector.class",)
"""The properties of a connector that are no secret whatever they say."""


def printed(statement: s.Statement) -> str:
    """The statement on one line, without a semicolon."""
    return _Printer().statement(statement)


def masked(statement: s.Statement) -> str:
    """The same with a mask in place of every value that may be a secret: of the properties of connectors all but the
    class, of the properties of streams and tables none, since these name topics and formats."""
    match statement:
        case s.CreateConnector(properties=properties):
            items = tuple(item if item.key in _SHOWN else replace(item, value=MASK) for item in properties.items)
            statement = replace(statement, properties=replace(properties, items=items))
        case s.CreateSecret() | s.Define():
            statement = replace(statement, value=MASK)
    return printed(statement)


def masked_text(text: str) -> str:
    """A text that does not parse, of which only the keywords before the first value are left: whatever else it holds
    may be secret."""
    shown: list[str] = []
    for word in re.findall(r"[A-Za-z]+|\S", re.split(r"['\"`=]", text[:2000], maxsplit=1)[0]):
        known = word.upper() if word.upper() in keywords() else "…"
        if known != "…" or shown[-1:] != ["…"]:
            shown.append(known)
    return " ".join(shown)


def name(text: str) -> str:
    """A name, quoted where it has to be."""
    if _PLAIN.fullmatch(text) and text.upper() not in keywords():
        return text
    return "`" + text.replace("`", "``") + "`"


def quoted(text: str) -> str:
    """A text in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def expression(node: e.Expression) -> str:
    """An expression; one within another stands in parentheses unless it needs none anywhere."""
    return _Printer().expression(node)


class _Printer:
    def statement(self, node: s.Statement) -> str:
        match node:
            case s.CreateConnector():
                start = f"CREATE {node.direction} CONNECTOR {_unless(node.if_not_exists)}{name(node.name)}"
                return f"{start} WITH ({_properties(node.properties)})"
            case s.DropConnector():
                end = " TERMINATE" if node.terminate else ""
                return f"DROP CONNECTOR {_if(node.if_exists)}{name(node.name)}{end}"
            case s.ChangeConnector():
                return f"{node.change} CONNECTOR {name(node.name)}"
            case s.Describe():
                kind, end = ("CONNECTOR " if node.connector else ""), (" EXTENDED" if node.extended else "")
                return f"DESCRIBE {kind}{name(node.name)}{end}"
            case s.ShowConnectors():
                return f"SHOW {node.direction} CONNECTORS" if node.direction else "SHOW CONNECTORS"
            case s.ShowPlugins():
                return "SHOW CONNECTOR PLUGINS"
            case s.Show():
                return f"SHOW {node.listing}{' EXTENDED' if node.extended else ''}"
            case s.CreateSecret():
                start = f"CREATE {_or(node.or_replace)}SECRET {_unless(node.if_not_exists)}{name(node.name)}"
                return f"{start} AS {quoted(node.value)}"
            case s.DropSecret():
                return f"DROP SECRET {_if(node.if_exists)}{name(node.name)}"
            case s.Define():
                return f"DEFINE {name(node.name)} = {quoted(node.value)}"
            case s.Undefine():
                return f"UNDEFINE {name(node.name)}"
        return self.query_statement(node)

    def query_statement(self, node: s.Statement) -> str:
        match node:
            case s.Declare():
                columns = ", ".join(map(_column, node.columns))
                return f"{_create(node)}{f' ({columns})' if columns else ''} WITH ({_properties(node.properties)})"
            case s.CreateAs():
                return self.create_as(node)
            case s.DropSource():
                end = " DELETE TOPIC" if node.delete_topic else ""
                return f"DROP {node.kind} {_if(node.if_exists)}{name(node.name)}{end}"
            case s.InsertValues():
                columns = f" ({', '.join(map(name, node.columns))})" if node.columns else ""
                return f"INSERT INTO {name(node.name)}{columns} VALUES ({self.list(node.values)})"
            case s.InsertSelect():
                return f"INSERT INTO {name(node.name)} {self.query(node.query)}"
            case s.Explain():
                return f"EXPLAIN {self.subject(node.subject)}"
            case s.Terminate():
                return "TERMINATE ALL" if node.query_id is None else f"TERMINATE {name(node.query_id)}"
            case s.Print():
                beginning = " FROM BEGINNING" if node.from_beginning else ""
                return f"PRINT {name(node.topic)}{beginning}{_limit(node.limit)}"
            case s.Select():
                return self.query(node.query)
        raise TypeError(type(node).__name__)

    def subject(self, node: "str | s.Query | s.CreateAs") -> str:
        match node:
            case str():
                return name(node)
            case s.Query():
                return self.query(node)
        return self.create_as(node)

    def create_as(self, node: s.CreateAs) -> str:
        properties = f" WITH ({_properties(node.properties)})" if node.properties != s.Properties() else ""
        return f"{_create(node)}{properties} AS {self.query(node.query)}"

    def query(self, node: s.Query) -> str:
        parts = [f"SELECT {', '.join(map(self.item, node.items))}", f"FROM {_relation(node.source)}"]
        for join in node.joins:
            within = f" {_within(join.within)}" if join.within else ""
            parts.append(f"{join.kind} JOIN {_relation(join.relation)}{within} ON {self.expression(join.on)}")
        if node.window:
            parts.append(_window(node.window))
        if node.where is not None:
            parts.append(f"WHERE {self.expression(node.where)}")
        if node.group_by:
            parts.append(f"GROUP BY {self.list(node.group_by)}")
        if node.partition_by:
            parts.append(f"PARTITION BY {self.list(node.partition_by)}")
        if node.having is not None:
            parts.append(f"HAVING {self.expression(node.having)}")
        if node.emit:
            parts.append(f"EMIT {node.emit}")
        return " ".join(parts) + _limit(node.limit)

    def item(self, node: s.SelectItem) -> str:
        if node.expression is None:
            return "*" if node.source is None else f"{name(node.source)}.*"
        return self.expression(node.expression) + (f" AS {name(node.name)}" if node.name is not None else "")

    def list(self, nodes: tuple[e.Expression, ...]) -> str:
        return ", ".join(map(self.expression, nodes))

    def inner(self, node: e.Expression) -> str:
        text = self.expression(node)
        return text if isinstance(node, _ATOMS) else f"({text})"

    def expression(self, node: e.Expression) -> str:
        match node:
            case e.Literal(value=value):
                return _literal(value)
            case e.Variable():
                return "${" + node.name + "}"
            case e.Column():
                return name(node.name) if node.source is None else f"{name(node.source)}.{name(node.name)}"
            case e.Field():
                return f"{self.inner(node.struct)}->{name(node.name)}"
            case e.Item():
                return f"{self.inner(node.container)}[{self.expression(node.key)}]"
            case e.Call():
                return f"{name(node.function)}({'*' if node.every_row else self.list(node.arguments)})"
            case e.Case():
                return self.case(node)
            case e.Cast():
                return f"CAST({self.expression(node.operand)} AS {type_name(node.type)})"
            case e.Struct():
                members = (f"{name(member)} := {self.expression(value)}" for member, value in node.members)
                return f"STRUCT({', '.join(members)})"
        return self.operation(node)

    def operation(self, node: e.Expression) -> str:
        match node:
            case e.Operation():
                return f"{self.inner(node.left)} {node.operator} {self.inner(node.right)}"
            case e.Minus():
                return f"- {self.inner(node.operand)}"
            case e.AnyOf():
                return " OR ".join(map(self.inner, node.operands))
            case e.AllOf():
                return " AND ".join(map(self.inner, node.operands))
            case e.Not():
                return f"NOT {self.inner(node.operand)}"
            case e.IsNull():
                return f"{self.inner(node.operand)} IS {_not(node.negated)}NULL"
            case e.Between():
                limits = f"{self.inner(node.low)} AND {self.inner(node.high)}"
                return f"{self.inner(node.operand)} {_not(node.negated)}BETWEEN {limits}"
            case e.InList():
                return f"{self.inner(node.operand)} {_not(node.negated)}IN ({self.list(node.items)})"
            case e.Like():
                return f"{self.inner(node.operand)} {_not(node.negated)}LIKE {self.inner(node.pattern)}"
        raise TypeError(type(node).__name__)

    def case(self, node: e.Case) -> str:
        parts = ["CASE"] if node.operand is None else ["CASE", self.inner(node.operand)]
        for branch in node.branches:
            parts.append(f"WHEN {self.expression(branch.condition)} THEN {self.expression(branch.result)}")
        if node.otherwise is not None:
            parts.append(f"ELSE {self.expression(node.otherwise)}")
        return " ".join([*parts, "END"])


_ATOMS = (e.Literal, e.Variable, e.Column, e.Field, e.Item, e.Call, e.Case, e.Cast, e.Struct)


def type_name(node: e.Type) -> str:
    """A type as it is written."""
    match node:
        case e.PrimitiveType():
            return node.name
        case e.DecimalType():
            return f"DECIMAL({node.precision}, {node.scale})"
        case e.ArrayType():
            return f"ARRAY<{type_name(node.element)}>"
        case e.MapType():
            return f"MAP<{type_name(node.key)}, {type_name(node.value)}>"
        case e.StructType():
            return f"STRUCT<{', '.join(f'{name(field)} {type_name(type)}' for field, type in node.fields)} >"


def _literal(value: "s.Value | float") -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case float():
            return repr(value) if "e" in repr(value) else f"{value!r}e0"
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}"
    return quoted(value)


def _properties(node: s.Properties) -> str:
    items = [f"{_key(item.key)} = {_literal(item.value)}" for item in node.items]
    return ", ".join([*items, "..."] if node.elided else items)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_]\w*([.-]\w+)*", key, re.ASCII) else quoted(key)


def _create(node: "s.Declare | s.CreateAs") -> str:
    return f"CREATE {_or(node.or_replace)}{node.kind} {_unless(node.if_not_exists)}{name(node.name)}"


def _column(node: s.ColumnDefinition) -> str:
    return f"{name(node.name)} {type_name(node.type)}{f' {node.key}' if node.key else ''}"


def _relation(node: s.Relation) -> str:
    return name(node.name) + (f" AS {name(node.alias)}" if node.alias is not None else "")


def _duration(node: s.Duration) -> str:
    return f"{node.amount} {node.unit}"


def _within(node: s.Within) -> str:
    grace = f" GRACE PERIOD {_duration(node.grace)}" if node.grace else ""
    return f"WITHIN ({_duration(node.before)}, {_duration(node.after)}){grace}"


def _window(node: s.Window) -> str:
    parts = [_duration(node.size) if node.kind == "SESSION" else f"SIZE {_duration(node.size)}"]
    if node.advance:
        parts.append(f"ADVANCE BY {_duration(node.advance)}")
    if node.retention:
        parts.append(f"RETENTION {_duration(node.retention)}")
    if node.grace:
        parts.append(f"GRACE PERIOD {_duration(node.grace)}")
    return f"WINDOW {node.kind} ({', '.join(parts)})"


def _limit(limit: int | None) -> str:
    return "" if limit is None else f" LIMIT {limit}"


def _unless(given: bool) -> str:
    return "IF NOT EXISTS " if given else ""


def _if(given: bool) -> str:
    return "IF EXISTS " if given else ""


def _or(given: bool) -> str:
    return "OR REPLACE " if given else ""


def _not(given: bool) -> str:
    return "NOT " if given else ""
