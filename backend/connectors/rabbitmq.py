import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field, SecretStr

from backend.connectors.parts.connection_text import connection_text
from backend.connectors.parts.source_headers import KeepHeaders, headers_of, passed_on, present, text_of
from backend.connectors.parts.tls import NoTls, Tls, TlsSetting
from backend.domain import message_templates
from backend.domain.capabilities import (
    Batch,
    Connection,
    Deliver,
    DeliveryError,
    InputRecord,
    Options,
    ReadStream,
    Receipt,
    Sent,
)
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.message import MESSAGE_ID, Message, SourceHeader
from backend.domain.message_templates import MessageTemplate, TemplateSource
from backend.domain.model import ADVANCED
from backend.domain.reasons import Reason
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
_HEARTBEAT_SECONDS = 10
_IDLE_SECONDS = 10.0
"""How often a reader without messages checks that its queue still exists."""
_BATCH_BYTES = 2 * 1024 * 1024
_SHORT_STRING = 255
"""The longest routing key, name of a header, or property, in bytes."""
_ORDERS = re.compile(r"cc|bcc|x-death|x-(first|last)-death-.*|x-delay|x-(delivery|acquired)-count|x-stream-.*", re.I)
"""Headers by which RabbitMQ routes messages, or that it writes itself."""
_DIRECT_REPLY = "amq.rabbitmq.reply-to"
"""An address that RabbitMQ accepts only from a channel that itself reads the replies."""


class RabbitmqConnection(Connection):
    """A virtual host of a RabbitMQ server."""

    host: str = Field(
        pattern=r"^[^\s/]+$", description="Host name or address of the server.", examples=["rabbitmq.example.com"]
    )
    port: int | None = Field(
        None, ge=1, le=65_535, description="Port of the server; 5672, or 5671 with TLS, by default."
    )
    username: str = Field("guest", min_length=1, description="User name.")
    password: SecretStr = Field(description="Password.")
    virtual_host: str = Field("/", min_length=1, description="Virtual host.")
    tls: TlsSetting = Field(default_factory=NoTls, description="How the connection is encrypted.")

    def hosts(self) -> dict[str, list[str]]:
        return {"host": [self.host]}

    @property
    def server_port(self) -> int:
        return self.port or (5671 if isinstance(self.tls, Tls) else 5672)

    @property
    def shown(self) -> str:
        """For people, without credentials."""
        return f"{self.virtual_host} at {self.host}:{self.server_port}"


class _Client:
    """A connection with one channel, opened when they are needed. Used on one event loop."""

    def __init__(self, connection: RabbitmqConnection) -> None:
        self._setting = connection
        self._connection: Any = None
        self._channel: Any = None
        self._opening = asyncio.Lock()

    async def channel(self) -> Any:
        """With publisher confirms; what is returned by the server raises an error. Raises DeliveryError."""
        async with self._opening:
            with as_delivery_errors():
                if self._connection is None or self._connection.is_closed:
                    await self.close()
                    self._connection = await self._connected()
                    self._channel = None
                if self._channel is None or self._channel.is_closed:
                    self._channel = await self._opened()
            return self._channel

    @property
    def version(self) -> str:
        return str(self._connection.transport.connection.server_properties.get("version", ""))

    async def closed(self) -> None:
        """Returns when the channel is closed, by whatever cause."""
        await self._channel.closed()

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await connection.close()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[Any]:
        """The channel. A connection that is lost is not used again, though the library may notice it later."""
        channel, connection = await self.channel(), self._connection
        try:
            with as_delivery_errors():
                yield channel
        except DeliveryError as error:
            if error.reason == Reason.CONNECTION and connection is self._connection:
                await self.close()
            raise

    async def _opened(self) -> Any:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        except RuntimeError:  # the library's connection has ended without saying so yet
            await self.close()
            raise

    async def _connected(self) -> Any:
        import aio_pika
        from yarl import URL

        setting = self._setting
        context: ssl.SSLContext | None = None
        if isinstance(setting.tls, Tls):
            # The certificate is checked against the name, so it is the name that is connected to.
            await asyncio.to_thread(outbound_policy().check_host, setting.host)
            host, context = setting.host, await asyncio.to_thread(setting.tls.context)
        else:
            host = await asyncio.to_thread(outbound_policy().address_of, setting.host)
        url = URL.build(
            scheme="amqps" if context else "amqp",
            user=setting.username,
            password=setting.password.get_secret_value(),
            host=host,
            port=setting.server_port,
            path="/" + setting.virtual_host,
            query={"heartbeat": str(_HEARTBEAT_SECONDS), "name": "headrace"},
        )
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await aio_pika.connect(url, ssl_context=context)


@contextlib.contextmanager
def as_delivery_errors() -> Iterator[None]:
    from aio_pika.exceptions import AMQPError

    try:
        yield
    except ForbiddenAddressError as error:
        raise DeliveryError(Reason.FORBIDDEN, str(error), retryable=False) from None
    except (AMQPError, OSError, TimeoutError, RuntimeError) as error:
        # A RuntimeError is what the library raises on a connection or channel that is closed.
        raise _delivery_error(error) from None


def _delivery_error(error: Exception) -> DeliveryError:
    from aio_pika import exceptions

    text = str(error.args[-1] if error.args else error).rstrip(".")
    match error:
        case exceptions.PublishError():
            text = "RabbitMQ returned the message: no queue is bound to the exchange for this routing key."
            return DeliveryError("rabbitmq_unroutable", text, retryable=True)
        case exceptions.DeliveryError():
            text = "RabbitMQ refused the message, for example because its queue is full."
            return DeliveryError("rabbitmq_refused", text, retryable=True)
        case exceptions.AuthenticationError() | exceptions.ProbableAuthenticationError():
            text = "RabbitMQ rejects the login: check user name and password."
            return DeliveryError("rabbitmq_authentication", text, retryable=True)
        case exceptions.InvalidFrameError() if "Connection.OpenOk" in text:  # it closes instead of opening
            text = "RabbitMQ does not open the virtual host: check that it exists and that the user may use it."
            return DeliveryError("rabbitmq_virtual_host", text, retryable=True)
        case exceptions.ChannelClosed():
            return DeliveryError(Reason.CONFIGURATION, f"RabbitMQ: {text}.", retryable=True)
        case TimeoutError():
            return DeliveryError(Reason.TIMEOUT, "RabbitMQ does not answer in time.", retryable=True)
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, ssl.SSLError):
            return DeliveryError(
                Reason.TLS, f"No trusted TLS connection to RabbitMQ: {connection_text(cause)}.", retryable=True
            )
        if isinstance(cause, socket.gaierror):
            text = "The host of RabbitMQ is not known: check its spelling."
            return DeliveryError(Reason.DNS, text, retryable=True)
    return DeliveryError(Reason.CONNECTION, "No connection to RabbitMQ: check host and port.", retryable=True)


class RabbitmqOptions(Options):
    """Messages that are published to an exchange."""

    exchange: str = Field(
        "", max_length=127, description="Exchange to publish to, which must exist; empty for the default exchange."
    )
    routing_key: MessageTemplate = Field(
        description="Routing key; {{order.country}} is replaced by that field's value. With the default exchange, the "
        "name of the queue.",
        examples=["orders.{{country}}"],
    )
    require_queue: bool = Field(
        True,
        description="Fail a message that RabbitMQ puts into no queue; otherwise such messages are lost.",
        json_schema_extra=ADVANCED,
    )
    persistent: bool = Field(
        True, description="Have RabbitMQ write messages of durable queues to disk.", json_schema_extra=ADVANCED
    )
    keep_headers: KeepHeaders = True


class RabbitmqDeliver(Deliver[RabbitmqConnection, RabbitmqOptions]):
    """Publishes each message, and waits for RabbitMQ's confirmation.

    At least once: a message whose confirmation was lost is published again when it is retried. Repeats have the same
    property `message_id`. The headers of a record that was read are written with it, of each name the last, as texts,
    or as bytes where they are no UTF-8; `correlation-id`, `reply-to`, `type`, `app-id` and `timestamp` are also the
    properties of that name. Left out are names of more than 255 bytes, and headers by which RabbitMQ routes messages
    (CC, BCC) or that it writes itself, such as x-death."""

    options_model = RabbitmqOptions

    def __init__(self, connection: RabbitmqConnection, options: RabbitmqOptions) -> None:
        super().__init__(connection, options)
        self._routing_key = message_templates.compile_text(options.routing_key, message_templates.scalar_text)

    async def open(self) -> None:
        self._client = _Client(self.connection)

    async def close(self) -> None:
        await self._client.close()

    def target(self) -> str:
        where = f"exchange {self.options.exchange}" if self.options.exchange else "the default exchange"
        return f"{where}, routing key {self.options.routing_key}, of {self.connection.shown}"

    def sent(self, message: Message) -> Sent:
        return Sent(message.body, f"routing key {self._key(message)}")

    async def deliver(self, message: Message) -> Receipt:
        import aio_pika

        key = self._key(message)
        options = self.options
        kept = passed_on(message, options.keep_headers)
        published = aio_pika.Message(
            message.body,
            headers={MESSAGE_ID: message.id, **_headers(kept)},
            message_id=message.id,
            content_type=message.content_type,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT
            if options.persistent
            else aio_pika.DeliveryMode.NOT_PERSISTENT,
            **_properties(kept),
        )
        async with self._client.use() as channel:
            exchange = channel.default_exchange
            if options.exchange:
                exchange = await channel.get_exchange(options.exchange, ensure=False)
            await exchange.publish(published, key, mandatory=options.require_queue, timeout=_ANSWER_SECONDS)
        return Receipt(status="confirmed")

    def _key(self, message: Message) -> str:
        try:
            key = self._routing_key(TemplateSource(message))
            if len(key.encode()) > _SHORT_STRING:
                raise message_templates.UnfitValueError(f"The routing key is longer than {_SHORT_STRING} bytes.")
        except ValueError as error:
            raise message_templates.delivery_error(error) from None
        return key


def _headers(headers: Sequence[SourceHeader]) -> dict[str, Any]:
    return {
        name: None if value is None else text if (text := text_of(value)) is not None else bytearray(value)
        for name, value in headers
        if len(name.encode()) <= _SHORT_STRING and not _ORDERS.fullmatch(name)
    }


def _properties(headers: Sequence[SourceHeader]) -> dict[str, Any]:
    """What RabbitMQ has properties for, where the values fit."""
    values = {name: value for name, value in headers if value and len(value) <= _SHORT_STRING}
    names = {"correlation-id", "reply-to", "type", "app-id"} & values.keys()
    texts = {name.replace("-", "_"): text_of(values[name]) for name in names}
    properties: dict[str, Any] = {name: text for name, text in texts.items() if text is not None}
    if properties.get("reply_to") == _DIRECT_REPLY:
        del properties["reply_to"]
    with contextlib.suppress(ValueError):
        at = datetime.fromisoformat(text_of(values.get("timestamp")) or "")
        if at.tzinfo is not None and at.timestamp() >= 0:
            properties["timestamp"] = at
    return properties


class RabbitmqReadOptions(Options):
    """Messages of one queue."""

    queue: str = Field(min_length=1, max_length=255, description="Queue to read; it must exist.", examples=["orders"])
    order_by_routing_key: bool = Field(
        False, description="Deliver messages with the same routing key in the order in which they were in the queue."
    )
    content_type: str = Field(
        "application/json",
        min_length=1,
        description="Content type of messages that have no property content_type.",
        json_schema_extra=ADVANCED,
    )
    prefetch: int = Field(
        100,
        ge=1,
        le=2_000,
        description="Messages that RabbitMQ sends before earlier ones are acknowledged.",
        json_schema_extra=ADVANCED,
    )


class RabbitmqReadStream(ReadStream[RabbitmqConnection, RabbitmqReadOptions]):
    """Consumes a queue.

    At least once. Messages are acknowledged once Headrace has stored them. What was not acknowledged is delivered again
    after a crash; it becomes a message with the same ID if it has the property `message_id`, which must then be
    different for each message, and otherwise a new one. Headers travel with the message, and so do the properties
    `message-id`, `content-type`, `content-encoding`, `correlation-id`, `reply-to`, `type`, `app-id`, `user-id` and
    `timestamp`, and the name of its `exchange`: outputs write them, and templates have them as
    `{{$message.headers.NAME}}`, the routing key as `{{$message.source}}`. Numbers and times become texts, lists and
    tables JSON. A message with more than 64 KiB of them becomes a dead letter."""

    options_model = RabbitmqReadOptions

    async def open(self) -> None:
        self._client = _Client(self.connection)
        self._received: asyncio.Queue[Any] = asyncio.Queue()
        self._unacknowledged: dict[int, Any] = {}
        channel = await self._client.channel()
        with as_delivery_errors():
            await channel.set_qos(prefetch_count=self.options.prefetch, timeout=_ANSWER_SECONDS)
            self._queue = await channel.get_queue(self.options.queue)
            await self._queue.consume(self._received.put, timeout=_ANSWER_SECONDS)

    async def stream(self) -> AsyncIterator[Batch]:
        closed = asyncio.create_task(self._client.closed())
        try:
            while True:
                messages = await self._next(closed)
                if messages:
                    self._unacknowledged[messages[-1].delivery_tag] = messages[-1]
                    yield Batch([self._record(message) for message in messages], messages[-1].delivery_tag)
        finally:
            closed.cancel()

    async def acknowledge(self, position: Any) -> None:
        """With everything before it."""
        last = self._unacknowledged[position]
        for tag in [tag for tag in self._unacknowledged if tag <= position]:
            del self._unacknowledged[tag]
        with as_delivery_errors():
            async with asyncio.timeout(_ANSWER_SECONDS):
                await last.ack(multiple=True)

    async def lag(self) -> int | None:
        """In the queue, and received but not yet read."""
        return await self._waiting() + self._received.qsize()

    async def close(self) -> None:
        await self._client.close()

    async def _next(self, closed: asyncio.Task[None]) -> list[Any]:
        """Those that have been received, at least one, unless none comes for a while."""
        getting = asyncio.create_task(self._received.get())
        try:
            await asyncio.wait([getting, closed], timeout=_IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not getting.done():
                getting.cancel()
        if not getting.done() or getting.cancelled():
            if closed.done():
                text = "RabbitMQ closed the connection or the channel."
                raise DeliveryError(Reason.CONNECTION, text, retryable=True)
            await self._waiting()  # fails when the queue was deleted
            return []
        messages = [getting.result()]
        size = len(messages[0].body)
        while size < _BATCH_BYTES and not self._received.empty():
            messages.append(self._received.get_nowait())
            size += len(messages[-1].body)
        return messages

    async def _waiting(self) -> int:
        channel = await self._client.channel()
        with as_delivery_errors():
            declared = await channel.declare_queue(self.options.queue, passive=True, timeout=_ANSWER_SECONDS)
        return int(declared.declaration_result.message_count or 0)

    def _record(self, message: Any) -> InputRecord:
        names = ("message_id", "content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id")
        properties = present(**{name: getattr(message, name) for name in (*names, "user_id", "timestamp", "exchange")})
        return InputRecord(
            message.body,
            content_type=message.content_type or self.options.content_type,
            key=message.routing_key.encode() if self.options.order_by_routing_key and message.routing_key else None,
            identity=f"{self.options.queue}/{message.message_id}" if message.message_id else "",
            source=message.routing_key or "",
            headers=headers_of([*properties, *(message.headers or {}).items()]),
        )


@connectors.register
class Rabbitmq(Connector):
    """Reads the messages of RabbitMQ queues, and publishes messages to exchanges."""

    type = "rabbitmq"
    title = "RabbitMQ"
    connection_model = RabbitmqConnection
    capabilities = (RabbitmqDeliver, RabbitmqReadStream)
    requires = ("aio_pika",)
    example = {
        "host": "rabbitmq.example.com",
        "username": "headrace",
        "password": "s3cret",
        "tls": {"type": "tls"},
    }

    @staticmethod
    async def check(connection: RabbitmqConnection) -> str:
        """Logs in to the virtual host, and opens a channel."""
        client = _Client(connection)
        try:
            await client.channel()
            return f"Connected to RabbitMQ {client.version}, virtual host {connection.virtual_host}."
        except DeliveryError as error:
            raise CheckFailedError(str(error), field=_FIELDS.get(error.reason, "host")) from None
        finally:
            await client.close()


_FIELDS = {"rabbitmq_authentication": "password", "rabbitmq_virtual_host": "virtual_host", Reason.TLS: "tls"}
