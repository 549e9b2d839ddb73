"""Kafka topics."""

from collections.abc import Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.matrix.ends import Inlet, Outlet, Record, bodies_of, parsed
from tests.infra import KAFKA
from tests.topics import records_of
from tests.waiting import LIMIT_SECONDS


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
        return [parsed(record.value() or b"") for record in records_of(self.name)]


def _topic(name: str, partitions: int) -> str:
    admin = AdminClient({"bootstrap.servers": KAFKA})
    [created] = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    created.result(LIMIT_SECONDS)
    return name
