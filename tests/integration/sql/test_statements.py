"""Statements on streams, tables and queries, from the REST API to Kafka, with the gRPC service and Spark."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from pyspark.sql import SparkSession
from rest_framework.test import APIClient

from backend.apps.jobs.models import SparkJob
from backend.apps.workspaces.models import Workspace
from backend.kafka.client.tail import tail
from backend.settings import KafkaSettings, Settings
from spark_jobs.jobs.stream_sql import StreamSql
from tests import factories
from tests.infra import KAFKA, Server
from tests.integration.conftest import RunningManager
from tests.integration.sql.conftest import Execute
from tests.waiting import wait_until

DECLARATIONS = """
CREATE STREAM pageviews (userid VARCHAR KEY, page VARCHAR, seconds INT) WITH (kafka_topic = '{0}', partitions = 2);
INSERT INTO pageviews VALUES ('u1', '/en/home', 7);
INSERT INTO pageviews (page, userid) VALUES ('/pt/home', 'u2');
CREATE STREAM en WITH (kafka_topic = '{0}-en') AS
  SELECT userid, page, seconds * 1000 AS milliseconds FROM pageviews WHERE page LIKE '/en/%' EMIT CHANGES;
"""


@pytest.fixture
def application(spark: SparkSession, running: RunningManager, tmp_path: Path) -> Iterator[StreamSql]:
    queries = StreamSql(spark, Settings(), str(tmp_path / "checkpoints"))
    queries.start()
    yield queries
    queries.stop()


def values(topic: str) -> list[bytes | None]:
    return [record.value() for record in tail(KafkaSettings(bootstrap_servers=KAFKA), topic, 100)]


@pytest.mark.django_db(transaction=True)
async def test_a_query_runs_from_create_to_drop(
    kafka: Server, redis_server: Server, application: StreamSql, tmp_path: Path
) -> None:
    def in_thread() -> None:
        try:
            _from_create_to_drop(f"pageviews-{tmp_path.name}", tmp_path)
        finally:
            connections.close_all()

    await asyncio.to_thread(in_thread)


def _from_create_to_drop(topic: str, folder: Path) -> None:
    workspace = factories.make_workspace()
    client = APIClient()
    client.force_login(factories.admin_of(workspace))

    def run(text: str, status: int = 200) -> dict[str, Any]:
        answer = client.post("/api/v1/sql/", {"text": text}, format="json")
        assert answer.status_code == status, answer.content
        body: dict[str, Any] = answer.json()
        return body

    def queries() -> dict[str, dict[str, Any]]:
        [shown] = run("SHOW QUERIES")["results"]
        return {one["id"]: one for one in shown["queries"]}

    def wait_for(condition: Callable[[], object]) -> None:
        """Spark plans and compiles a query when it starts, which takes long where there is much else to do."""
        wait_until(condition, 180, explain=lambda: (queries(), values(f"{topic}-en")))

    created = run(DECLARATIONS.format(topic))["results"]
    assert [one["message"] for one in created] == [
        f"Declared stream pageviews on the new topic {topic}.",
        *["Inserted one row."] * 2,
        "Created stream en; the query CSAS_EN_1 fills it.",
    ]
    assert SparkJob.objects.get(name="sql").desired == SparkJob.Desired.RUNNING
    wait_for(lambda: values(f"{topic}-en") == [b'{"page":"/en/home","milliseconds":7000}'])
    wait_for(lambda: queries()["CSAS_EN_1"]["state"] == "RUNNING")
    [described] = run("DESCRIBE EN")["results"]
    assert described["columns"] == [
        {"name": "userid", "type": "VARCHAR", "key": "KEY"},
        {"name": "page", "type": "VARCHAR", "key": ""},
        {"name": "milliseconds", "type": "INTEGER", "key": ""},
    ]
    assert run("DROP STREAM pageviews", 409)["error"]["message"].endswith("is used by CSAS_EN_1: TERMINATE that first.")
    run(
        f"CREATE OR REPLACE STREAM en WITH (kafka_topic = '{topic}-en') AS "
        "SELECT userid, UCASE(page) AS page, seconds * 1000 AS milliseconds FROM pageviews EMIT CHANGES"
    )
    wait_for(lambda: queries()["CSAS_EN_1"]["state"] == "RUNNING")  # until then the old query reads
    run("INSERT INTO pageviews VALUES ('u3', '/de/', 1)")
    wait_for(lambda: b'{"page":"/DE/","milliseconds":1000}' in values(f"{topic}-en"))
    assert b'"/PT/' not in b"".join(filter(None, values(f"{topic}-en")))

    # A query that fails shows why, and does not touch others.
    run(
        f"CREATE STREAM doomed (a VARCHAR) WITH (kafka_topic = '{topic}-doomed', partitions = 1); "
        "CREATE STREAM fails AS SELECT a, REGEXP_EXTRACT('(', a) AS b FROM doomed EMIT CHANGES; "
        "INSERT INTO doomed VALUES ('x')"
    )
    wait_for(lambda: queries()["CSAS_FAILS_1"]["state"] == "ERROR")
    assert queries()["CSAS_FAILS_1"]["error"]
    assert queries()["CSAS_EN_1"]["state"] == "RUNNING"

    run("TERMINATE CSAS_FAILS_1; DROP STREAM en DELETE TOPIC; DROP STREAM pageviews DELETE TOPIC")
    assert queries() == {}
    assert SparkJob.objects.get(name="sql").desired == SparkJob.Desired.STOPPED
    checkpoints = folder / "checkpoints"
    wait_until(lambda: not list(checkpoints.iterdir()), 180, explain=lambda: list(checkpoints.iterdir()))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("CREATE STREAM s AS SELECT nothing FROM v EMIT CHANGES", "There is no column nothing in v."),
        ("CREATE STREAM s AS SELECT a + 1 AS b FROM v EMIT CHANGES", "Only texts can be put together"),
        ("CREATE STREAM s AS SELECT a FROM v WHERE a = 1 EMIT CHANGES", "VARCHAR and INTEGER cannot be compared"),
        ("CREATE STREAM s AS SELECT a FROM w EMIT CHANGES", "There is no stream or table w."),
        ("CREATE STREAM s AS SELECT a FROM v", "needs EMIT CHANGES"),
        ("CREATE TABLE s AS SELECT a FROM v EMIT CHANGES", "The result is a stream"),
        ("CREATE STREAM s AS SELECT COUNT(*) AS n FROM v GROUP BY a EMIT CHANGES", "write CREATE TABLE"),
        ("CREATE TABLE s AS SELECT COUNT(*) AS n FROM v GROUP BY a EMIT CHANGES", "The key has to be among"),
        ("CREATE TABLE s AS SELECT a, b FROM v GROUP BY a EMIT CHANGES", "The column b is neither in GROUP BY"),
        ("CREATE STREAM s AS SELECT WEIGH(a) AS b FROM v EMIT CHANGES", "There is no function WEIGH."),
        ("CREATE STREAM s (a INT) WITH (kafka_topic = 'firehose_input')", "The topic cannot be used."),
        ("CREATE STREAM s (a INT) WITH (kafka_topic = 'absent-topic')", "The topic does not exist."),
        ("CREATE STREAM s (a INT) WITH (value_format = 'XML')", "The properties are not valid"),
        ("CREATE TABLE s (a INT) WITH (kafka_topic = 'x', partitions = 1)", "A table needs a key"),
        ("INSERT INTO v VALUES (1, 2)", "The value of a is no VARCHAR."),
    ],
)
@pytest.mark.django_db
def test_what_a_statement_cannot_do_is_a_sentence(execute: Execute, kafka: Server, text: str, sentence: str) -> None:
    execute("CREATE STREAM v (a VARCHAR KEY, b INT) WITH (kafka_topic = 'statements-v', partitions = 1)")
    answer = execute(text, 404 if "no stream" in sentence else 400)
    assert sentence in answer["error"]["message"]


@pytest.mark.django_db
def test_other_workspaces_have_streams_and_topics_of_their_own(
    execute: Execute, client_of: Callable[..., APIClient], kafka: Server, workspace: Workspace
) -> None:
    execute("CREATE STREAM v (a VARCHAR KEY) WITH (kafka_topic = 'statements-own', partitions = 1)")
    other = client_of(factories.admin_of(factories.make_workspace()))
    text = "SHOW STREAMS; SHOW TOPICS; CREATE STREAM v (a VARCHAR KEY) WITH (kafka_topic = 'statements-own')"
    answer = other.post("/api/v1/sql/", {"text": text}, format="json").json()
    streams, shown = answer["results"]
    assert streams["sources"] == []
    assert "statements-own" not in [topic["name"] for topic in shown["topics"]]
    assert answer["error"]["message"] == "The topic cannot be used."
