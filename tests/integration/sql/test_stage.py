"""The SQL of a pipeline's stream processing, with a real registry: messages in Avro in, messages on their way out."""

import io
import json
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest
import requests
from confluent_kafka import Message as Record
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from rest_framework.test import APIClient

from backend.apps.jobs.models import SparkJob
from backend.apps.pipelines.models import Pipeline
from backend.apps.sql.models import SqlQuery
from backend.apps.workspaces.models import Workspace
from backend.domain import routing
from backend.domain.connect_sql.plans import Plan
from backend.domain.connect_sql.stage import stage_plan
from backend.domain.formats import confluent_header
from backend.domain.message import Message, new_message_id, utc_now
from backend.kafka.client.tail import tail
from backend.settings import KafkaSettings
from tests import factories
from tests.infra import KAFKA, Server
from tests.integration.sql.conftest import Execute
from tests.integration.sql.streams import Streams
from tests.integration.sql.test_execution import USERS
from tests.schema_registry import ADDRESS, schema_registry
from tests.waiting import LIMIT_SECONDS, wait_until

__all__ = ["schema_registry"]

FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "userid", "type": ["null", "string"]}]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}
WITH_TOTAL = {**ORDER, "fields": [*FIELDS, {"name": "total", "type": ["null", "double"], "default": None}]}
SQL = "SELECT m.id AS id, u.name AS customer, total FROM messages m LEFT JOIN users u ON m.userid = u.id WHERE m.id > 1"


def registered(topic: str, schema: dict[str, Any]) -> int:
    answer = requests.post(
        f"{ADDRESS}/subjects/{topic}-value/versions", json={"schema": json.dumps(schema)}, timeout=LIMIT_SECONDS
    )
    return int(answer.json()["id"])


def test_messages_go_on_with_their_ids_and_headers(
    spark: SparkSession, kafka: Server, schema_registry: Server, pipeline_topics: None, tmp_path: Path
) -> None:
    streams = Streams(spark, tmp_path)
    streams.declare(USERS)
    streams.write("users", "u1", {"name": "Ana", "country": "BR"}, at=0)
    pipeline = str(uuid.uuid4())
    topic = routing.processing_source(pipeline)
    admin = AdminClient({"bootstrap.servers": KAFKA})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": KAFKA})
    sent: list[Message] = []

    def send(schema: dict[str, Any], document: dict[str, Any]) -> None:
        body = io.BytesIO(confluent_header(registered(topic, schema)))
        body.seek(5)
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), document)
        slip = (routing.ADAPTED,)
        message = Message(
            new_message_id(), pipeline, 3, b"k", body.getvalue(), "avro/binary", utc_now(), slip, {"traceparent": "t"}
        )
        sent.append(message)
        producer.produce(topic, message.body, message.key, headers=message.headers())  # type: ignore[arg-type]
        assert producer.flush(LIMIT_SECONDS) == 0

    def received() -> list[Message]:
        records: list[Record] = tail(KafkaSettings(bootstrap_servers=KAFKA), routing.ADAPTED, 1000)
        messages = [Message.from_kafka(key=r.key(), value=r.value(), headers=r.headers() or []) for r in records]  # type: ignore[arg-type]
        return [message for message in messages if message.pipeline_id == pipeline]

    plan: Plan = stage_plan(SQL, avro_schema=WITH_TOTAL, topic=topic, table=lambda name: streams.sources[name])
    for number in (1, 2):
        send(ORDER, {"id": number, "userid": "u1"})
    with streams.plan_running(plan):
        wait_until(lambda: len(received()) >= 1, 180)
        send(WITH_TOTAL, {"id": 3, "userid": None, "total": 1.5})  # a schema that the query has not seen
        wait_until(lambda: len(received()) >= 2, 180)
    by_id = {message.id: message for message in received()}
    assert list(by_id) == [sent[1].id, sent[2].id]
    assert [message.body for message in by_id.values()] == [
        b'{"id":2,"customer":"Ana","total":null}',
        b'{"id":3,"customer":null,"total":1.5}',
    ]
    for message in by_id.values():
        assert (message.version, message.key, message.slip) == (3, b"k", ())
        assert (message.content_type, message.extra) == ("application/json", {"traceparent": "t"})


@pytest.fixture
def pipeline(workspace: Workspace, kafka: Server, redis_server: Server, schema_registry: Server) -> Pipeline:
    return factories.make_pipeline(
        workspace, stream_processing={"avro_schema": ORDER, "sql": "SELECT id FROM messages"}
    )


@pytest.mark.django_db
def test_a_pipeline_with_sql_is_published_with_its_query(
    client: APIClient, execute: Execute, pipeline: Pipeline, on_commit: Any
) -> None:
    from backend.apps.pipelines.services import provisionings_advance

    with on_commit():
        assert client.post(f"/api/v1/pipelines/{pipeline.pk}/publish/").status_code == 200
        provisionings_advance()
    query = SqlQuery.objects.get(pipeline=pipeline)
    assert query.plan["onward"] is True
    assert SparkJob.objects.get(name="sql").desired == SparkJob.Desired.RUNNING
    assert execute("SHOW QUERIES")["results"][0]["queries"][0]["text"] == "SELECT id FROM messages"
    execute(f"TERMINATE {query.name}", 409)
    query.delete()
    assert SparkJob.objects.get(name="sql").desired == SparkJob.Desired.STOPPED


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SELECT id FROM orders", "This has to read FROM messages"),
        ("SELECT id, nothing FROM messages", "There is no column nothing in messages."),
        ("SELECT id FROM messages GROUP BY id", "gives one message for each"),
        ("SELECT id FROM", "Line 1, column 15: The text ends too early"),
        ("SHOW STREAMS", "This has to be one SELECT"),
    ],
)
def test_sql_that_is_not_valid_is_refused_at_its_field(
    client: APIClient, pipeline: Pipeline, sql: str, sentence: str
) -> None:
    config = {**pipeline.versions.get().config, "stream_processing": {"avro_schema": ORDER, "sql": sql}}
    answer = client.put(f"/api/v1/pipelines/{pipeline.pk}/", {"name": "n", "config": config}, format="json")
    assert answer.status_code == 400, answer.content
    assert sentence in str(answer.json()["errors"])
