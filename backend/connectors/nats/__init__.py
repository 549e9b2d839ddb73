from backend.connectors.nats.client import NatsClient
from backend.connectors.nats.connection import NatsConnection
from backend.connectors.nats.read import NatsReadStream
from backend.connectors.nats.write import NatsDeliver
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.reasons import Reason


@connectors.register
class Nats(Connector):
    """Reads messages from streams of NATS JetStream, and publishes messages to them."""

    type = "nats"
    title = "NATS JetStream"
    connection_model = NatsConnection
    capabilities = (NatsDeliver, NatsReadStream)
    requires = ("nats",)
    example = {
        "servers": "nats.example.com:4222",
        "login": {"type": "password", "username": "headrace", "password": "s3cret"},
        "tls": {"type": "tls"},
    }

    @staticmethod
    async def check(connection: NatsConnection) -> str:
        """Logs in, and asks for the account's limits in JetStream."""
        client = NatsClient(connection)
        try:
            nats = await client.connected()
            with client.as_delivery_errors():
                account = await client.jetstream().account_info()
            version = nats.connected_server_version
            shown = f"{version.major}.{version.minor}.{version.patch}"
            return f"Connected to NATS {shown}; the account has {account.streams} stream(s)."
        except DeliveryError as error:
            raise CheckFailedError(str(error), field=_FIELDS.get(error.reason, "servers")) from None
        finally:
            await client.close()


_FIELDS = {"nats_authentication": "login", Reason.TLS: "tls"}
