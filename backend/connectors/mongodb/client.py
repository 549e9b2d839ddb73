"""The client of MongoDB: its settings, the guard of its addresses, and what its errors mean."""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

from backend.connectors.mongodb.connection import MongodbConnection
from backend.connectors.parts.connection_text import chain_of, connection_text
from backend.connectors.parts.tls import Tls, pem_file
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_CONNECT_SECONDS = 5.0
_FIND_SECONDS = 5.0
"""How long a server is looked for that can be used; elections of a primary take a while."""
_NOBODY_YET = "No servers found yet"
"""What pymongo says when no server has answered and none has refused the connection."""
_CONNECTIONS = 16
_UNAUTHORIZED, _AUTHENTICATION_FAILED = 13, 18
_TRANSIENT_CODES = {6, 7, 50, 64, 89, 91, 100, 112, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}
"""Of errors that pass: lost connections, elections, timeouts and conflicts."""


class Client:
    """pymongo's client. Made, used and closed on one event loop."""

    def __init__(self, connection: MongodbConnection) -> None:
        self._connection = connection
        self._client: Any = None

    async def open(self) -> Any:
        """pymongo's client, which connects when it is used; the addresses of the servers are checked now. Raises
        DeliveryError."""
        await self._check_servers()
        _guard_addresses()
        self._client = _made(self._connection)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    @contextlib.asynccontextmanager
    async def errors(self, seconds: float | None = None) -> AsyncIterator[None]:
        """pymongo's errors become DeliveryErrors, and so does the end of that time."""
        from pymongo.errors import PyMongoError

        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise self._timeout() from None
        except (PyMongoError, ForbiddenAddressError) as error:
            raise self._delivery_error(error) from None

    async def _check_servers(self) -> None:
        """Otherwise an error would show only after the time for finding a server."""
        unknown = 0
        addresses = self._connection.addresses()
        for host, _ in addresses:
            try:
                await asyncio.to_thread(outbound_policy().address_of, host)
            except ForbiddenAddressError as error:
                raise DeliveryError(Reason.FORBIDDEN, str(error), retryable=False) from None
            except OSError:
                unknown += 1
        if unknown == len(addresses):
            text = f"No host of {self._connection.servers} is known: check the spelling."
            raise DeliveryError(Reason.DNS, text, retryable=True)

    def _delivery_error(self, error: Exception) -> DeliveryError:
        from pymongo.errors import ConfigurationError, NetworkTimeout, OperationFailure, ServerSelectionTimeoutError

        if isinstance(error, OperationFailure):
            return operation_error(error)
        if isinstance(error, ServerSelectionTimeoutError):
            servers = self._client.topology_description.server_descriptions().values()
            causes = [cause for server in servers for cause in chain_of(server.error)]
        else:
            causes = list(chain_of(error))
        for cause in causes:
            match cause:
                case ForbiddenAddressError():
                    return DeliveryError(Reason.FORBIDDEN, str(cause), retryable=False)
                case OperationFailure():
                    return operation_error(cause)
                case _ if isinstance(cause, ssl.SSLError) or "[SSL: " in str(cause):
                    text = f"No trusted TLS connection to MongoDB: {connection_text(cause, _short(cause))}."
                    return DeliveryError(Reason.TLS, text, retryable=True)
                case ConfigurationError():
                    return DeliveryError(Reason.CONFIGURATION, f"MongoDB: {cause}.", retryable=True)
                case NetworkTimeout() | TimeoutError():
                    return self._timeout()
        if not causes and isinstance(error, ServerSelectionTimeoutError) and _NOBODY_YET in str(error):
            return self._timeout()
        cause = causes[0] if causes else error
        explained = connection_text(cause, _short(cause))
        text = f"No connection to a server of {self._connection.servers} that can be used: {explained}."
        return DeliveryError(Reason.CONNECTION, text, retryable=True)

    def _timeout(self) -> DeliveryError:
        return DeliveryError(Reason.TIMEOUT, f"{self._connection.servers}: MongoDB does not answer.", retryable=True)


def operation_error(error: Any) -> DeliveryError:
    """What MongoDB refused as a whole. Whoever corrects the configuration wants the messages delivered afterwards."""
    code, text = error.code, str((error.details or {}).get("errmsg") or error).rstrip(".")
    if code == _AUTHENTICATION_FAILED:
        text = "MongoDB rejects the login: check user name, password and login database."
        return DeliveryError(LOGIN_REJECTED, text, retryable=True)
    if code == _UNAUTHORIZED:
        return DeliveryError(Reason.CONFIGURATION, f"MongoDB does not permit this to the user: {text}.", retryable=True)
    return DeliveryError(f"mongodb_{code}", f"MongoDB: {text}.", retryable=True)


LOGIN_REJECTED = f"mongodb_{_AUTHENTICATION_FAILED}"


def write_error(code: int, text: str) -> DeliveryError:
    """What MongoDB refused of one document."""
    transient = code in _TRANSIENT_CODES
    text = f"MongoDB rejects the document: {text.rstrip('.')}."
    return DeliveryError(f"mongodb_{code}", text, retryable=transient, about_message=not transient)


def _made(connection: MongodbConnection) -> Any:
    from pymongo import AsyncMongoClient

    settings: dict[str, Any] = {
        "directConnection": connection.direct,
        "replicaSet": connection.replica_set or None,
        "appname": "headrace",
        "maxPoolSize": _CONNECTIONS,
        "connectTimeoutMS": int(_CONNECT_SECONDS * 1000),
        "serverSelectionTimeoutMS": int(_FIND_SECONDS * 1000),
    }
    if connection.password is not None:
        settings |= {
            "username": connection.username,
            "password": connection.password.get_secret_value(),
            "authSource": connection.login_database,
        }
        if connection.mechanism != "SCRAM":
            settings["authMechanism"] = connection.mechanism
    seeds = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in connection.addresses()]
    with contextlib.ExitStack() as files:
        if isinstance(connection.tls, Tls):
            settings |= _tls_settings(connection.tls, files)
        return AsyncMongoClient(seeds, **{name: value for name, value in settings.items() if value is not None})


def _tls_settings(tls: Tls, files: contextlib.ExitStack) -> dict[str, Any]:
    """The files are read when the client is made."""
    settings: dict[str, Any] = {"tls": True}
    if tls.ca:
        settings["tlsCAFile"] = files.enter_context(pem_file(tls.ca))
    if tls.key is not None:
        settings["tlsCertificateKeyFile"] = files.enter_context(pem_file(tls.key.get_secret_value() + tls.certificate))
        if tls.key_password:
            settings["tlsCertificateKeyFilePassword"] = tls.key_password.get_secret_value()
    return settings


@functools.cache
def _guard_addresses() -> None:
    """From now on pymongo connects only to addresses that the outbound policy permits, which also goes for those that
    a server names as members of its replica set. pymongo has no setting for that."""
    from pymongo import pool_shared

    connect = pool_shared._async_create_connection

    async def connect_if_permitted(address: tuple[str, int | None], options: Any) -> socket.socket:
        host, port = address
        if host.endswith(".sock"):
            raise ForbiddenAddressError(f"{host} is the address of a Unix socket, which is not connected to.")
        # The certificate is still compared with the name.
        permitted = await asyncio.to_thread(outbound_policy().address_of, host)
        return await connect((permitted, port), options)

    pool_shared._async_create_connection = connect_if_permitted


def _short(error: BaseException) -> str:
    """Without the settings and the topology that pymongo appends."""
    return str(error).partition(", Timeout:")[0].partition(" (configured")[0].rstrip(".")
