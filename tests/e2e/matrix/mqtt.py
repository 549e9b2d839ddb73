"""Topics of an MQTT broker."""

import queue
from collections.abc import Sequence

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests import mosquitto
from tests.e2e.matrix.ends import End, Inlet, Outlet, Record, bodies_of, parsed
from tests.waiting import LIMIT_SECONDS


class _Topic(End):
    type, servers = "mqtt", (mosquitto.mosquitto_server,)
    connection = {
        "host": "127.0.0.1", "port": mosquitto.PORT, "username": mosquitto.USER, "password": mosquitto.PASSWORD,
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.client = Client(CallbackAPIVersion.VERSION2, self.name, protocol=MQTTv5)
        self.client.username_pw_set(mosquitto.USER, mosquitto.PASSWORD)
        self.client.connect("127.0.0.1", mosquitto.PORT)
        self.client.loop_start()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class MqttInlet(_Topic, Inlet):
    """The broker retains the records, since nobody subscribes to them yet."""

    def __init__(self) -> None:
        super().__init__()
        self.options = {"topic": f"{self.name}/#", "client_id": f"{self.name}-reader"}

    def write(self, records: Sequence[Record]) -> None:
        for number, body in enumerate(bodies_of(records)):
            self.client.publish(f"{self.name}/{number}", body, qos=1, retain=True).wait_for_publish(30)


class MqttOutlet(_Topic, Outlet):
    def __init__(self) -> None:
        super().__init__()
        self.options = {"topic": self.name}
        self._records: list[Record] = []
        self._received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        subscribed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.client.on_subscribe = lambda *_: subscribed.put(None)
        self.client.on_message = self._receive
        self.client.subscribe(self.name, qos=1)
        subscribed.get(timeout=LIMIT_SECONDS)

    def _receive(self, _client: object, _data: object, message: MQTTMessage) -> None:
        self._received.put(message.payload)

    def read(self) -> list[Record]:
        while not self._received.empty():
            self._records.append(parsed(self._received.get()))
        return self._records
