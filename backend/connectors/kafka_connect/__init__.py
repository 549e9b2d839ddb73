from backend.connectors.kafka_connect.client import ConnectClient, ConnectError
from backend.connectors.kafka_connect.connection import KafkaConnectConnection
from backend.domain.connector import CheckFailedError, Connector, connectors


@connectors.register
class KafkaConnect(Connector):
    """A Kafka Connect cluster, whose connectors are managed by Connect SQL."""

    type = "kafka_connect"
    title = "Kafka Connect"
    connection_model = KafkaConnectConnection
    capabilities = ()
    example = {"url": "https://connect.example.com:8083"}

    @staticmethod
    async def check(connection: KafkaConnectConnection) -> str:
        """Asks the worker for its version, and which classes it has."""
        client = ConnectClient(connection)
        try:
            worker = await client.worker()
            plugins = await client.plugins()
        except ConnectError as error:
            field = "authentication" if error.status in (401, 403) else error.field
            raise CheckFailedError(str(error), field=field) from None
        finally:
            await client.close()
        return f"Connected to Kafka Connect {worker['version']}; it has {len(plugins)} classes of connectors."
