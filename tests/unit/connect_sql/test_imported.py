"""Tables of databases as tables of Connect SQL."""

import pytest

from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.imported import column_type, table_of, with_new_columns
from backend.domain.connect_sql.printer import type_name
from backend.domain.connect_sql.records import RecordReader
from backend.domain.connect_sql.sources import source_of


@pytest.mark.parametrize(
    ("database_type", "type"),
    [
        ("integer", "INTEGER"),
        ("bigint", "BIGINT"),
        ("bigint unsigned", "DECIMAL(20, 0)"),
        ("int(10) unsigned", "BIGINT"),
        ("tinyint(1)", "INTEGER"),
        ("double precision", "DOUBLE"),
        ("boolean", "BOOLEAN"),
        ("numeric(10,2)", "DECIMAL(10, 2)"),
        ("numeric", "DECIMAL(38, 18)"),
        ("decimal(40,9)", "DECIMAL(38, 18)"),
        ("integer[]", "ARRAY<INTEGER>"),
        ("character varying(20)", "VARCHAR"),
        ("timestamp(3) with time zone", "VARCHAR"),
        ("enum('integer')", "VARCHAR"),
    ],
)
def test_numbers_keep_their_types_and_the_rest_are_texts(database_type: str, type: str) -> None:
    assert type_name(column_type(database_type)) == type


def test_the_primary_key_is_the_key_in_its_order() -> None:
    lines = table_of("lines", "t", {"n": "integer", "total": "numeric(6,2)", "at": "date", "doc": "text"}, ["doc", "n"])
    assert [(column.name, column.key) for column in lines.columns] == [
        ("doc", "PRIMARY KEY"),
        ("n", "PRIMARY KEY"),
        ("total", None),
        ("at", None),
    ]
    assert source_of(lines.definition()) == lines
    reader = RecordReader(lines, lambda raw: None)
    assert reader.key(b'["A7","2"]') == {"doc": "A7", "n": 2}
    assert reader.key(b'{"doc":"A7","n":2}') == {"doc": "A7", "n": 2}
    assert reader.key(b'["A7"]') == {"doc": None, "n": None}
    assert table_of("users", "t", {"id": "text", "a": "int"}, ["id"]).key_format == "KAFKA"
    numbered = table_of("orders", "t", {"id": "bigint", "a": "int"}, ["id"])
    assert RecordReader(numbered, lambda raw: None).key(b"7") == {"id": 7}
    with pytest.raises(QueryError, match="no primary key"):
        table_of("events", "t", {"a": "int"}, [])


def test_new_columns_are_added_and_lost_ones_stay() -> None:
    users = table_of("users", "t", {"id": "text", "a": "int"}, ["id"])
    changed = with_new_columns(users, {"id": "text", "b": "boolean"})
    assert [column.name for column in changed.columns] == ["id", "a", "b"]
    assert with_new_columns(users, {"id": "text", "a": "text"}) == users
