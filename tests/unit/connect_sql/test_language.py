"""The language: what is printed parses into the same, nothing typed crashes it, and no error tells a secret."""

import dataclasses
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.errors import StatementError
from backend.domain.connect_sql.keywords import keywords
from backend.domain.connect_sql.parser import parse
from backend.domain.connect_sql.printer import masked, masked_text, printed
from backend.domain.connect_sql.variables import with_variables
from tests.unit.connect_sql.strategies import statements

KLIP_7 = r"""
ksql> CREATE SOURCE CONNECTOR my-postgres-jdbc WITH ( \
      connector.class="io.confluent.connect.jdbc.jdbcSourceConnector", \ 
      tasks.max=1, \
      connection.url=jdbc:postgresql://localhost:5432/my-db, \
      ...);
ksql> SHOW CONNECTORS;
ksql> DESCRIBE my-postgres-jdbc;
ksql> CREATE TABLE users_original WITH (kafka_topic = 'test-postgres-jdbc-user-table', ...);
ksql> DROP CONNECTOR my-postgres-jdbc;
ksql> CREATE SINK CONNECTOR my-elastic-sink WITH (sources='my-table1', ...);
ksql> SHOW SINK CONNECTORS;
ksql> DESCRIBE my-elastic-sink;
ksql> DROP CONNECTOR my-elastic-sink TERMINATE;
"""
SECRET = "Zx9-very-secret"


def parsed(text: str) -> s.Statement:
    [statement] = parse(text)
    return statement


def refused(text: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        parse(text)
    return caught.value


def attempted(text: str) -> tuple[list[s.Statement], StatementError | None]:
    try:
        return parse(text), None
    except StatementError as error:
        return [], error


def test_the_samples_of_klip_7_parse_as_printed() -> None:
    created, shown, described, declared, dropped, sink, sinks, _, ended = parse(KLIP_7)
    assert isinstance(created, s.CreateConnector)
    assert (created.line, created.name, created.direction) == (2, "my-postgres-jdbc", s.Direction.SOURCE)
    assert created.properties.elided
    assert created.properties.as_dict() == {
        "connector.class": "io.confluent.connect.jdbc.jdbcSourceConnector",
        "tasks.max": 1,
        "connection.url": "jdbc:postgresql://localhost:5432/my-db",
    }
    assert (shown, sinks) == (s.ShowConnectors(), s.ShowConnectors(s.Direction.SINK))
    assert described == s.Describe("my-postgres-jdbc")
    assert isinstance(declared, s.Declare)
    assert declared.properties.as_dict() == {"kafka_topic": "test-postgres-jdbc-user-table"}
    assert dropped == s.DropConnector("my-postgres-jdbc")
    assert isinstance(sink, s.CreateConnector)
    assert ended == s.DropConnector("my-elastic-sink", terminate=True)


def test_the_stricter_form_of_ksqldb_parses() -> None:
    statement = parsed(
        """CREATE SINK CONNECTOR IF NOT EXISTS `my sink` WITH ('connector.class'='FileStreamSink', "topics"='a,b',
           `it's`='it''s', tasks=2, ratio=1.50, on=true, none=NULL, zip=007);"""
    )
    assert isinstance(statement, s.CreateConnector)
    assert statement.if_not_exists
    assert statement.properties.as_dict() == {
        "connector.class": "FileStreamSink",
        "topics": "a,b",
        "it's": "it's",
        "tasks": 2,
        "ratio": Decimal("1.50"),
        "on": True,
        "none": None,
        "zip": "007",
    }


def test_precedence_of_operators() -> None:
    statement = parsed("SELECT a FROM t WHERE NOT a + 2 * -b > 3 AND c OR d BETWEEN 1 AND 2 AND e IS NOT NULL")
    assert isinstance(statement, s.Select)
    a, b, c, d, f = (e.Column(name) for name in "abcde")
    total = e.Operation(a, "+", e.Operation(e.Literal(2), "*", e.Minus(b)))
    first = e.AllOf((e.Not(e.Operation(total, ">", e.Literal(3))), c))
    second = e.AllOf((e.Between(d, e.Literal(1), e.Literal(2)), e.IsNull(f, negated=True)))
    assert statement.query.where == e.AnyOf((first, second))


def test_a_join_with_windows_and_aliases() -> None:
    statement = parsed(
        """CREATE TABLE counts WITH (kafka_topic='counts') AS
           SELECT v.page, u.address->city city, COUNT(*) AS views -- a comment
           FROM pageviews v LEFT OUTER JOIN users u ON v.userid = u.id /* another */
           WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 5 minutes, GRACE PERIOD 0 SECONDS)
           GROUP BY v.page, u.address->city HAVING COUNT(*) > 1 EMIT CHANGES;"""
    )
    assert isinstance(statement, s.CreateAs)
    assert [item.name for item in statement.query.items] == [None, "city", "views"]
    assert statement.query.joins[0].kind == "LEFT"
    window = statement.query.window
    assert window is not None
    assert (window.size.milliseconds, window.advance) == (3_600_000, s.Duration(5, "MINUTES"))


@given(statements)
@settings(max_examples=100)
def test_what_is_printed_parses_into_the_same(statement: s.Statement) -> None:
    assert parse(printed(statement)) == [statement]


@given(st.lists(statements, max_size=3))
@settings(max_examples=30)
def test_several_statements_are_executed_in_order(several: list[s.Statement]) -> None:
    assert parse(";\n".join(map(printed, several)) + ";") == several


PIECES = [
    *sorted(keywords()),
    "a",
    "my-name",
    "'t'",
    '"q"',
    "`b`",
    "1",
    "2.5",
    "(",
    ")",
    ",",
    "=",
    ";",
    "*",
    "->",
    "...",
]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join))
@settings(max_examples=100)
@example("CREATE SOURCE CONNECTOR x WITH (a='")
def test_whatever_is_typed_gives_statements_or_an_error_with_its_place(text: str) -> None:
    statements, error = attempted(text)
    for statement in statements:
        assert parse(printed(statement)) == [statement]
    if error is not None:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        assert error.message.endswith(".")


@given(st.text(max_size=60))
@settings(max_examples=100)
def test_no_text_crashes_the_parser(text: str) -> None:
    attempted(text)


@given(statements.map(printed), st.integers(0, 400), st.sampled_from(["'", '"', "(", ")", ",", " ", "=", ";", "x"]))
@settings(max_examples=100)
def test_a_broken_statement_crashes_nothing(text: str, place: int, broken: str) -> None:
    attempted(text[:place] + broken + text[place + 1 :])


@given(st.integers(0, 120), st.sampled_from(["'", '"', "(", ")", ",", " ", "=", ";", "`", ""]))
@settings(max_examples=100)
def test_no_error_and_no_history_tells_a_secret(place: int, broken: str) -> None:
    text = (
        f"CREATE SOURCE CONNECTOR c WITH (connector.class='a.B', password='{SECRET}', token={SECRET}, x=\"{SECRET}\")"
    )
    text = text[:place] + broken + text[place + 1 :]
    try:
        shown = " ".join(masked(statement) for statement in parse(text))
    except StatementError as error:
        shown = f"{error} {error!r} {error.expected} {masked_text(text)}"
    assert "very-secret" not in shown


def test_secrets_are_masked_and_the_class_is_not() -> None:
    created = parsed(f"CREATE SOURCE CONNECTOR c WITH (connector.class='a.B', password={SECRET})")
    assert masked(created) == "CREATE SOURCE CONNECTOR c WITH (connector.class = 'a.B', password = '********')"
    secret = parsed(f"CREATE OR REPLACE SECRET p AS '{SECRET}'")
    assert masked(secret) == "CREATE OR REPLACE SECRET p AS '********'"
    assert SECRET not in repr(created) + repr(secret)
    assert masked_text(f"CREATE SECRET p AS '{SECRET}") == "CREATE SECRET … AS"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("CREATE SOURCE STREAM x", 1, 15, "STREAM is not expected here: expected CONNECTOR."),
        ("SHOW CONNECTORS\nSHOW TABLES", 2, 1, "SHOW is not expected here: expected ';' or the end."),
        ("CREATE SOURCE CONNECTOR c WITH (a=1 b=2)", 1, 37, "A name is not expected here: expected ')' or ','."),
        ("CREATE SOURCE CONNECTOR c WITH (\n a='x", 2, 4, "The quotation mark that begins here has no end"),
        ("SELECT a FROM", 1, 14, "The text ends too early: expected a name"),
        ("CREATE TABLE t (id NUMBER) WITH (a=1)", 1, 20, "A name is not expected here: expected a type."),
        ("CREATE SOURCE CONNECTOR c WITH (a=1, a=2)", 1, 38, "This property is given twice."),
        ("SELECT a FROM b LIMIT 99999999999999999999", 1, 23, "This number is too large."),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, line: int, column: int, message: str) -> None:
    error = refused(text)
    assert (error.line, error.column) == (line, column)
    assert error.message.startswith(message)


@pytest.mark.parametrize("text", ["(" * 3000 + "1" + ")" * 3000, "+".join("1" * 3000), "NOT " * 3000 + "a", "-" * 3000])
def test_deep_nesting_is_refused_or_harmless(text: str) -> None:
    _, error = attempted(f"SELECT a FROM b WHERE {text}")
    assert error is None or "too deeply" in error.message or "too early" in error.message


def test_a_text_may_not_be_endless() -> None:
    assert "At most" in refused("x" * 200_000).message


def test_variables_are_replaced_in_names_texts_and_expressions() -> None:
    variables = {"name": "orders", "host": "db", "least": "5", "on": "true"}
    created = parsed("CREATE SOURCE CONNECTOR ${name} WITH (url='jdbc:${host}/${secret:p}', max=${least}, ok=${on})")
    replaced = with_variables(created, variables)
    assert replaced.name == "orders"
    assert replaced.properties.as_dict() == {"url": "jdbc:db/${secret:p}", "max": 5, "ok": True}
    select = with_variables(parsed("SELECT a FROM ${name} WHERE a > ${least} EMIT CHANGES"), variables)
    assert dataclasses.replace(select) == parsed("SELECT a FROM orders WHERE a > 5 EMIT CHANGES")
    with pytest.raises(StatementError, match="The variable other is not defined"):
        with_variables(parsed("DROP CONNECTOR ${other}"), variables)
