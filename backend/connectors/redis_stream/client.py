"""Clients of a Redis server, and its failures in Headrace's terms."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import Connection as RedisConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from backend.connectors.parts.connection_text import chain_of, connection_text
from backend.connectors.parts.tls import Tls
from backend.connectors.redis_stream.connection import RedisStreamConnection
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_CONNECTIONS = 8
_CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0


class _GuardedConnection(RedisConnection):
    """Connects only to an address that the outbound policy permits."""

    def __init__(self, *, context: ssl.SSLContext | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._context = context

    async def _connect(self) -> None:
        self._address = await asyncio.to_thread(outbound_policy().address_of, self.host)
        await super()._connect()  # type: ignore[no-untyped-call]

    def _connection_arguments(self) -> Mapping[str, Any]:
        encryption = {"ssl": self._context, "server_hostname": self.host} if self._context else {}
        return {"host": self._address, "port": self.port, **encryption}


def client_of(connection: RedisStreamConnection) -> Redis:
    pool = BlockingConnectionPool(
        connection_class=_GuardedConnection,
        context=connection.tls.context() if isinstance(connection.tls, Tls) else None,
        max_connections=_CONNECTIONS,
        timeout=None,
        host=connection.host,
        port=connection.port,
        username=connection.username or None,
        password=connection.password.get_secret_value() if connection.password else None,
        db=connection.database,
        socket_connect_timeout=_CONNECT_SECONDS,
        # With it, redis-py uses asyncio.wait_for, which may lose a cancellation in Python 3.11.
        socket_timeout=None,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)


@contextlib.contextmanager
def as_delivery_errors() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        raise delivery_error(error) from None


def delivery_error(error: Exception) -> DeliveryError:
    for cause in chain_of(error):
        match cause:
            case ForbiddenAddressError():
                return DeliveryError(Reason.FORBIDDEN, str(cause), retryable=False)
            case ssl.SSLError():
                return DeliveryError(
                    Reason.TLS, f"No trusted TLS connection to Redis: {connection_text(cause)}.", retryable=True
                )
            case socket.gaierror():
                return DeliveryError(Reason.DNS, "The host of Redis is not known: check its spelling.", retryable=True)
    match error:
        case AuthenticationError():
            return DeliveryError(
                "redis_authentication", "Redis rejects the login: check user name and password.", retryable=True
            )
        case TimeoutError() | RedisTimeoutError():
            return DeliveryError(Reason.TIMEOUT, "Redis does not answer.", retryable=True)
        case OutOfMemoryError() | ReadOnlyError() | BusyLoadingError() | TryAgainError():
            return DeliveryError("redis_unavailable", f"Redis: {error}", retryable=True)
        case ResponseError():
            return DeliveryError("redis_rejected", f"Redis rejects the command: {error}", retryable=False)
    return DeliveryError(Reason.CONNECTION, "No connection to Redis: check host and port.", retryable=True)
