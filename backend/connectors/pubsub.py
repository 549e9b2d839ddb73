import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, Literal

import grpc
from pydantic import Field

from backend.connectors.parts.batch_limit import FIRST_RECORDS, next_limit
from backend.connectors.parts.google import Emulator, ServiceAccount
from backend.connectors.parts.holding import hold_forever
from backend.connectors.parts.source_headers import KeepHeaders, headers_of, passed_on, present, text_of
from backend.domain.capabilities import (
    Batch,
    BatchRefusedError,
    Connection,
    Deliver,
    DeliverBatch,
    DeliveryError,
    InputRecord,
    Options,
    ReadStream,
    Receipt,
    Sent,
)
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.message import CONTENT_TYPE, MESSAGE_ID, Message, SourceHeader
from backend.domain.reasons import Reason
from backend.network.outbound import ForbiddenAddressError

log = logging.getLogger(__name__)

_CALL_SECONDS = 10.0
_WAIT_SECONDS = 30.0
"""How long a request waits for messages."""
_DEADLINE_SECONDS = 30
"""Pub/Sub delivers a message again that was not acknowledged for this long."""
_EXTEND_SECONDS = 5.0
"""How often that time is begun anew; the shortest one of a subscription is 10 s."""
_CLOSE_SECONDS = 5.0
_CHANNEL = [
    ("grpc.max_receive_message_length", 128 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),
]
_ORDERING_KEY_BYTES = 1024
_ATTRIBUTES, _NAME_BYTES, _VALUE_BYTES = 100, 256, 1024
"""The most that a message may have."""


class PubsubConnection(Connection):
    """A project of Google Cloud Pub/Sub."""

    project: str = Field(
        pattern=r"^[a-z0-9][a-z0-9.:-]{1,99}$", description="ID of the project.", examples=["my-project"]
    )
    access: Annotated[ServiceAccount | Emulator, Field(discriminator="type")] = Field(
        description="How Headrace identifies itself."
    )

    def hosts(self) -> dict[str, list[str]]:
        if isinstance(self.access, Emulator):
            return {"access": [self.access.host]}
        return {}


class _Client:
    """The clients of one connection. Made and closed on one event loop."""

    def __init__(self, connection: PubsubConnection) -> None:
        self._connection = connection
        self._transport: Any = None

    async def open(self, kind: Literal["publisher", "subscriber"]) -> Any:
        """Google's asynchronous client. Raises ForbiddenAddressError, and OSError for an unknown host."""
        from google import pubsub_v1
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

        transport_class = PublisherGrpcAsyncIOTransport if kind == "publisher" else SubscriberGrpcAsyncIOTransport
        client_class = pubsub_v1.PublisherAsyncClient if kind == "publisher" else pubsub_v1.SubscriberAsyncClient
        access = self._connection.access
        if isinstance(access, Emulator):
            target = await access.target()
            self._transport = transport_class(channel=grpc.aio.insecure_channel(target, options=_CHANNEL))
        else:
            self._transport = transport_class(
                credentials=access.credentials(),
                always_use_jwt_access=True,
                channel=lambda *args, **arguments: transport_class.create_channel(
                    *args, **{**arguments, "options": _CHANNEL}
                ),
            )
        return client_class(transport=self._transport)

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()


@contextlib.contextmanager
def _as_delivery_errors(refused: type[DeliveryError] = DeliveryError) -> Iterator[None]:
    """``refused`` is what a request becomes that Pub/Sub rejects for what is in it."""
    from google.api_core.exceptions import GoogleAPICallError

    try:
        yield
    except ForbiddenAddressError as error:
        raise DeliveryError(Reason.FORBIDDEN, str(error), retryable=False) from None
    except OSError:
        raise DeliveryError(Reason.DNS, "The host of the emulator is not known.", retryable=True) from None
    except GoogleAPICallError as error:
        raise _delivery_error(error, refused) from None


def _delivery_error(error: Any, refused: type[DeliveryError]) -> DeliveryError:
    code = error.grpc_status_code.name if error.grpc_status_code else "UNKNOWN"
    match code:
        case "UNAVAILABLE" | "DEADLINE_EXCEEDED":
            kind = Reason.CONNECTION if code == "UNAVAILABLE" else Reason.TIMEOUT
            return DeliveryError(kind, f"Pub/Sub does not answer ({code}).", retryable=True)
        case "UNAUTHENTICATED" | "PERMISSION_DENIED":
            text = f"Pub/Sub does not permit this to the service account: {error.message}"
            return DeliveryError(f"pubsub_{code.lower()}", text, retryable=False)
        case "INVALID_ARGUMENT":
            return refused(f"pubsub_{code.lower()}", f"Pub/Sub rejects the request: {error.message}", retryable=False)
    return DeliveryError(f"pubsub_{code.lower()}", f"Pub/Sub: {error.message}", retryable=code not in _FINAL)


_FINAL = {"NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"}


class PubsubOptions(Options):
    """Messages that are published to one topic."""

    topic: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9._~+%-]{2,254}$",
        description="ID of the topic to publish to; it must exist.",
        examples=["orders"],
    )
    ordered: bool = Field(
        False,
        description="Send each message's key as its ordering key, so that subscriptions with message ordering get "
        "messages with the same key in order.",
    )
    keep_headers: KeepHeaders = True


class _Publishing:
    """What single deliveries and batches share."""

    connection: PubsubConnection
    options: PubsubOptions

    async def open(self) -> None:
        self._client = _Client(self.connection)
        with _as_delivery_errors():
            self._publisher = await self._client.open("publisher")

    async def close(self) -> None:
        await self._client.close()

    def target(self) -> str:
        return f"projects/{self.connection.project}/topics/{self.options.topic}"

    def sent(self, message: Message) -> Sent:
        return Sent(message.body, f"ordering key {_ordering_key(message.key)}" if self.options.ordered else "")

    async def publish(self, messages: Sequence[Message], refused: type[DeliveryError]) -> list[Receipt]:
        with _as_delivery_errors(refused):
            answer = await self._publisher.publish(
                topic=self.target(), messages=[self._published(one) for one in messages], retry=None, timeout=None
            )
        return [Receipt(status=message_id) for message_id in answer.message_ids]

    def _published(self, message: Message) -> dict[str, Any]:
        return {
            "data": message.body,
            "attributes": self._attributes(message),
            "ordering_key": _ordering_key(message.key) if self.options.ordered else "",
        }

    def _attributes(self, message: Message) -> dict[str, str]:
        own = {MESSAGE_ID: message.id, CONTENT_TYPE: message.content_type}
        kept = _fit(passed_on(message, self.options.keep_headers))
        return own | dict(list(kept.items())[: _ATTRIBUTES - len(own)])


def _fit(headers: Sequence[SourceHeader]) -> dict[str, str]:
    """The last of each name, of those that can be attributes."""
    texts = {name: text for name, value in headers if (text := text_of(value)) is not None}
    return {
        name: text
        for name, text in texts.items()
        if name
        and not name.lower().startswith("goog")
        and len(name.encode()) <= _NAME_BYTES
        and len(text.encode()) <= _VALUE_BYTES
    }


class PubsubDeliver(_Publishing, Deliver[PubsubConnection, PubsubOptions]):
    """Publishes each message by a request of its own.

    At least once: a message whose acknowledgement was lost is published again when it is retried. The attributes
    `message-id` and `content-type` are written with it, and the headers of a record that was read, of each name the
    last. Left out are those that Pub/Sub cannot have: beyond 100 attributes, names of more than 256 bytes or with goog
    at their beginning, and values that are no UTF-8 or have more than 1,024 bytes."""

    options_model = PubsubOptions

    async def deliver(self, message: Message) -> Receipt:
        return (await self.publish([message], DeliveryError))[0]


class PubsubDeliverBatch(_Publishing, DeliverBatch[PubsubConnection, PubsubOptions]):
    """Publishes a batch by one request, as a whole or not at all.

    At least once: a batch whose acknowledgement was lost is published again. Pub/Sub takes up to 1,000 messages and
    10 MB in a request. Attributes are those of single messages."""

    options_model = PubsubOptions

    @property
    def atomic(self) -> bool:
        return True

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        return await self.publish(messages, BatchRefusedError)


class PubsubReadOptions(Options):
    """Messages of one subscription."""

    subscription: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9._~+%-]{2,254}$",
        description="ID of the subscription to pull from; it must exist.",
        examples=["orders-headrace"],
    )
    content_type: str = Field(
        "application/json", min_length=1, description="Content type of messages that have no attribute content-type."
    )


class PubsubReadStream(ReadStream[PubsubConnection, PubsubReadOptions]):
    """Pulls from a subscription.

    At least once. Messages are acknowledged once Headrace has stored them, and held until then, however long that
    takes. After a crash they are delivered again when their deadline is over (at most 30 seconds, or the subscription's
    own), as messages with the same IDs. The ordering key is the message's ordering key, the attribute `content-type`
    its content type. Attributes travel with the message, and so do its ID, ordering key and time of publishing:
    outputs write them, and templates have them as `{{$message.headers.NAME}}`, also with the names `pubsub-message-id`,
    `ordering-key` and `publish-time`, the subscription as `{{$message.source}}`. A message with more than 64 KiB of
    them becomes a dead letter."""

    options_model = PubsubReadOptions
    _extending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        from google.api_core.exceptions import PermissionDenied

        self._client = _Client(self.connection)
        self._pending: list[str] = []
        self._subscription = f"projects/{self.connection.project}/subscriptions/{self.options.subscription}"
        with _as_delivery_errors():
            self._subscriber = await self._client.open("subscriber")
            # The role that permits to pull does not permit this, but the answer shows that the server is there.
            with contextlib.suppress(PermissionDenied):
                await self._subscriber.get_subscription(
                    subscription=self._subscription, retry=None, timeout=_CALL_SECONDS
                )
        self._extending = asyncio.create_task(
            hold_forever(_EXTEND_SECONDS, lambda: self._set_deadline(_DEADLINE_SECONDS), self._subscription)
        )

    async def stream(self) -> AsyncIterator[Batch]:
        limit = FIRST_RECORDS
        while True:
            received = await self._pulled(limit)
            if received:
                self._pending = [one.ack_id for one in received]
                limit = next_limit(limit, [len(one.message.data) for one in received])
                yield Batch([self._record(one.message) for one in received], list(self._pending))

    async def acknowledge(self, position: Any) -> None:
        with _as_delivery_errors():
            await self._subscriber.acknowledge(
                subscription=self._subscription, ack_ids=position, retry=None, timeout=_CALL_SECONDS
            )
        acknowledged = set(position)
        self._pending = [ack_id for ack_id in self._pending if ack_id not in acknowledged]

    async def close(self) -> None:
        if self._extending is not None:
            self._extending.cancel()
            with contextlib.suppress(Exception):
                await self._set_deadline(0)  # the next reader gets them at once
        await self._client.close()

    async def _pulled(self, limit: int) -> Sequence[Any]:
        from google.api_core.exceptions import DeadlineExceeded

        with _as_delivery_errors():
            try:
                answer = await self._subscriber.pull(
                    subscription=self._subscription, max_messages=limit, retry=None, timeout=_WAIT_SECONDS
                )
            except DeadlineExceeded:
                return []  # there were no messages
        received: Sequence[Any] = answer.received_messages
        return received

    async def _set_deadline(self, seconds: int) -> None:
        if self._pending:
            await self._subscriber.modify_ack_deadline(
                subscription=self._subscription,
                ack_ids=self._pending,
                ack_deadline_seconds=seconds,
                retry=None,
                timeout=_CLOSE_SECONDS,
            )

    def _record(self, message: Any) -> InputRecord:
        properties = present(
            pubsub_message_id=message.message_id, ordering_key=message.ordering_key, publish_time=message.publish_time
        )
        return InputRecord(
            message.data,
            content_type=message.attributes.get(CONTENT_TYPE) or self.options.content_type,
            key=message.ordering_key.encode() or None,
            identity=f"{self.options.subscription}/{message.message_id}",
            source=self.options.subscription,
            headers=headers_of([*properties, *message.attributes.items()]),
        )


def _ordering_key(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    return text.encode()[:_ORDERING_KEY_BYTES].decode(errors="ignore")


@connectors.register
class Pubsub(Connector):
    """Pulls messages from Google Cloud Pub/Sub, and publishes messages to it."""

    type = "pubsub"
    title = "Google Pub/Sub"
    connection_model = PubsubConnection
    capabilities = (PubsubDeliver, PubsubDeliverBatch, PubsubReadStream)
    requires = ("google.pubsub_v1",)
    example = {"project": "my-project", "access": {"type": "emulator", "endpoint": "localhost:8085"}}

    @staticmethod
    async def check(connection: PubsubConnection) -> str:
        """Lists topics, which needs a working login; that it is not permitted proves one, too."""
        client = _Client(connection)
        try:
            with _as_delivery_errors():
                publisher = await client.open("publisher")
                await publisher.list_topics(
                    request={"project": f"projects/{connection.project}", "page_size": 1},
                    retry=None,
                    timeout=_CALL_SECONDS,
                )
        except DeliveryError as error:
            if error.reason == "pubsub_permission_denied":
                return "Connected; the service account may not list topics, which is not needed."
            field = "project" if error.reason in ("pubsub_not_found", "pubsub_invalid_argument") else "access"
            raise CheckFailedError(str(error), field=field) from None
        finally:
            await client.close()
        return f"Connected to project {connection.project}."
