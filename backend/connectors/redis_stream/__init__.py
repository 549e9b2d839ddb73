from typing import Any

from redis.exceptions import RedisError

from backend.connectors.redis_stream.client import client_of, delivery_error
from backend.connectors.redis_stream.connection import RedisStreamConnection
from backend.connectors.redis_stream.read import RedisReadStream
from backend.connectors.redis_stream.write import RedisDeliver, RedisDeliverBatch
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.reasons import Reason


@connectors.register
class RedisStream(Connector):
    """Reads the entries of a Redis stream, and appends each message to a stream."""

    type = "redis_stream"
    title = "Redis stream"
    connection_model = RedisStreamConnection
    capabilities = (RedisDeliver, RedisDeliverBatch, RedisReadStream)
    example = {"host": "redis.example.com", "username": "headrace", "password": "s3cret", "tls": {"type": "tls"}}

    @staticmethod
    async def check(connection: RedisStreamConnection) -> str:
        """Logs in and sends PING."""
        client = client_of(connection)
        try:
            answer: Any = client.ping()
            await answer
        except (RedisError, OSError) as error:
            failure = delivery_error(error)
            raise CheckFailedError(str(failure), field=_FIELDS.get(failure.reason)) from None
        finally:
            await client.aclose(close_connection_pool=True)
        return f"Connected to {connection.host}:{connection.port}, which answered PING."


_FIELDS = {
    Reason.FORBIDDEN: "host",
    Reason.DNS: "host",
    Reason.CONNECTION: "host",
    Reason.TIMEOUT: "host",
    Reason.TLS: "tls",
    "redis_authentication": "password",
    "redis_rejected": "database",
}
