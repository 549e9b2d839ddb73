"""How queries are planned: what Spark reads and runs, what the result is, and what cannot be executed."""

import re

import pytest

from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.evaluation import NotEvaluatedError
from backend.domain.connect_sql.parser import parse
from backend.domain.connect_sql.plans import Plan, Target, plan_of
from backend.domain.connect_sql.reading import Reading, reading_of, spark_reading
from backend.domain.connect_sql.records import Record, RecordReader, UnreadableError, shown
from backend.domain.connect_sql.sources import Source, declared, source_of

DECLARATIONS = """
CREATE STREAM views (id BIGINT KEY, userid VARCHAR, page VARCHAR, at TIMESTAMP)
  WITH (kafka_topic = 'views', timestamp = 'at');
CREATE STREAM clicks (userid VARCHAR, button VARCHAR) WITH (kafka_topic = 'clicks');
CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR, age INT) WITH (kafka_topic = 'users');
CREATE TABLE accounts (owner VARCHAR PRIMARY KEY, credit INT) WITH (kafka_topic = 'accounts');
CREATE TABLE pairs (a VARCHAR PRIMARY KEY, b INT PRIMARY KEY, n INT) WITH (kafka_topic = 'p', key_format = 'JSON');
"""


def sources() -> dict[str, Source]:
    return {source.name: source for source in map(declared, parse(DECLARATIONS))}  # type: ignore[arg-type]


def read_by(query: s.Query) -> list[Source]:
    return [sources()[one.name] for one in (query.source, *(join.relation for join in query.joins))]


def planned(text: str) -> tuple[Plan, Source]:
    [statement] = parse(text)
    assert isinstance(statement, s.CreateAs)
    return plan_of(statement.query, read_by(statement.query), Target(statement.kind, statement.name))


def query(text: str) -> s.Query:
    [statement] = parse(text)
    assert isinstance(statement, s.Select)
    return statement.query


def test_a_projection_keeps_the_key_of_its_source() -> None:
    plan, result = planned("CREATE STREAM r AS SELECT id, page AS p FROM views WHERE userid = 'u' EMIT CHANGES")
    assert [(column.name, column.key) for column in result.columns] == [("id", "KEY"), ("p", None)]
    assert (result.topic, plan.mode, plan.join) == ("r", "append", None)
    [read] = plan.inputs
    assert (read.topic, read.is_table, read.from_beginning) == ("views", False, True)
    assert plan.select.endswith("FROM rows WHERE (`views`.`userid`) = ('u')")
    assert source_of(result.definition()) == result


def test_a_join_is_keyed_by_the_side_of_the_stream() -> None:
    plan, result = planned(
        "CREATE STREAM r AS SELECT v.userid, name FROM views v LEFT JOIN users u ON u.id = v.userid EMIT CHANGES"
    )
    assert plan.join is not None
    assert (plan.join.stream_key, plan.join.table_key) == (
        "CAST(`v`.`userid` AS STRING)",
        "CAST(`u`.`id` AS STRING)",
    )
    assert plan.join.keeps_unmatched
    assert [column.name for column in result.keys] == ["userid"]
    assert [one.is_table for one in plan.inputs] == [False, True]


@pytest.mark.parametrize(
    ("kind", "selected", "key"),
    [
        ("INNER", "v.userid", "userid"),
        ("LEFT", "v.userid", "userid"),
        ("RIGHT", "c.userid", "userid"),
        ("FULL", "", ""),
    ],
)
def test_two_streams_are_joined_within_a_time(kind: str, selected: str, key: str) -> None:
    columns = ", ".join(filter(None, [selected, "page", "button"]))
    plan, result = planned(
        f"""CREATE STREAM r AS SELECT {columns} FROM views v {kind} JOIN clicks c
            WITHIN (1 MINUTE, 2 HOURS) GRACE PERIOD 5 SECONDS ON c.userid = v.userid EMIT CHANGES"""
    )
    join = plan.stream_join
    assert join is not None
    assert (join.left_key, join.right_key) == ("CAST(`v`.`userid` AS STRING)", "CAST(`c`.`userid` AS STRING)")
    assert (join.before, join.after, join.late) == (60_000, 7_200_000, 5_000)
    assert join.kind.startswith(kind.lower())
    assert [column.name for column in result.keys] == ([key] if key else [])
    assert ("coalesce" in plan.select.lower()) == (kind == "FULL")


def test_two_tables_are_joined_by_their_keys() -> None:
    join = "FROM users u {} JOIN accounts a ON a.owner = u.id EMIT CHANGES"
    plan, result = planned(f"CREATE TABLE r AS SELECT u.id, name, credit {join.format('LEFT')}")
    assert plan.tables_join is not None
    assert (plan.tables_join.left_key, plan.tables_join.kind) == ("CAST(`u`.`id` AS STRING)", "LEFT")
    assert [column.name for column in result.keys] == ["id"]
    _, result = planned(f"CREATE TABLE r AS SELECT COALESCE(u.id, a.owner) AS k, name, credit {join.format('FULL')}")
    assert [column.name for column in result.keys] == ["k"]


def test_a_windowed_table_knows_its_window() -> None:
    plan, result = planned(
        """CREATE TABLE r AS SELECT page, WINDOWSTART, COUNT(*) AS n FROM views
           WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 5 MINUTES) GROUP BY page HAVING COUNT(*) > 1 EMIT FINAL"""
    )
    assert (result.window, result.window_size) == ("TUMBLING", 3_600_000)
    assert (plan.mode, plan.late_milliseconds) == ("append", 300_000)
    assert [column.name for column in result.columns] == ["page", "n"]
    assert "window(event_time, '3600000 milliseconds')" in plan.select
    assert source_of(result.definition()) == result


def test_a_filter_may_change_without_what_a_query_remembers() -> None:
    joined = "CREATE STREAM r AS SELECT page, name FROM views v JOIN users u ON v.userid = u.id WHERE {} EMIT CHANGES"
    first, second = (planned(joined.format(condition))[0] for condition in ("age > 18", "page LIKE '/a%' AND age > 21"))
    assert first.state == second.state
    counted = "CREATE TABLE r AS SELECT userid, {}(id) AS n FROM views GROUP BY userid EMIT CHANGES"
    assert planned(counted.format("MIN"))[0].state != planned(counted.format("MAX"))[0].state


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("CREATE TABLE r AS SELECT page FROM views EMIT CHANGES", "The result is a stream"),
        ("CREATE STREAM r AS SELECT id FROM users EMIT CHANGES", "The result is a table"),
        ("CREATE STREAM r AS SELECT id, page AS id FROM views EMIT CHANGES", "Two columns of the result are called id"),
        ("CREATE STREAM r AS SELECT x.* FROM views EMIT CHANGES", "The query reads nothing that is called x."),
        (
            "CREATE STREAM r AS SELECT page, NULL AS n FROM views EMIT CHANGES",
            "The type of n is unknown: CAST the NULL.",
        ),
        ("CREATE STREAM r AS SELECT id FROM views EMIT CHANGES", "has to have a column beside its key"),
        ("CREATE STREAM r AS SELECT page FROM views HAVING id > 1 EMIT CHANGES", "WINDOW and HAVING need GROUP BY."),
        ("CREATE STREAM r AS SELECT page FROM views EMIT FINAL", "EMIT FINAL needs a window"),
        (
            "CREATE TABLE r AS SELECT page, COUNT(*) AS n FROM views GROUP BY page PARTITION BY id EMIT CHANGES",
            "PARTIT",
        ),
        ("CREATE TABLE r AS SELECT *, COUNT(*) AS n FROM views GROUP BY page EMIT CHANGES", "A star cannot stand"),
        ("CREATE STREAM r AS SELECT page FROM views v JOIN users u ON v.userid = u.name EMIT CHANGES", "primary key"),
        ("CREATE STREAM r AS SELECT page FROM views v JOIN users u ON v.id = u.id EMIT CHANGES", "different types"),
        ("CREATE STREAM r AS SELECT page FROM views v FULL JOIN users u ON v.userid = u.id EMIT CHANGES", "INNER or"),
        (
            "CREATE STREAM r AS SELECT id FROM views v JOIN users u ON v.userid = u.id EMIT CHANGES",
            "have the column id",
        ),
        ("CREATE STREAM r AS SELECT page FROM views JOIN views ON page = page EMIT CHANGES", "the same name"),
        (
            "CREATE STREAM r AS SELECT page FROM views v JOIN clicks c ON v.userid = c.userid EMIT CHANGES",
            "needs WITHIN",
        ),
        (
            "CREATE STREAM r AS SELECT page FROM views v LEFT JOIN clicks c WITHIN 1 HOUR ON v.userid = c.userid "
            "EMIT CHANGES",
            "needs GRACE PERIOD",
        ),
        (
            "CREATE STREAM r AS SELECT page FROM views v JOIN clicks c WITHIN 1 HOUR ON page LIKE button EMIT CHANGES",
            "one equation between them",
        ),
        (
            "CREATE TABLE r AS SELECT page, COUNT(*) AS n FROM views v JOIN clicks c WITHIN 1 HOUR "
            "ON v.userid = c.userid GROUP BY page EMIT CHANGES",
            "group that in another",
        ),
        (
            "CREATE TABLE r AS SELECT name FROM users u JOIN accounts a ON u.id = a.owner EMIT CHANGES",
            "The key has to be",
        ),
        (
            "CREATE TABLE r AS SELECT u.id FROM users u JOIN accounts a ON u.name = a.owner EMIT CHANGES",
            "u.id = a.owner",
        ),
        ("CREATE STREAM r AS SELECT page FROM users u JOIN views v ON v.userid = u.id EMIT CHANGES", "FROM the stream"),
        ("CREATE STREAM r AS SELECT page FROM views v JOIN pairs p ON v.userid = p.a EMIT CHANGES", "one key column"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(QueryError, match=re.escape(sentence)):
        planned(text)


def selected(reading: Reading, key: bytes | None, value: bytes) -> list[object] | None:
    reader = RecordReader(reading.source, lambda raw: None)
    row = reader.row(Record(key=key, value=value, timestamp=5, partition=1, offset=2))
    return [shown(value) for value in reading.selected(row) or []]


def test_a_query_that_is_read_selects_row_by_row() -> None:
    reading = reading_of(
        query("SELECT id, UCASE(page) AS p, at, ROWTIME FROM views WHERE id = 7 AND page LIKE '/%'"), sources()["views"]
    )
    assert [(one.name, one.type.name) for one in reading.columns][2:] == [("at", "TIMESTAMP"), ("ROWTIME", "BIGINT")]  # type: ignore[union-attr]
    value = b'{"page": "/a", "at": 1000}'
    assert selected(reading, (7).to_bytes(8, "big"), value) == [7, "/A", "1970-01-01T00:00:01.000Z", 1000]
    assert selected(reading, (8).to_bytes(8, "big"), value) == []
    assert reading.of_keys({"id": 7})
    assert not reading.of_keys({"id": 8})


def test_keys_of_several_columns_and_of_windows_are_read() -> None:
    pairs = RecordReader(sources()["pairs"], lambda raw: None)
    assert pairs.key(b'{"a": "x", "b": 1}') == {"a": "x", "b": 1}
    assert pairs.key(b"no JSON") == {"a": None, "b": None}
    _, windowed = planned(
        """CREATE TABLE r AS SELECT page, COUNT(*) AS n FROM views
           WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY page EMIT CHANGES"""
    )
    key = b"/a" + (3_600_000).to_bytes(8, "big")
    assert RecordReader(windowed, lambda raw: None).key(key) == {
        "page": "/a",
        "WINDOWSTART": 3_600_000,
        "WINDOWEND": 7_200_000,
    }


@pytest.mark.parametrize("value", [b"[]", b"no JSON", b'{"age": "many"}', b'{"age": 2147483648}', b'{"age": 1.5}'])
def test_a_record_that_is_not_what_was_declared_is_no_row(value: bytes) -> None:
    reader = RecordReader(sources()["users"], lambda raw: None)
    with pytest.raises(UnreadableError):
        reader.row(Record(key=b"u", value=value, timestamp=0, partition=0, offset=0))


def test_spark_reads_what_joins_or_groups_with_the_keys_that_it_needs() -> None:
    counts = query(
        "SELECT COUNT(*) AS n, WINDOWEND FROM views WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY page EMIT CHANGES"
    )
    with pytest.raises(NotEvaluatedError):
        reading_of(counts, sources()["views"])
    plan, reading = spark_reading(counts, [sources()["views"]], "answer")
    assert [column.name for column in reading.columns] == ["n", "WINDOWEND"]
    assert (plan.topic, reading.source.topic, plan.inputs[0].from_beginning) == ("answer", "answer", False)
    assert [column.name for column in reading.source.keys] == ["__key_0"]
    with pytest.raises(QueryError, match="write EMIT CHANGES"):
        spark_reading(query("SELECT COUNT(*) AS n FROM views GROUP BY page"), [sources()["views"]], "answer")
