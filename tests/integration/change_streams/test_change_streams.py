"""Change streams, killed after every step, by HTTP to the reference receiver and to Kafka with a schema registry."""

import json
import random
import signal
import uuid
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from backend.apps.collections.services import collections_maintain
from backend.collections.store import CollectionStore
from backend.collections.writer import CollectionWriter, NewDocument
from backend.settings import platform_settings
from tests import factories
from tests.cdc_check import checked
from tests.infra import KAFKA, Server
from tests.integration.change_streams.receiver_process import ReceiverProcess
from tests.integration.change_streams.stream_process import STEPS, StreamProcess
from tests.schema_registry import ADDRESS, schema_registry
from tests.waiting import LIMIT_SECONDS, wait_until

__all__ = ["schema_registry"]

SCHEMA = {
    "type": "record",
    "name": "Stock",
    "fields": [{"name": "shelf", "type": "long"}, {"name": "article", "type": "string"}],
}
KILLS = 10


class Log:
    """The log of a stream, with what its documents say of the multiset."""

    def __init__(self, reduce: str) -> None:
        workspace = factories.make_workspace()
        transport = {"type": "http", "url": "http://127.0.0.1:1"}
        connection = {"reduce": reduce, "avro_schema": SCHEMA, "transport": transport}
        self.connector = factories.make_connector(workspace, "materialize_cdc", **connection)
        store = CollectionStore(platform_settings().collections_url)
        self._table = store.table(str(workspace.pk), str(self.connector.pk), partitions=2)
        self._writer = CollectionWriter(self._table, "test")
        self._last_by_key = reduce == "last_by_key"
        self._random = random.Random(7)
        self._position = 0
        self._by_key: dict[int, str] = {}
        self.records: Counter[str] = Counter()

    @property
    def uri(self) -> str:
        return self._table.location.uri

    def append(self, count: int) -> None:
        write = self._replacement if self._last_by_key else self._delta
        self._writer.append([write() for _ in range(count)], self._position)
        self.records = +Counter(self._by_key.values()) if self._last_by_key else self.records

    def _record(self, shelf: int) -> dict[str, Any]:
        return {"shelf": shelf, "article": self._random.choice("abc")}

    def _delta(self) -> NewDocument:
        record, delta = self._record(self._random.randrange(20)), self._random.choice((-2, -1, 1, 2, 3))
        self.records[json.dumps(record, sort_keys=True)] += delta
        value = json.dumps({"record": record, "delta": delta}).encode()
        return self._document(b"", value, self._random.randrange(2))

    def _replacement(self) -> NewDocument:
        shelf = self._random.randrange(20)
        record, deleted = self._record(shelf), self._random.random() < 0.3
        self._by_key.pop(shelf, None)
        if not deleted:
            self._by_key[shelf] = json.dumps(record, sort_keys=True)
        return self._document(b"%d" % shelf, json.dumps(record).encode(), shelf % 2, deleted=deleted)

    def _document(self, key: bytes, value: bytes, partition: int, *, deleted: bool = False) -> NewDocument:
        self._position += 1
        return NewDocument(self._position - 1, partition, key, value, deleted=deleted)

    def expected(self) -> Counter[str]:
        return Counter({record: count for record, count in self.records.items() if count})

    def send_with_kills(self, transport: dict[str, Any], kills: int = KILLS) -> None:
        connection = self.connector.connection | {"transport": transport}
        process = StreamProcess(self.uri, connection)
        try:
            for number in range(kills):
                self.append(1500 if number == 1 else 40)
                step = STEPS[number % len(STEPS)]
                assert process.run(step) == -signal.SIGKILL, f"The step {step} was not reached."
                if number % 4 == 3:
                    collections_maintain()
            assert process.run() == 0
        finally:
            process.close()


def check(messages: list[Any], log: Log) -> int:
    """As they came, and in disorder with repeats. Up to which time they are complete."""
    records, complete = checked(messages)
    assert records == log.expected()
    disorder = messages + random.Random(1).choices(messages, k=len(messages))
    random.Random(2).shuffle(disorder)
    assert checked(disorder) == (records, complete)
    return complete


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("reduce", "form"), [("deltas", "json"), ("last_by_key", "avro")])
def test_whatever_is_killed_each_change_is_applied_once(receiver: ReceiverProcess, reduce: str, form: str) -> None:
    log = Log(reduce)
    transport = {"type": "http", "url": receiver.url, "format": form}
    log.send_with_kills(transport)
    receiver.kill()
    receiver.start()
    log.send_with_kills(transport, 2)
    shown = receiver.shown()
    counts = {json.dumps(entry["record"], sort_keys=True): entry["count"] for entry in shown["records"]}
    assert counts == log.expected()
    assert check(receiver.messages(), log) == shown["complete"]


@pytest.mark.django_db(transaction=True)
def test_a_kafka_topic_with_a_registry(kafka: Server, schema_registry: Server) -> None:
    topic = f"cdc-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": KAFKA})
    [made] = admin.create_topics([NewTopic(topic, 3, 1)]).values()
    made.result()
    log = Log("last_by_key")
    log.send_with_kills(
        {"type": "kafka", "bootstrap_servers": KAFKA, "topic": topic, "registry": {"url": ADDRESS}}, len(STEPS)
    )
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": topic, "enable.auto.commit": False})
    parts = [TopicPartition(topic, number, 0) for number in range(3)]
    missing = sum(consumer.get_watermark_offsets(part, LIMIT_SECONDS)[1] for part in parts)
    consumer.assign(parts)
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": ADDRESS}))
    context = SerializationContext(topic, MessageField.VALUE)
    messages: list[Any] = []

    def read() -> bool:
        messages.extend(deserialize(one.value(), context) for one in consumer.consume(1000, 0.5) if not one.error())
        return len(messages) >= missing

    wait_until(read)
    consumer.close()
    check(messages, log)
