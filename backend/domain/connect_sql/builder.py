"""Makes statements of what the grammar's rules match; called by the parser from the inside out."""

from decimal import Decimal
from typing import Any

from lark import Token, Transformer, v_args
from lark.tree import Meta

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.errors import StatementError
from backend.domain.connect_sql.plain import CONSTANTS, plain_value

_TYPES = {"STRING": "VARCHAR", "INT": "INTEGER"}
_LARGEST = 2**63 - 1


def _text(token: Token) -> str:
    """A token without its quotation marks."""
    mark = token[:1]
    return token[1:-1].replace(mark * 2, mark) if mark in ("'", '"', "`") else str(token)


def _integer(token: Token) -> int:
    digits = str(token)
    if len(digits) > 19 or int(digits) > _LARGEST:
        raise StatementError("This number is too large.", line=token.line or 1, column=token.column or 1)
    return int(digits)


class _Properties(Transformer[Token, Any]):
    def property_key(self, parts: list[Token]) -> Token:
        return parts[0]

    def property_value(self, parts: list[Token]) -> s.Value:
        token = parts[0]
        return plain_value(token) if token.type == "BARE_VALUE" else _text(token)

    def property(self, parts: list[Any]) -> s.Property:
        key, value = parts
        return s.Property(_text(key), value, key.line, key.column)

    def properties(self, parts: list[Any]) -> s.Properties:
        items = [part for part in parts if isinstance(part, s.Property)]
        keys: set[str] = set()
        for item in items:
            if item.key in keys:
                raise StatementError("This property is given twice.", line=item.line, column=item.column)
            keys.add(item.key)
        return s.Properties(tuple(items), elided=any(isinstance(part, Token) for part in parts))


class _Types(Transformer[Token, Any]):
    def primitive_type(self, parts: list[Token]) -> e.Type:
        name = parts[0].upper()
        return e.PrimitiveType(_TYPES.get(name, name))

    def decimal_type(self, parts: list[Token]) -> e.Type:
        precision, scale = map(_integer, parts)
        if not 1 <= precision <= 38 or scale > precision:
            first = parts[0]
            sentence = "A DECIMAL has 1 to 38 digits, and at most as many after the point."
            raise StatementError(sentence, line=first.line or 1, column=first.column or 1)
        return e.DecimalType(precision, scale)

    def array_type(self, parts: list[Any]) -> e.Type:
        return e.ArrayType(parts[0])

    def map_type(self, parts: list[Any]) -> e.Type:
        return e.MapType(parts[0], parts[1])

    def struct_type(self, parts: list[Any]) -> e.Type:
        given = [part for part in parts if part is not None]
        return e.StructType(tuple(zip(given[::2], given[1::2], strict=True)))


class _Expressions(Transformer[Token, Any]):
    def name(self, parts: list[Token]) -> str:
        return _text(parts[0])

    def literal(self, parts: list[Token]) -> e.Expression:
        token = parts[0]
        match token.type:
            case "STRING":
                return e.Literal(_text(token))
            case "VARIABLE":
                return e.Variable(token[2:-1])
            case "INTEGER":
                return e.Literal(_integer(token))
            case "NUMBER":
                return e.Literal(float(token) if "e" in token.lower() else Decimal(token))
        return e.Literal(CONSTANTS[token.type])

    def any_of(self, parts: list[e.Expression]) -> e.Expression:
        return e.AnyOf(tuple(parts))

    def all_of(self, parts: list[e.Expression]) -> e.Expression:
        return e.AllOf(tuple(parts))

    def negate(self, parts: list[e.Expression]) -> e.Expression:
        return e.Not(parts[0])

    def comparison(self, parts: list[Any]) -> e.Expression:
        left, operator, right = parts
        return e.Operation(left, "<>" if operator == "!=" else str(operator), right)

    def is_null(self, parts: list[Any]) -> e.Expression:
        return e.IsNull(parts[0], parts[1] is not None)

    def between(self, parts: list[Any]) -> e.Expression:
        operand, negated, low, high = parts
        return e.Between(operand, low, high, negated is not None)

    def in_list(self, parts: list[Any]) -> e.Expression:
        operand, negated, *items = parts
        return e.InList(operand, tuple(items), negated is not None)

    def like(self, parts: list[Any]) -> e.Expression:
        operand, negated, pattern = parts
        return e.Like(operand, pattern, negated is not None)

    def operation(self, parts: list[Any]) -> e.Expression:
        left, operator, right = parts
        return e.Operation(left, str(operator), right)

    def minus(self, parts: list[e.Expression]) -> e.Expression:
        return e.Minus(parts[0])

    def case(self, parts: list[Any]) -> e.Expression:
        operand, *branches, otherwise = parts
        return e.Case(operand, tuple(branches), otherwise)

    def when(self, parts: list[e.Expression]) -> e.When:
        return e.When(*parts)

    def cast(self, parts: list[Any]) -> e.Expression:
        return e.Cast(parts[0], parts[1])

    def struct(self, parts: list[Any]) -> e.Expression:
        return e.Struct(tuple(zip(parts[::2], parts[1::2], strict=True)))

    def call(self, parts: list[Any]) -> e.Expression:
        return e.Call(parts[0].upper(), tuple(parts[1:]))

    def call_all(self, parts: list[str]) -> e.Expression:
        return e.Call(parts[0].upper(), every_row=True)

    def column_reference(self, parts: list[str | None]) -> e.Expression:
        first, second = parts
        assert first is not None
        return e.Column(first) if second is None else e.Column(second, first)

    def field(self, parts: list[Any]) -> e.Expression:
        return e.Field(parts[0], parts[1])

    def item(self, parts: list[e.Expression]) -> e.Expression:
        return e.Item(parts[0], parts[1])


class _Queries(Transformer[Token, Any]):
    def select_item(self, parts: list[Any]) -> s.SelectItem:
        return s.SelectItem(parts[0], parts[1])

    def all_columns(self, parts: list[str | None]) -> s.SelectItem:
        return s.SelectItem(source=parts[0])

    def alias(self, parts: list[Token]) -> str:
        return _text(parts[0])

    def relation(self, parts: list[Any]) -> s.Relation:
        return s.Relation(parts[0], parts[1])

    def join_kind(self, parts: list[Token]) -> str:
        return str(parts[0].type)

    def join(self, parts: list[Any]) -> s.Join:
        kind, relation, within, on = parts
        return s.Join(kind or "INNER", relation, on, within)

    def within(self, parts: list[Any]) -> s.Within:
        *around, grace = parts
        return s.Within(around[0], around[-1], grace)

    def duration(self, parts: list[Token]) -> s.Duration:
        unit = parts[1].upper()
        return s.Duration(_integer(parts[0]), unit if unit.endswith("S") else f"{unit}S")

    def retention(self, parts: list[s.Duration]) -> s.Duration:
        return parts[0]

    def grace(self, parts: list[s.Duration]) -> s.Duration:
        return parts[0]

    def tumbling(self, parts: list[Any]) -> s.Window:
        size, retention, grace = parts
        return s.Window("TUMBLING", size, None, retention, grace)

    def hopping(self, parts: list[Any]) -> s.Window:
        return s.Window("HOPPING", *parts)

    def session(self, parts: list[Any]) -> s.Window:
        size, retention, grace = parts
        return s.Window("SESSION", size, None, retention, grace)

    def window(self, parts: list[s.Window]) -> s.Window:
        return parts[0]

    def where(self, parts: list[e.Expression]) -> e.Expression:
        return parts[0]

    having = where

    def group_by(self, parts: list[e.Expression]) -> tuple[e.Expression, ...]:
        return tuple(parts)

    partition_by = group_by

    def emit(self, parts: list[Token]) -> str:
        return str(parts[0].type)

    def limit(self, parts: list[Token]) -> int:
        return _integer(parts[0])

    def query(self, parts: list[Any]) -> s.Query:
        tail = parts[-7:]
        items = tuple(part for part in parts if isinstance(part, s.SelectItem))
        source = next(part for part in parts if isinstance(part, s.Relation))
        joins = tuple(part for part in parts if isinstance(part, s.Join))
        window, where, group_by, partition_by, having, emit, limit = tail
        return s.Query(items, source, joins, window, where, group_by or (), partition_by or (), having, emit, limit)


@v_args(meta=True)
class _Statements(Transformer[Token, Any]):
    def create_connector(self, meta: Meta, parts: list[Any]) -> s.Statement:
        direction, exists, name, properties = parts
        return s.CreateConnector(direction, name, properties or s.Properties(), bool(exists), line=meta.line)

    def drop_connector(self, meta: Meta, parts: list[Any]) -> s.Statement:
        exists, name, terminate = parts
        return s.DropConnector(name, bool(exists), terminate is not None, line=meta.line)

    def change_connector(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.ChangeConnector(*parts, line=meta.line)

    def describe_connector(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.Describe(parts[0], connector=True, line=meta.line)

    def describe(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.Describe(parts[0], extended=parts[1] is not None, line=meta.line)

    def show_connectors(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.ShowConnectors(parts[0], line=meta.line)

    def show_plugins(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.ShowPlugins(line=meta.line)

    def show_listing(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.Show(parts[0], parts[1] is not None, line=meta.line)

    def create_secret(self, meta: Meta, parts: list[Any]) -> s.Statement:
        replace, exists, name, value = parts
        return s.CreateSecret(name, _text(value), bool(replace), bool(exists), line=meta.line)

    def drop_secret(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.DropSecret(parts[1], bool(parts[0]), line=meta.line)

    def define(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.Define(parts[0], _text(parts[1]), line=meta.line)

    def undefine(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.Undefine(parts[0], line=meta.line)

    def declare(self, meta: Meta, parts: list[Any]) -> s.Statement:
        replace, kind, exists, name, *columns, properties = parts
        given = tuple(column for column in columns if column is not None)
        return s.Declare(kind, name, given, properties or s.Properties(), bool(replace), bool(exists), line=meta.line)

    def create_as(self, meta: Meta, parts: list[Any]) -> s.Statement:
        replace, kind, exists, name, properties, query = parts
        return s.CreateAs(kind, name, query, properties or s.Properties(), bool(replace), bool(exists), line=meta.line)

    def drop_source(self, meta: Meta, parts: list[Any]) -> s.Statement:
        kind, exists, name, delete = parts
        return s.DropSource(kind, name, bool(exists), bool(delete), line=meta.line)

    def insert_values(self, meta: Meta, parts: list[Any]) -> s.Statement:
        name, *others = parts
        columns = tuple(part for part in others if isinstance(part, str))
        values = tuple(part for part in others if isinstance(part, e.Expression))
        return s.InsertValues(name, columns, values, line=meta.line)

    def insert_select(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.InsertSelect(*parts, line=meta.line)

    def explain(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.Explain(parts[0], line=meta.line)

    def terminate(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.Terminate(None if isinstance(parts[0], Token) else parts[0], line=meta.line)

    def print_topic(self, meta: Meta, parts: list[Any]) -> s.Statement:
        topic, beginning, limit = parts
        return s.Print(topic, beginning is not None, None if limit is None else _integer(limit), line=meta.line)

    def select_query(self, meta: Meta, parts: list[Any]) -> s.Statement:
        return s.Select(parts[0], line=meta.line)


class Builder(_Statements, _Queries, _Expressions, _Types, _Properties):
    """The transformer of the whole grammar."""

    def start(self, parts: list[s.Statement]) -> list[s.Statement]:
        return [part for part in parts if isinstance(part, s.Statement)]

    def object_name(self, parts: list[Token]) -> str:
        return _text(parts[0])

    def if_not_exists(self, parts: list[Token]) -> bool:
        return True

    if_exists = or_replace = delete_topic = if_not_exists

    def connector_kind(self, parts: list[Token]) -> s.Direction:
        return s.Direction(parts[0].type)

    def source_kind(self, parts: list[Token]) -> s.Kind:
        return s.Kind(parts[0].type)

    def change(self, parts: list[Token]) -> s.Change:
        return s.Change(parts[0].type)

    def listing(self, parts: list[Token]) -> s.Listing:
        return s.Listing(parts[0].type)

    def column(self, parts: list[Any]) -> s.ColumnDefinition:
        return s.ColumnDefinition(*parts)

    def column_key(self, parts: list[Token | None]) -> str:
        return "KEY" if parts[0] is None else "PRIMARY KEY"
