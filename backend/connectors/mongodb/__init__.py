from typing import Any

from backend.connectors.mongodb.client import LOGIN_REJECTED, Client
from backend.connectors.mongodb.connection import MongodbConnection
from backend.connectors.mongodb.read import MongodbReadBatch
from backend.connectors.mongodb.write import MongodbDeliver, MongodbDeliverBatch
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.reasons import Reason

_FIELDS: dict[str, str] = {LOGIN_REJECTED: "password", Reason.TLS: "tls", Reason.CONFIGURATION: "username"}


@connectors.register
class Mongodb(Connector):
    """Writes messages to collections of MongoDB, and reads documents as messages."""

    type = "mongodb"
    title = "MongoDB"
    connection_model = MongodbConnection
    capabilities = (MongodbDeliver, MongodbDeliverBatch, MongodbReadBatch)
    requires = ("pymongo",)
    example = {
        "servers": "mongo-1.example.com:27017,mongo-2.example.com:27017",
        "username": "headrace",
        "password": "s3cret",
        "tls": {"type": "tls"},
    }

    @staticmethod
    async def check(connection: MongodbConnection) -> str:
        """Logs in, and asks for version and replica set."""
        client = Client(connection)
        try:
            admin: Any = (await client.open()).admin
            async with client.errors():
                await admin.command("ping")
                hello, version = await admin.command("hello"), (await admin.command("buildInfo"))["version"]
                login = (await admin.command("connectionStatus"))["authInfo"]["authenticatedUsers"]
        except DeliveryError as error:
            raise CheckFailedError(str(error), field=_FIELDS.get(error.reason, "servers")) from None
        finally:
            await client.close()
        member = f", replica set {hello['setName']}" if "setName" in hello else ""
        user = f"as {login[0]['user']}" if login else "without a login"
        return f"Connected to MongoDB {version}{member} {user}."
