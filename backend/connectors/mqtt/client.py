"""One connection to a broker. The library's network thread runs beside the event loop, which its callbacks are passed
to; a connection that was lost is not used again."""

import asyncio
import concurrent.futures
import contextlib
import socket
import ssl
from typing import Any

from backend.connectors.mqtt.connection import MqttConnection
from backend.connectors.parts.connection_text import connection_text
from backend.connectors.parts.tls import Tls
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
_PENDING_PUBLICATIONS = 100
"""Publications that wait for the broker's acknowledgement; a broker may permit fewer."""
_REJECTED_LOGINS = {0x86, 0x87, 0x8A, 0x8C}
_OTHER_VERSION = 0x84
_TOO_LARGE = 0x95
_UNFIT_MESSAGES = {0x90, 0x99}
"""The topic's name is invalid; the body is not in the format that it declares."""


class MqttSession:
    """How the broker keeps what it owes to a reader. ``seconds`` without a connection end it; with 0, an earlier
    session of the client ID ends at once, too."""

    def __init__(self, client_id: str, seconds: int, pending: int) -> None:
        self.client_id = client_id
        self.seconds = seconds
        self.pending = pending


class MqttClient:
    """A connection. With a session, what is received is acknowledged by ``acknowledge`` and nothing else."""

    def __init__(self, connection: MqttConnection, session: MqttSession | None = None) -> None:
        self._connection = connection
        self._session = session
        self._client: Any = None
        self._answers: dict[tuple[str, int], asyncio.Future[Any]] = {}
        """Of requests that the broker has not answered yet, by their kinds and packet identifiers."""
        self._putting: concurrent.futures.Future[None] | None = None
        self._closing = False
        self.received: asyncio.Queue[Any] = asyncio.Queue(session.pending if session else 1)
        self.lost: asyncio.Future[DeliveryError] = asyncio.get_running_loop().create_future()
        """Why there is no connection any more."""
        self.most_bytes: int | None = None
        """The largest packet that the broker accepts, if it has announced a limit."""

    async def open(self) -> None:
        """Raises DeliveryError."""
        self._loop = asyncio.get_running_loop()
        connected = self._answers["connect", 0] = self._loop.create_future()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._connect()
                properties = await connected
        except (OSError, ForbiddenAddressError) as error:  # a TimeoutError is one, too
            raise connection_error(error) from None
        self._room = asyncio.Semaphore(min(_PENDING_PUBLICATIONS, getattr(properties, "ReceiveMaximum", 65_535)))
        self.most_bytes = getattr(properties, "MaximumPacketSize", None)

    async def publish(self, topic: str, body: bytes, *, qos: int, retain: bool, properties: Any) -> str:
        """Returns once the broker has it, as the quality of service demands, with what the broker answered."""
        async with self._room:
            info = self._connected().publish(topic, body, qos=qos, retain=retain, properties=properties)
            if info.rc:
                raise _lost()
            reason = await self._answer("publish", info.mid)
        if reason.is_failure:
            raise _refusal(reason)
        return str(reason)

    async def subscribe(self, topic: str, options: Any) -> None:
        """``options`` are the quality of service, or MQTT 5's options of a subscription."""
        result, packet = self._connected().subscribe(
            topic, **({"qos": options} if isinstance(options, int) else {"options": options})
        )
        if result:
            raise _lost()
        reason = (await self._answer("subscribe", packet))[0]
        if reason.is_failure:
            text = f"The MQTT broker refuses the subscription to {topic}: {reason}."
            raise DeliveryError(Reason.CONFIGURATION, text, retryable=True)

    def acknowledge(self, packet: int) -> None:
        """A message with the quality of service 1."""
        if self._connected().ack(packet, 1):
            raise _lost()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        self._closing = True
        if self._putting is not None:
            self._putting.cancel()  # the network thread waits for it
        if client.disconnect() == 0:
            await asyncio.wait([self.lost], timeout=_CLOSE_SECONDS)
        _forget(client)

    def _connected(self) -> Any:
        """The library's client. Raises DeliveryError when its connection is lost, or was closed meanwhile."""
        if self.lost.done():
            raise self.lost.result()
        if self._client is None:
            raise _lost()
        return self._client

    async def _answer(self, kind: str, packet: int) -> Any:
        answered = self._answers[kind, packet] = self._loop.create_future()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await asyncio.wait([answered, self.lost], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise connection_error(error) from None
        finally:
            self._answers.pop((kind, packet), None)
        if not answered.done():
            raise self.lost.result()
        return answered.result()

    async def _connect(self) -> None:
        """Sends the request to connect; ``_on_connect`` gets the answer."""
        setting, session = self._connection, self._session
        host = setting.host
        context: ssl.SSLContext | None = None
        if isinstance(setting.tls, Tls):
            # The certificate is checked against the name, so it is the name that is connected to.
            await asyncio.to_thread(outbound_policy().check_host, host)
            context = await asyncio.to_thread(setting.tls.context)
        else:
            host = await asyncio.to_thread(outbound_policy().address_of, host)
        client = self._client = self._made(context)
        arguments: dict[str, Any] = {}
        if setting.version == "5":
            arguments = {"clean_start": _is_new(session), "properties": _connect_properties(session)}
        await asyncio.to_thread(client.connect, host, setting.server_port, setting.keep_alive_seconds, **arguments)
        client.loop_start()

    def _made(self, context: ssl.SSLContext | None) -> Any:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

        setting, session = self._connection, self._session
        five = setting.version == "5"
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=session.client_id if session else "",
            clean_session=None if five else _is_new(session),
            protocol=MQTTProtocolVersion.MQTTv5 if five else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = _CONNECT_SECONDS
        client.max_inflight_messages_set(_PENDING_PUBLICATIONS)
        if setting.username:
            client.username_pw_set(
                setting.username, setting.password.get_secret_value() if setting.password is not None else None
            )
        if context is not None:
            client.tls_set_context(context)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        return client

    # The network thread calls what follows.

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, properties: Any) -> None:
        error = _connect_refusal(reason) if reason.is_failure else None
        self._loop.call_soon_threadsafe(self._settle, ("connect", 0), properties, error)

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._loop.call_soon_threadsafe(self._lose, _lost(str(reason)))

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        """Waits until there is room, so that memory is bounded also where the broker knows no limit."""
        if self._closing:
            return
        self._putting = asyncio.run_coroutine_threadsafe(self.received.put(message), self._loop)
        with contextlib.suppress(concurrent.futures.CancelledError):
            self._putting.result()

    def _on_publish(self, _client: Any, _data: Any, packet: int, reason: Any, _properties: Any) -> None:
        self._loop.call_soon_threadsafe(self._settle, ("publish", packet), reason)

    def _on_subscribe(self, _client: Any, _data: Any, packet: int, reasons: Any, _properties: Any) -> None:
        self._loop.call_soon_threadsafe(self._settle, ("subscribe", packet), reasons)

    # The event loop calls what follows.

    def _settle(self, request: tuple[str, int], answer: Any, error: DeliveryError | None = None) -> None:
        waiting = self._answers.get(request)
        if waiting is None or waiting.done():
            return
        if error is not None:
            waiting.set_exception(error)
        else:
            waiting.set_result(answer)

    def _lose(self, error: DeliveryError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)
        self._settle(("connect", 0), None, error)


def _forget(client: Any) -> None:
    """Ends the network thread, also of a broker that does not answer; nothing of it is passed on any more."""
    client.on_connect = client.on_disconnect = client.on_message = client.on_publish = client.on_subscribe = None
    if (connection := client.socket()) is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _is_new(session: MqttSession | None) -> bool:
    return session is None or session.seconds == 0


def _connect_properties(session: MqttSession | None) -> Any:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    if session is not None:
        properties.SessionExpiryInterval = session.seconds
        properties.ReceiveMaximum = session.pending
    return properties


def _lost(cause: str = "") -> DeliveryError:
    detail = f": {cause}" if cause else ""
    text = f"The connection to the MQTT broker is lost{detail}. Check port, TLS and version if this happens repeatedly."
    return DeliveryError(Reason.CONNECTION, text, retryable=True)


def _connect_refusal(reason: Any) -> DeliveryError:
    if reason.value in _REJECTED_LOGINS:
        text = "The MQTT broker rejects the login: check user name and password, and the rights of the client ID."
        return DeliveryError("mqtt_authentication", text, retryable=True)
    if reason.value == _OTHER_VERSION:
        text = "The MQTT broker does not support this version of MQTT: choose the other one."
        return DeliveryError("mqtt_version", text, retryable=True)
    return DeliveryError(f"mqtt_{reason.value}", f"The MQTT broker refuses the connection: {reason}.", retryable=True)


def _refusal(reason: Any) -> DeliveryError:
    """Of a publication."""
    text = f"The MQTT broker refuses the message: {reason}."
    if reason.value == _TOO_LARGE:
        return DeliveryError(Reason.TOO_LARGE, text, retryable=False, about_message=True)
    unfit = reason.value in _UNFIT_MESSAGES
    return DeliveryError(f"mqtt_{reason.value}", text, retryable=not unfit, about_message=unfit)


def connection_error(error: Exception) -> DeliveryError:
    match error:
        case ForbiddenAddressError():
            return DeliveryError(Reason.FORBIDDEN, str(error), retryable=False)
        case TimeoutError():
            return DeliveryError(Reason.TIMEOUT, "The MQTT broker does not answer in time.", retryable=True)
        case ssl.SSLError():
            return DeliveryError(
                Reason.TLS, f"No trusted TLS connection to the MQTT broker: {connection_text(error)}.", retryable=True
            )
        case socket.gaierror():
            text = "The host of the MQTT broker is not known: check its spelling."
            return DeliveryError(Reason.DNS, text, retryable=True)
    return DeliveryError(Reason.CONNECTION, "No connection to the MQTT broker: check host and port.", retryable=True)
