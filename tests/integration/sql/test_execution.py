"""What queries do with records, on a real Spark and a real Kafka."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.evaluation import Evaluator
from backend.domain.connect_sql.parser import parse
from backend.domain.connect_sql.plans import columns_of_select
from backend.domain.connect_sql.records import Record, RecordReader
from backend.domain.connect_sql.sources import Source, declared
from backend.domain.connect_sql.translation import Scope, Translator
from backend.domain.connect_sql.types import spark_type
from tests.infra import Server
from tests.integration.sql.streams import Streams
from tests.waiting import wait_until

PAGEVIEWS = """CREATE STREAM pageviews (viewid BIGINT KEY, userid VARCHAR, page VARCHAR, seconds INTEGER)
               WITH (kafka_topic = 'TOPIC', value_format = 'JSON');"""
USERS = """CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR, country VARCHAR)
           WITH (kafka_topic = 'TOPIC', value_format = 'JSON');"""


@pytest.fixture
def streams(spark: SparkSession, kafka: Server, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


def test_a_filtered_stream_has_its_source_key_and_leaves_out_what_cannot_be_read(streams: Streams) -> None:
    streams.declare(PAGEVIEWS)
    streams.write("pageviews", 1, {"userid": "u1", "page": "/en/home", "seconds": 7})
    streams.write("pageviews", 2, {"userid": "u2", "page": "/pt/home", "seconds": 8})
    streams.write("pageviews", 3, "no JSON")
    streams.write("pageviews", 4, {"userid": "u4", "page": "/en/", "seconds": "many"})
    streams.write("pageviews", 5, None)
    streams.write("pageviews", 6, {"userid": None, "page": "/en/'", "seconds": 1})
    with streams.running(
        """CREATE STREAM en AS SELECT viewid, UCASE(userid) AS who, seconds / 2 AS half, seconds / 0 AS none
           FROM pageviews WHERE page LIKE '/en/%' EMIT CHANGES;"""
    ):
        records = streams.wait_for("en", 2)
    assert records == [
        ((1).to_bytes(8, "big"), {"who": "U1", "half": 3, "none": None}),
        ((6).to_bytes(8, "big"), {"who": None, "half": 0, "none": None}),
    ]


def test_neighbours_2_a_row_that_its_topic_does_not_take_is_left_out_and_counted(streams: Streams) -> None:
    streams.declare(PAGEVIEWS)
    streams.write("pageviews", 1, {"userid": "u", "page": "x" * 500_000})
    query = f"CREATE STREAM large AS SELECT viewid, {' + '.join(['page'] * 10)} AS pages FROM pageviews EMIT CHANGES;"
    with streams.running(query) as running:
        wait_until(lambda: "1 rows of the last batch are larger" in running.report().error, 180)
        streams.write("pageviews", 2, {"userid": "u", "page": "y"})
        assert streams.wait_for("large", 1) == [((2).to_bytes(8, "big"), {"pages": "y" * 10})]
        assert running.report().failures == 0


def test_a_query_goes_on_where_it_was(streams: Streams) -> None:
    streams.declare(PAGEVIEWS)
    plan = streams.plan(
        "CREATE TABLE counts AS SELECT userid, COUNT(*) AS n FROM pageviews GROUP BY userid EMIT CHANGES;"
    )
    for number in (1, 2):
        streams.write("pageviews", number, {"userid": "u"})
        with streams.plan_running(plan):
            # A query that was stopped within a batch writes that batch again.
            wait_until(lambda n=number: (b"u", {"n": n}) in streams.read("counts"), 180)  # type: ignore[misc]


def test_a_stream_is_joined_with_the_latest_row_of_its_key(streams: Streams) -> None:
    """Only rows of the stream give results; times decide which row of the table was the latest."""
    streams.declare(PAGEVIEWS + USERS)
    streams.write("users", "u1", {"name": "Ana", "country": "BR"}, at=1000)
    streams.write("users", "u1", {"name": "Ana", "country": "PT"}, at=3000)
    streams.write("users", "u2", {"name": "Ben", "country": "DE"}, at=1000)
    streams.write("users", "u2", None, at=3000)
    streams.write("users", None, {"name": "nobody"}, at=1000)
    for number, (user, at) in enumerate([("u1", 2000), ("u1", 4000), ("u2", 2000), ("u2", 4000), ("u3", 500)]):
        streams.write("pageviews", number, {"userid": user, "page": "/"}, at=at)
    streams.write("pageviews", 5, {"page": "/"}, at=5000)
    query = """CREATE STREAM enriched AS SELECT p.userid AS userid, viewid, u.name, u.country FROM pageviews p
               {} JOIN users u ON p.userid = u.id EMIT CHANGES;"""

    def rows(kind: str, records: int) -> list[tuple[int, str | None]]:
        with streams.running(query.format(kind).replace("enriched", kind.lower())) as running:
            values = [value for _, value in streams.wait_for(kind.lower(), records)]
            if kind == "LEFT":  # a change is seen by later rows only
                before = running.report()
                streams.write("users", "u3", {"name": "Eva", "country": "FR"})
                streams.write("pageviews", 6, {"userid": "u3", "page": "/"})
                values = [value for _, value in streams.wait_for(kind.lower(), records + 1)]
                assert before.error == running.report().error == ""
        return sorted((value["viewid"], value["country"]) for value in values)

    assert rows("INNER", 3) == [(0, "BR"), (1, "PT"), (2, "DE")]
    everything = [(0, "BR"), (1, "PT"), (2, "DE"), (3, None), (4, None), (5, None), (6, "FR")]
    assert rows("LEFT", 6) == everything


def test_two_streams_are_joined_within_a_time_and_what_has_no_counterpart_is_written_once_that_has_passed(
    streams: Streams,
) -> None:
    streams.declare(
        PAGEVIEWS + "CREATE STREAM clicks (userid VARCHAR KEY, button VARCHAR) WITH (kafka_topic = 'TOPIC');"
    )
    # Until the end, the time has not passed within which the first rows may find a counterpart.
    for view, user, at in ((1, "a", 0), (2, "a", 4_000), (3, "b", 0), (4, None, 0)):
        streams.write("pageviews", view, {"userid": user, "page": "/"}, at=at)
    for button, user, at in (("early", "a", 1_000), ("late", "a", 30_000), ("lone", "c", 4_000)):
        streams.write("clicks", user, {"button": button}, at=at)
    query = """CREATE STREAM near AS SELECT v.viewid AS seen, c.button AS button FROM pageviews v
               FULL JOIN clicks c WITHIN (0 SECONDS, 5 SECONDS) GRACE PERIOD 1 SECOND ON v.userid = c.userid
               EMIT CHANGES"""
    with streams.running(query):
        assert streams.wait_for("near", 1) == [(b"a", {"seen": 1, "button": "early"})]
        for name, key, value in (("pageviews", 9, {"userid": "z"}), ("clicks", "y", {"button": "end"})):
            streams.write(name, key, value, at=60_000)  # the time goes on in both
        rows = streams.wait_for("near", 5)
    assert sorted(((key, value["seen"], value["button"]) for key, value in rows), key=str) == [
        (b"a", 1, "early"),
        (b"a", 2, None),
        (b"a", None, "late"),
        (b"b", 3, None),
        (b"c", None, "lone"),
    ]


def test_two_tables_are_joined_by_their_keys_and_every_change_of_either_counts(streams: Streams) -> None:
    accounts = "CREATE TABLE accounts (owner VARCHAR PRIMARY KEY, credit INTEGER) WITH (kafka_topic = 'TOPIC');"
    streams.declare(USERS + accounts)
    streams.write("users", "a", {"name": "Ana"}, at=1000)
    streams.write("accounts", "a", {"credit": 1}, at=2000)
    streams.write("accounts", "a", {"credit": 2}, at=3000)
    streams.write("users", "b", {"name": "Ben"}, at=1000)
    streams.write("accounts", "c", {"credit": 3}, at=1000)
    streams.write("users", "a", None, at=4000)
    query = """CREATE TABLE {0} AS SELECT {2}, u.name AS name, a.credit AS credit FROM users u {1} JOIN accounts a
               ON u.id = a.owner WHERE credit IS NULL OR credit < 9 EMIT CHANGES"""

    def rows(kind: str, key: str, records: int) -> dict[bytes | None, list[Any]]:
        with streams.running(query.format(kind.lower(), kind, key)):
            made = streams.wait_for(kind.lower(), records)
            if kind == "FULL":  # what was read before is remembered
                streams.write("accounts", "b", {"credit": 4})
                streams.write("users", "c", None)
                streams.write("accounts", "c", {"credit": 9})
                made = streams.wait_for(kind.lower(), records + 2)
        result: dict[bytes | None, list[Any]] = {}
        for one, value in made:
            result.setdefault(one, []).append(value and (value["name"], value["credit"]))
        return result

    assert rows("INNER", "u.id AS id", 3) == {b"a": [("Ana", 1), ("Ana", 2), None]}
    assert rows("LEFT", "u.id AS id", 5) == {b"a": [("Ana", None), ("Ana", 1), ("Ana", 2), None], b"b": [("Ben", None)]}
    assert rows("FULL", "COALESCE(u.id, a.owner) AS id", 6) == {
        b"a": [("Ana", None), ("Ana", 1), ("Ana", 2), (None, 2)],
        b"b": [("Ben", None), ("Ben", 4)],
        b"c": [(None, 3), None],
    }


EXPRESSIONS = """
n + 1 | n * 2147483647 | n - big | n / 2 | -n / 2 | n / 0 | -n % 3 | d / 4 | d % 0 | d * n | price + 1
price * price | price / 3 | price / n | big + big | big * big | n + price | -price | 1.005 + 2 | t + 'x' | t || NULL
n = 7.0 | n <> big | t < 'b' | price >= 2.50 | n BETWEEN 1 AND 7 | n NOT BETWEEN NULL AND 6 | t IN ('a', NULL)
n IN (1, 7) | t LIKE 'a%' | t LIKE '_b\\_%' | t NOT LIKE '%' | none IS NULL | n > 1 AND none | n > 9 OR none
NOT none | n < 1 AND none | CASE WHEN n > 9 THEN 'big' WHEN n > 1 THEN 'mid' END | CASE n WHEN 7 THEN 1 ELSE 2.5 END
CASE t WHEN 'z' THEN 1 END | CAST(n AS VARCHAR) | CAST(price AS VARCHAR) | CAST(TRUE AS VARCHAR)
CAST(' 12 ' AS INT) | CAST('1.9' AS INT) | CAST('x' AS INT) | CAST('99999999999' AS INT) | CAST(big AS INT)
CAST('1e3' AS DOUBLE) | CAST('2.345' AS DECIMAL(3, 2)) | CAST('12345' AS DECIMAL(3, 2)) | CAST(price AS INT)
CAST(-2.9 AS BIGINT) | CAST(n AS DOUBLE) | CAST(d AS DECIMAL(5, 1)) | CAST('yes' AS BOOLEAN) | CAST('?' AS BOOLEAN)
UCASE(t) | LCASE('ÄB') | TRIM('  a ') | LEN('é日') | SUBSTRING(t, 2) | SUBSTRING(t, 0, 2) | SUBSTRING(t, -3, 2)
SUBSTRING(t, -9, 8) | INSTR(t, 'b') | INSTR(t, '?') | CONCAT(t, NULL, 'x') | ABS(-n) | SIGN(-2.5) | SIGN(d)
CEIL(d) | FLOOR(-2.5) | CEIL(price) | ROUND(d) | ROUND(2.5) | ROUND(-2.5) | ROUND(price, 1) | ROUND(big, -3)
SQRT(16) | LN(0) | LN(1) | GREATEST(n, 9, NULL) | LEAST(n, 2.5) | COALESCE(NULL, n) | IFNULL(NULL, 3) | NULLIF(n, 7)
NULLIF(n, 8) | UNIX_TIMESTAMP(FROM_UNIXTIME(n)) | list[1] | list[-1] | list[9] | map['a'] | map['z'] | pair->a
ARRAY_LENGTH(list) | CARDINALITY(map) | ARRAY_MAX(list) | ARRAY_MIN(list) | ARRAY_DISTINCT(list) | MAP_KEYS(map)
MAP_VALUES(map) | STRUCT(x := n, y := t)->y
"""


def test_what_the_console_evaluates_is_what_spark_gives(spark: SparkSession) -> None:
    columns = """n INT, big BIGINT, d DOUBLE, price DECIMAL(10, 2), t VARCHAR, none BOOLEAN, list ARRAY<INT>,
                 map MAP<VARCHAR, INT>, pair STRUCT<a INT, b VARCHAR>"""
    [declaration] = parse(f"CREATE STREAM s ({columns}) WITH (kafka_topic = 't')")
    assert isinstance(declaration, s.Declare)
    source = declared(declaration)
    value = b"""{"n": 7, "big": 9007199254740993, "d": 2.25, "price": 2.50, "t": "ab_c", "list": [3, 1, 3],
                 "map": {"a": 1}, "pair": {"a": 5}}"""
    record = Record(key=None, value=value, timestamp=0, partition=0, offset=0)
    row = RecordReader(source, lambda raw: None).row(record)
    scope = Scope({"s": source})
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    texts = [text.strip() for text in re.split(r" \| |\n", EXPRESSIONS) if text.strip()]
    evaluated, translated = {}, []
    for text in texts:
        [select] = parse(f"SELECT {text} AS x FROM s")
        assert isinstance(select, s.Select)
        [(_, expression)] = columns_of_select(select.query, scope)
        evaluated[text] = Evaluator(scope).evaluated(expression)(row)
        translated.append(Translator(scope).translate(expression).sql)
    struct = f"from_json('{value.decode()}', '{', '.join(_ddl(source))}') AS s"
    frame = session.range(1).selectExpr(struct).selectExpr(*(f"{sql} AS c{i}" for i, sql in enumerate(translated)))
    assert evaluated == dict(zip(texts, frame.collect()[0], strict=True))


def _ddl(source: Source) -> list[str]:
    return [f"{column.name} {spark_type(column.type)}" for column in source.columns]


def test_windows_count_what_having_keeps_and_final_results_wait_for_their_end(streams: Streams) -> None:
    streams.declare(PAGEVIEWS)
    count = """CREATE TABLE {0} AS SELECT userid, COUNT(*) AS n, SUM(seconds) AS total FROM pageviews
               WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY userid {1}"""
    begin = 10_000 - streams.start % 10_000  # of a window
    for user, at in (("a", 0), ("a", 9_999), ("b", 5_000), ("a", 10_000)):
        streams.write("pageviews", 1, {"userid": user, "page": "/", "seconds": 2}, at=begin + at)

    def window(record: tuple[bytes | None, Any]) -> tuple[str, int, Any]:
        key, value = record
        assert key is not None
        return key[:-8].decode(), int.from_bytes(key[-8:], "big") - streams.start - begin, value

    with streams.running(count.format("kept", "HAVING COUNT(*) > 1 EMIT CHANGES")):
        kept = sorted(map(window, streams.wait_for("kept", 3)), key=str)
    assert kept == [("a", 0, {"n": 2, "total": 4}), ("a", 10_000, None), ("b", 0, None)]

    with streams.running(count.format("ended", "EMIT FINAL")):
        streams.write("pageviews", 1, {"userid": "c", "page": "/", "seconds": 2}, at=begin + 20_000)
        ended = sorted(map(window, streams.wait_for("ended", 3)), key=str)
    assert ended == [
        ("a", 0, {"n": 2, "total": 4}),
        ("a", 10_000, {"n": 1, "total": 2}),
        ("b", 0, {"n": 1, "total": 2}),
    ]
