import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

from backend.connectors.nats.connection import NatsConnection
from backend.connectors.parts.connection_text import connection_text
from backend.connectors.parts.tls import Tls
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_CLOSE_SECONDS = 2.0
_TOO_LARGE = {10054}
"""JetStream's codes for a message that its stream does not take for its size."""


class NatsClient:
    """A connection that is opened when it is needed. The library's own reconnecting is off: it would follow addresses
    that a server names. Used on one event loop."""

    CONNECT_SECONDS = 10
    ANSWER_SECONDS = 10.0

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self._nats: Any = None
        self._opening = asyncio.Lock()
        self.complaint = ""
        """What the server last reported by itself, such as a missing permission."""

    async def connected(self) -> Any:
        """The library's client. Raises DeliveryError."""
        async with self._opening:
            if self._nats is None or not self._nats.is_connected:
                await self.close()
                self._nats = await self._opened()
            return self._nats

    def jetstream(self) -> Any:
        """The API of JetStream, on the connection that ``connected`` opened."""
        return self._nats.jetstream(timeout=self.ANSWER_SECONDS)

    async def close(self) -> None:
        if self._nats is not None:
            client, self._nats = self._nats, None
            await _close(client)

    async def _opened(self) -> Any:
        failure: DeliveryError | None = None
        for server in self._connection.servers.split(","):
            try:
                with self.as_delivery_errors():
                    return await self._connect(server)
            except DeliveryError as error:
                failure = error
        assert failure is not None
        raise failure

    async def _connect(self, server: str) -> Any:
        from nats.aio.client import Client
        from nats.errors import NoServersError

        host, _, port = server.rpartition(":")
        address = await asyncio.to_thread(outbound_policy().address_of, host)
        tls = self._connection.tls
        causes: list[Exception] = []

        async def note(error: Exception) -> None:
            causes.append(error)
            self.complaint = str(error).removeprefix("nats: ")

        client = Client()

        def check_tls() -> None:
            # The library would go on without encryption when the server does not ask for it.
            if isinstance(tls, Tls) and not client._server_info.get("tls_required"):
                raise ssl.SSLError("the server does not require TLS")

        def after_check(credential: str) -> Callable[[], str]:
            def checked() -> str:
                check_tls()
                return credential

            return checked

        security: dict[str, Any] = {}
        for name, credential in self._connection.login.arguments().items():
            security[name] = after_check(credential)
        if isinstance(tls, Tls):
            security |= {"tls": await asyncio.to_thread(tls.context), "tls_hostname": host}
        try:
            async with asyncio.timeout(self.CONNECT_SECONDS):
                await client.connect(
                    f"nats://[{address}]:{port}" if ":" in address else f"nats://{address}:{port}",
                    name="headrace",
                    error_cb=note,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=self.CONNECT_SECONDS,
                    # The library notices a server that is silent after three intervals.
                    ping_interval=10,
                    max_outstanding_pings=2,
                    **security,
                )
            check_tls()
        except BaseException as error:
            await _close(client)
            if isinstance(error, NoServersError):
                raise causes[-1] if causes else ConnectionRefusedError() from None
            raise
        return client

    @contextlib.contextmanager
    def as_delivery_errors(self) -> Iterator[None]:
        from nats.errors import Error

        try:
            yield
        except (Error, OSError, TimeoutError) as error:
            raise self._delivery_error(error) from None
        except ForbiddenAddressError as error:
            raise DeliveryError(Reason.FORBIDDEN, str(error), retryable=False) from None

    def _delivery_error(self, error: Exception) -> DeliveryError:
        from nats import errors
        from nats.js.errors import APIError, NoStreamResponseError

        text = str(error).removeprefix("nats: ").strip("'\" ")
        match error:
            case NoStreamResponseError() | errors.NoRespondersError():
                text = "No stream of JetStream takes this subject, or JetStream is not enabled."
                return DeliveryError(Reason.CONFIGURATION, text, retryable=True)
            case errors.MaxPayloadError():
                text = "The message is larger than the NATS server accepts (max_payload)."
                return DeliveryError(Reason.TOO_LARGE, text, retryable=False, about_message=True)
            case APIError():
                return _api_error(error)
            case TimeoutError():
                detail = f" It reported: {self.complaint}." if self.complaint else ""
                return DeliveryError(
                    Reason.TIMEOUT, f"The NATS server does not answer in time.{detail}", retryable=True
                )
            case OSError():
                return _network_error(error)
        if isinstance(error, errors.AuthorizationError) or "authorization" in text.lower():
            text = "The NATS server rejects the login: check it."
            return DeliveryError("nats_authentication", text, retryable=True)
        if "secure" in text.lower():
            return DeliveryError(Reason.TLS, f"NATS: {text}: check the setting of TLS.", retryable=True)
        return DeliveryError(Reason.CONNECTION, f"The connection to NATS is lost: {text}.", retryable=True)


async def _close(client: Any) -> None:
    """A connection whose TLS failed never says that it is closed."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()


def _network_error(error: OSError) -> DeliveryError:
    match error:
        case ssl.SSLError():
            return DeliveryError(
                Reason.TLS, f"No trusted TLS connection to NATS: {connection_text(error)}.", retryable=True
            )
        case socket.gaierror():
            text = "The host of the NATS server is not known: check its spelling."
            return DeliveryError(Reason.DNS, text, retryable=True)
    return DeliveryError(Reason.CONNECTION, "No connection to NATS: check host and port.", retryable=True)


def _api_error(error: Any) -> DeliveryError:
    reason, text = f"nats_{error.err_code or error.code}", f"JetStream: {error.description}."
    if error.err_code in _TOO_LARGE:
        return DeliveryError(Reason.TOO_LARGE, text, retryable=False, about_message=True)
    return DeliveryError(reason, text, retryable=True)
