"""Kafka topics."""

from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.matrix.ends import Inlet, Outlet, Record, bodies_of, parsed
from tests.infra import KAFKA


class KafkaInlet(Inlet):
    type, fixtures = "kafka", ("kafka",)
    connection = {"bootstrap_servers": KAFKA}

    def __init__(self) -> None:
        super().__init__()
        self.options = {"topics": [_topic(self.name, 2)], "group": self.name}

    def write(self, records: Sequence[Record]) -> None:
        producer = Producer({"bootstrap.servers": KAFKA, "message.max.bytes": 2_000_000})
        for body in bodies_of(records):
            producer.produce(self.name, body)
        assert producer.flush(60) == 0


class KafkaOutlet(Outlet):
    type, fixtures = "kafka", ("kafka",)
    connection = {"bootstrap_servers": KAFKA}

    def __init__(self) -> None:
        super().__init__()
        self.options = {"topic": _topic(self.name, 1)}

    def read(self) -> list[Record]:
        consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": self.name, "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.name, 0, 0)])
        records: list[Record] = []
        with closing(consumer):
            while (record := consumer.poll(30)) is not None and record.error() is None:
                records.append(parsed(record.value() or b""))
        return records


def _topic(name: str, partitions: int) -> str:
    admin = AdminClient({"bootstrap.servers": KAFKA})
    [created] = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    created.result(30)
    return name
