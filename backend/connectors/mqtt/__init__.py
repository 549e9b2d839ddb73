from backend.connectors.mqtt.client import MqttClient
from backend.connectors.mqtt.connection import MqttConnection
from backend.connectors.mqtt.deliver import MqttDeliver
from backend.connectors.mqtt.read import MqttReadStream
from backend.connectors.mqtt.register import MqttRegister
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.reasons import Reason


@connectors.register
class Mqtt(Connector):
    """Reads messages of MQTT topics, and publishes messages to them."""

    type = "mqtt"
    title = "MQTT"
    connection_model = MqttConnection
    capabilities = (MqttDeliver, MqttReadStream, MqttRegister)
    requires = ("paho",)
    example = {
        "host": "mqtt.example.com",
        "username": "headrace",
        "password": "s3cret",
        "tls": {"type": "tls"},
    }

    @staticmethod
    async def check(connection: MqttConnection) -> str:
        """Connects and logs in, without a session."""
        client = MqttClient(connection)
        try:
            await client.open()
        except DeliveryError as error:
            raise CheckFailedError(str(error), field=_FIELDS.get(error.reason, "host")) from None
        finally:
            await client.close()
        return f"Connected to {connection.shown} by MQTT {connection.version}."


_FIELDS = {"mqtt_authentication": "password", "mqtt_version": "version", Reason.TLS: "tls"}
