"""How consumers see the values of documents: as JSON or Avro, and deletions as tombstones or flags."""

import io
import struct
import subprocess
from typing import Any

import fastavro
import pytest
import requests
from confluent_kafka import Consumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from backend.domain import json
from tests import factories
from tests.gateways import Gateways, TestCollection, make_key
from tests.integration.read_gateway.clients import config, kcat, wait_until_seen
from tests.integration.read_gateway.conftest import Reading
from tests.waiting import LIMIT_SECONDS, wait_until

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEWER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


def records(nodes: Gateways, reading: Reading, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values, by a new consumer from the beginning."""
    consumer = Consumer(config(nodes, reading.login))
    consumer.subscribe([topic])
    messages: list[tuple[bytes | None, bytes | None]] = []

    def read() -> bool:
        messages.extend((m.key(), m.value()) for m in consumer.consume(count, 0.5) if m.error() is None)
        return len(messages) >= count

    try:
        wait_until(read)
    finally:
        consumer.close()
    return messages


def registry(nodes: Gateways, reading: Reading) -> SchemaRegistryClient:
    login = f"{reading.login.user}:{reading.login.password}"
    return SchemaRegistryClient({"url": nodes[0].http, "basic.auth.user.info": login})


def with_connection(collection: TestCollection, **changes: Any) -> None:
    collection.connector.connection |= changes
    collection.connector.save()


@pytest.mark.parametrize(
    ("deletions", "values"),
    [
        ("kafka", [b'{"id":1}', None]),
        ("cdc", [b'{"_meta":{"is_deleted":0},"id":1}', b'{"_meta":{"is_deleted":1},"id":1}']),
    ],
)
def test_deletions(nodes: Gateways, reading: Reading, deletions: str, values: list[bytes | None]) -> None:
    collection = reading.collection(1, deletions=deletions)
    collection.write([b'{"id":1}'], keys=[b"1"])
    collection.write([b'{"id":1}'], keys=[b"1"], deleted=True)
    wait_until_seen(nodes, reading.login, collection)
    assert records(nodes, reading, collection.topic, 2) == [(b"1", value) for value in values]


def test_avro_is_read_with_the_registry(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1, avro_schema=ORDER, values="avro")
    collection.write([b'{"id":1}', b'{"id":2}'])
    wait_until_seen(nodes, reading.login, collection)
    with_connection(collection, avro_schema=NEWER)
    collection.write([b'{"id":3,"note":"late"}'])
    client = registry(nodes, reading)
    wait_until(lambda: client.get_versions(f"{collection.topic}-value") == [1, 2])
    deserialize = AvroDeserializer(client)
    context = SerializationContext(collection.topic, MessageField.VALUE)
    read = [deserialize(value, context) for _, value in records(nodes, reading, collection.topic, 3)]
    assert read == [{"id": 1}, {"id": 2}, {"id": 3, "note": "late"}]
    assert read_with_kcat(nodes, reading, collection.topic) == read


def read_with_kcat(nodes: Gateways, reading: Reading, topic: str) -> list[Any]:
    """Debian's kcat has no decoder of Avro: its values are decoded here, with the schemas that the registry has."""
    done = subprocess.run(kcat(nodes, reading.login, topic, "-f", "%R%s"), capture_output=True, timeout=60, check=True)
    read, values = io.BytesIO(done.stdout), []
    while length := read.read(4):
        magic, schema_id = struct.unpack(">bi", read.read(5))
        assert magic == 0
        login = (reading.login.user, reading.login.password)
        answer = requests.get(f"{nodes[0].http}/schemas/ids/{schema_id}", auth=login, timeout=LIMIT_SECONDS).json()
        datum = io.BytesIO(read.read(int.from_bytes(length, "big") - 5))
        values.append(fastavro.schemaless_reader(datum, json.loads(answer["schema"].encode()), None))
        assert datum.read() == b""
    return values


def test_a_collection_may_become_avro(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1, avro_schema=ORDER)
    collection.write([b'{"id":1}'])
    wait_until_seen(nodes, reading.login, collection)
    assert records(nodes, reading, collection.topic, 1)[0][1] == b'{"id":1}'
    with_connection(collection, values="avro")
    wait_until(lambda: records(nodes, reading, collection.topic, 1)[0][1] != b'{"id":1}')
    value = records(nodes, reading, collection.topic, 1)[0][1]
    context = SerializationContext(collection.topic, MessageField.VALUE)
    assert AvroDeserializer(registry(nodes, reading))(value, context) == {"id": 1}


def test_the_registry_answers_as_confluents(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1, avro_schema=ORDER, values="avro")
    plain = reading.collection(1, avro_schema=ORDER)
    login = (reading.login.user, reading.login.password)
    subject = f"{collection.topic}-value"

    def get(path: str, **more: Any) -> requests.Response:
        return requests.get(f"{nodes[0].http}{path}", timeout=LIMIT_SECONDS, **({"auth": login} | more))

    wait_until(lambda: get("/subjects").json() == [subject])
    latest = get(f"/subjects/{subject}/versions/latest").json()
    assert (latest["subject"], latest["version"], json.loads(latest["schema"].encode())) == (subject, 1, ORDER)
    assert get(f"/subjects/{subject}/versions").json() == [1]
    assert get(f"/schemas/ids/{latest['id']}").json() == {"schema": latest["schema"]}
    missing = {
        f"/schemas/ids/{latest['id'] + 1000}": (404, 40403),
        f"/subjects/{plain.topic}-value/versions": (404, 40401),
        f"/subjects/{subject}/versions/2": (404, 40402),
        f"/subjects/{subject}/versions/0": (422, 42202),
    }
    for path, expected in missing.items():
        answer = get(path)
        assert (answer.status_code, answer.json()["error_code"]) == expected, path
    assert get("/subjects", auth=None).status_code == 401
    assert get("/subjects", auth=(reading.login.user, "wrong")).status_code == 401


def test_the_registry_shows_nothing_of_another_workspace(nodes: Gateways, reading: Reading) -> None:
    collection = reading.collection(1, avro_schema=ORDER, values="avro")
    client = registry(nodes, reading)
    wait_until(lambda: client.get_subjects() != [])
    schema_id = client.get_latest_version(f"{collection.topic}-value").schema_id
    other = factories.make_workspace()
    login = (other.slug, make_key(other))
    assert requests.get(f"{nodes[0].http}/subjects", auth=login, timeout=LIMIT_SECONDS).json() == []
    assert (
        requests.get(f"{nodes[0].http}/schemas/ids/{schema_id}", auth=login, timeout=LIMIT_SECONDS).status_code == 404
    )
