"""Tables of databases as tables of Connect SQL, over topics with their rows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.sources import Source, check

_PRECISION = re.compile(r"\((\d+),?\s*(\d+)?\)")
_PARENTHESES = re.compile(r"\s*\(.*\)")
_TYPES: dict[str, e.Type] = {
    **dict.fromkeys(("smallint", "integer", "int", "tinyint", "mediumint", "year"), t.INTEGER),
    **dict.fromkeys(("bigint", "oid"), t.BIGINT),
    **dict.fromkeys(("real", "double precision", "double", "float"), t.DOUBLE),
    "boolean": t.BOOLEAN,
}
_UNSIGNED: dict[str, e.Type] = {"int": t.BIGINT, "bigint": e.DecimalType(20, 0)}
_EXACT = ("numeric", "decimal")
_LARGEST = e.DecimalType(38, 18)


def column_type(database_type: str) -> e.Type:
    """The type of a column's values as they are in messages: numbers and truth values as such, everything else as a
    text. ``database_type`` is as PostgreSQL or MySQL writes it, such as ``numeric(10,2)`` or ``int unsigned``."""
    text = database_type.lower()
    if text.endswith("[]"):
        return e.ArrayType(column_type(text.removesuffix("[]")))
    name, *modifiers = _PARENTHESES.sub("", text).split(" unsigned")
    if name in _EXACT:
        given = _PRECISION.search(text)
        precision, scale = (int(given[1]), int(given[2] or 0)) if given else (0, 0)
        return e.DecimalType(precision, scale) if 0 < precision <= _LARGEST.precision else _LARGEST
    return (_UNSIGNED.get(name) if modifiers else None) or _TYPES.get(name, t.VARCHAR)


def table_of(name: str, topic: str, columns: Mapping[str, str], primary_key: Sequence[str]) -> Source:
    """The table; ``columns`` has their types. Its key is the primary key, in that order. Raises QueryError."""
    if not primary_key:
        raise QueryError("The table has no primary key, by which its rows could be told apart.")
    keys = [s.ColumnDefinition(one, column_type(columns[one]), "PRIMARY KEY") for one in primary_key]
    others = [s.ColumnDefinition(one, column_type(type)) for one, type in columns.items() if one not in primary_key]
    # A single text is the key as it is; numbers and several columns are JSON.
    key_format = "KAFKA" if [key.type for key in keys] == [t.VARCHAR] else "JSON"
    source = Source(name, s.Kind.TABLE, topic, (*keys, *others), key_format=key_format)
    check(source)
    return source


def with_new_columns(source: Source, columns: Mapping[str, str]) -> Source:
    """The table with the columns that it does not have yet. Raises QueryError."""
    known = {column.name for column in source.columns}
    new = [s.ColumnDefinition(one, column_type(type)) for one, type in columns.items() if one not in known]
    extended = replace(source, columns=(*source.columns, *new))
    check(extended)
    return extended
