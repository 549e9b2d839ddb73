"""The hand-over to stream processing: Avro in a topic of the pipeline's own, on Spark, with a real registry."""

import io
import json
import struct
from typing import Any

import fastavro
import requests
from confluent_kafka import Message

from backend.domain import routing
from backend.kafka.client.tail import tail
from backend.settings import KafkaSettings
from tests.e2e.test_messages import name
from tests.infra import Server
from tests.installation import Installation
from tests.schema_registry import ADDRESS, schema_registry
from tests.waiting import LIMIT_SECONDS, wait_until

__all__ = ["schema_registry"]

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "total", "type": "double"}],
}


def decoded(record: Message) -> Any:
    value: Any = record.value()
    zero, schema_id = struct.unpack(">bI", value[:5])
    assert zero == 0
    schema = json.loads(requests.get(f"{ADDRESS}/schemas/ids/{schema_id}", timeout=LIMIT_SECONDS).json()["schema"])
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)


def test_messages_are_handed_over_as_avro_of_the_registered_schema(
    installation: Installation, schema_registry: Server
) -> None:
    config = {
        "transforms": [{"type": "remove", "paths": ["note"]}],
        "stream_processing": {"avro_schema": SCHEMA},
    }
    pipeline = str(installation.create("pipelines/", {"name": name(), "config": config})["id"])
    installation.create(f"pipelines/{pipeline}/publish/", {})
    wait_until(lambda: installation.api("GET", f"pipelines/{pipeline}/")[1]["published_version"] == 1)
    wait_until(lambda: installation.post(pipeline, {"id": 1, "total": 1.5, "note": "n"})[0] == 202)
    installation.accepted(pipeline, [{"id": 2, "total": 19.9}, {"id": "x", "total": 0}])
    topic = routing.processing_source(pipeline)

    def handed_over() -> list[Message]:
        return tail(KafkaSettings(bootstrap_servers=installation.endpoint("kafka")), topic, 100)

    wait_until(lambda: len(handed_over()) == 2)
    records = handed_over()
    orders = sorted((decoded(record) for record in records), key=lambda order: order["id"])
    assert orders == [{"id": 1, "total": 1.5}, {"id": 2, "total": 19.9}]
    headers: dict[str, bytes] = dict(records[0].headers() or [])  # type: ignore[arg-type]
    assert headers["content-type"] == b"avro/binary"
    assert headers["routing-slip"] == b""

    def refused() -> list[dict[str, Any]]:
        return list(installation.api("GET", f"dead-letters/?pipeline={pipeline}")[1]["results"])

    wait_until(lambda: len(refused()) == 1)
    error = refused()[0]["error"]
    assert error.startswith("Stream processing: ")
    assert " does not fit the Avro schema: " in error
