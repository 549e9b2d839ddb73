from typing import Any

from backend.connectors.mqtt.client import MqttClient, MqttSession
from backend.connectors.mqtt.connection import MqttConnection
from backend.connectors.mqtt.read import MqttReadOptions, subscribed
from backend.domain.capabilities import Register


class MqttRegister(Register[MqttConnection, MqttReadOptions]):
    """Begins the session of a client ID that is new, and ends those of all client IDs that the pipeline has had."""

    options_model = MqttReadOptions

    async def register(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        client_ids = set(made.get("client_ids", []))
        if self.options.client_id not in client_ids:  # a reader that is connected would lose its connection
            client = await subscribed(self.connection, self.options)
            await client.close()
        return {"client_ids": sorted(client_ids | {self.options.client_id})}

    async def unregister(self, name: str, made: dict[str, Any]) -> None:
        for client_id in {self.options.client_id, *made.get("client_ids", [])}:
            client = MqttClient(self.connection, MqttSession(client_id, 0, 1))
            try:
                await client.open()
            finally:
                await client.close()
