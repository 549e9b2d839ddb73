"""SELECT and PRINT whose rows are read, with a real Kafka; those that Spark runs are in test_statements.py."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from backend.apps.sql.entities import Failure, Message, Reading, Rows
from backend.apps.sql.models import SqlQuery, SqlStatement
from backend.apps.sql.services import stream
from backend.apps.workspaces.models import Role, Workspace
from tests import factories
from tests.infra import KAFKA, Server
from tests.integration.sql.conftest import Execute
from tests.waiting import LIMIT_SECONDS

Stream = Callable[..., Iterator[Any]]


@pytest.fixture
def streamed(workspace: Workspace, kafka: Server) -> Stream:
    def start(text: str, *, from_beginning: bool = False, role: Role = Role.VIEWER) -> Iterator[Any]:
        actor = factories.admin_of(workspace)
        return stream(
            workspace=workspace, actor=actor, role=role, text=text, variables={}, from_beginning=from_beginning
        )

    return start


@pytest.fixture
def topic() -> str:
    return f"readings-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def users(execute: Execute, kafka: Server, topic: str) -> str:
    execute(
        f"""CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR, age INT)
            WITH (kafka_topic = '{topic}', partitions = 2);
            INSERT INTO users VALUES ('u1', 'Ana', 30); INSERT INTO users VALUES ('u2', 'Ben', 40);
            INSERT INTO users VALUES ('u1', 'Eva', 50)"""
    )
    return topic


def rows(lines: Iterator[Any]) -> list[list[Any]]:
    """Those until the answer ends."""
    return [row for line in lines if isinstance(line, Rows) for row in line.rows]


@pytest.mark.django_db
def test_a_query_that_ends_gives_the_latest_row_of_each_key(streamed: Stream, users: str) -> None:
    assert rows(streamed("SELECT * FROM users WHERE id = 'u1'")) == [["u1", "Eva", 50]]
    assert sorted(rows(streamed("SELECT name, age / 4 AS quarter FROM users WHERE age > 30"))) == [
        ["Ben", 10],
        ["Eva", 12],
    ]
    producer = Producer({"bootstrap.servers": KAFKA, "partitioner": "murmur2_random"})
    producer.produce(users, None, "u1")
    assert producer.flush(LIMIT_SECONDS) == 0
    announced, *others = list(streamed("SELECT id FROM users LIMIT 5"))
    assert isinstance(announced, Reading)
    assert (announced.id, announced.statement) == ("PULL_1", "SELECT id FROM users LIMIT 5")
    assert rows(iter(others)) == [["u2"]]
    assert isinstance(others[-1], Message)
    assert others[-1].message == "1 row."
    assert not SqlQuery.objects.exists()


@pytest.mark.django_db
def test_a_query_that_goes_on_gives_rows_as_they_come(streamed: Stream, execute: Execute, users: str) -> None:
    lines = streamed("SELECT name FROM users WHERE age > 18 EMIT CHANGES LIMIT 1; SHOW STREAMS")
    announced = next(lines)
    [listed] = execute("SHOW QUERIES")["results"][0]["queries"]
    assert (listed["id"], listed["kind"], listed["state"]) == (announced.id, "reading", "RUNNING")
    assert announced.id in execute("DROP TABLE users", 409)["error"]["message"]
    execute("INSERT INTO users VALUES ('u3', 'Kim', 9); INSERT INTO users VALUES ('u4', 'Lia', 19)")
    assert rows(lines) == [["Lia"]]
    everything = streamed("SELECT name FROM users EMIT CHANGES LIMIT 5", from_beginning=True)
    assert sorted(rows(everything)) == [["Ana"], ["Ben"], ["Eva"], ["Kim"], ["Lia"]]


@pytest.mark.django_db
def test_a_query_is_terminated_by_its_id(streamed: Stream, execute: Execute, users: str) -> None:
    lines = streamed("SELECT * FROM users EMIT CHANGES")
    execute(f"TERMINATE {next(lines).id}")
    last = list(lines)[-1]
    assert last.message == "PUSH_1 was terminated."


@pytest.mark.django_db
def test_print_shows_records_as_they_are(streamed: Stream, execute: Execute, topic: str) -> None:
    execute(f"CREATE STREAM s (a VARCHAR) WITH (kafka_topic = '{topic}', partitions = 1)")
    producer = Producer({"bootstrap.servers": KAFKA})
    for key, value in ((b"k", b'{"a": 1}'), (None, b"\xff\x00"), (b"k", None)):
        producer.produce(topic, value, key)
    assert producer.flush(LIMIT_SECONDS) == 0
    printed = rows(streamed(f"PRINT `{topic}` FROM BEGINNING LIMIT 3", role=Role.EDITOR))
    assert [(key, value, offset) for _, key, value, _, offset in printed] == [
        ("k", '{"a": 1}', 0),
        (None, "ff 00", 1),
        ("k", None, 2),
    ]
    [failure] = streamed(f"PRINT `{topic}`")  # whatever a topic holds is not for everybody
    assert failure.status == 403
    [failure] = streamed("PRINT nothing", role=Role.EDITOR)
    assert (failure.status, failure.message) == (404, "There is no topic nothing: SHOW TOPICS lists those there are.")


@pytest.mark.django_db
def test_a_workspace_reads_so_many_queries_and_has_so_many(
    streamed: Stream, execute: Execute, users: str, settings: Any
) -> None:
    settings.CONSOLE = settings.CONSOLE.model_copy(update={"sql_readings": 1, "sql_queries": 1})
    first = streamed("SELECT * FROM users EMIT CHANGES")
    next(first)
    [failure] = streamed("SELECT * FROM users")
    assert isinstance(failure, Failure)
    assert (failure.status, failure.message.partition(",")[0]) == (409, "1 queries are read in this workspace")
    first.close()  # its reader leaves
    assert len(rows(streamed("SELECT * FROM users"))) == 2

    create = "CREATE TABLE {0} WITH (kafka_topic = '{1}-{0}') AS SELECT id, age FROM users EMIT CHANGES"
    execute(create.format("a", users))
    refused = execute(create.format("b", users), 409)["error"]["message"]
    assert refused.startswith("This workspace has 1 queries, which is the most that it may have: TERMINATE one")
    assert f"{users}-b" not in json.dumps(execute("SHOW TOPICS")["results"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SELECT nothing FROM users", "There is no column nothing in users."),
        ("SELECT COUNT(*) AS n FROM users GROUP BY name", "write EMIT CHANGES at its end"),
        ("SELECT REGEXP_EXTRACT('a', name) AS n FROM users", "write EMIT CHANGES at its end"),
        ("SELECT id FROM users WINDOW TUMBLING (SIZE 1 HOUR) EMIT CHANGES", "WINDOW and HAVING need GROUP BY."),
        ("SELECT id FROM nobody", "There is no stream or table nobody."),
    ],
)
@pytest.mark.django_db
def test_what_cannot_be_read_is_a_sentence(streamed: Stream, users: str, text: str, sentence: str) -> None:
    [failure] = streamed(text)
    assert sentence in failure.message
    assert SqlStatement.objects.first().error == failure.message  # type: ignore[union-attr]
