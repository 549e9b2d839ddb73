"""Google Pub/Sub."""

from collections.abc import Sequence

from google.pubsub_v1 import PubsubMessage

from tests import pubsub
from tests.e2e.matrix.ends import Inlet, Outlet, Record, bodies_of, parsed


class PubsubInlet(Inlet):
    type, servers = "pubsub", (pubsub.emulator_server,)
    connection = pubsub.CONNECTION

    def __init__(self) -> None:
        super().__init__()
        self._topic, subscription = pubsub.make_topic()
        self.options = {"subscription": subscription}

    def write(self, records: Sequence[Record]) -> None:
        for body in bodies_of(records):
            path = f"projects/{pubsub.PROJECT}/topics/{self._topic}"
            pubsub.publisher().publish(topic=path, messages=[PubsubMessage(data=body)])


class PubsubOutlet(Outlet):
    type, servers = "pubsub", (pubsub.emulator_server,)
    connection = pubsub.CONNECTION

    def __init__(self) -> None:
        super().__init__()
        topic, self._subscription = pubsub.make_topic()
        self.options = {"topic": topic}
        self._records: list[Record] = []

    def read(self) -> list[Record]:
        path, client = f"projects/{pubsub.PROJECT}/subscriptions/{self._subscription}", pubsub.subscriber()
        request = {"subscription": path, "max_messages": 1000, "return_immediately": True}
        while received := client.pull(request=request).received_messages:
            self._records += [parsed(one.message.data) for one in received]
            client.acknowledge(subscription=path, ack_ids=[one.ack_id for one in received])
        return self._records
