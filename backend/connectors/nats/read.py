import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import Field

from backend.connectors.nats.client import NatsClient
from backend.connectors.nats.connection import NatsConnection
from backend.connectors.parts.batch_limit import FIRST_RECORDS, next_limit
from backend.connectors.parts.holding import hold_forever
from backend.connectors.parts.source_headers import headers_of
from backend.domain.capabilities import Batch, DeliveryError, InputRecord, Options, ReadStream
from backend.domain.message import CONTENT_TYPE
from backend.domain.model import ADVANCED

log = logging.getLogger(__name__)

_WAIT_SECONDS = 5.0
"""How long the server waits for messages."""


class NatsReadOptions(Options):
    """Messages of one stream."""

    stream: str = Field(
        pattern=r"^[^\s.*>/\\]+$", description="Name of the stream; it must exist.", examples=["ORDERS"]
    )
    consumer: str = Field(
        pattern=r"^[^\s.*>/\\]+$",
        description="Durable consumer under which JetStream keeps what was read; it is made when it is missing, and "
        "stays when the pipeline is deleted, since others may use it.",
        examples=["headrace"],
    )
    filter_subject: str = Field(
        "", description="Subject to read, with wildcards; empty for all.", examples=["orders.>"]
    )
    begin: Literal["earliest", "latest"] = Field(
        "earliest",
        description="Where a new consumer begins: with the oldest message, or with those stored from now on.",
    )
    order_by_subject: bool = Field(
        False, description="Deliver messages with the same subject in the order in which they were stored."
    )
    content_type: str = Field(
        "application/json",
        min_length=1,
        description="Content type of messages that have no header content-type.",
        json_schema_extra=ADVANCED,
    )
    acknowledge_seconds: int = Field(
        30,
        ge=2,
        description="After this time, JetStream delivers messages again that a reader which died had taken. Concerns "
        "consumers that are made.",
        json_schema_extra=ADVANCED,
    )


class NatsReadStream(ReadStream[NatsConnection, NatsReadOptions]):
    """Pulls messages as a durable consumer of a stream.

    At least once. Messages are acknowledged once Headrace has stored them, and held until then. After a crash they are
    delivered again when their time is over, as messages with the same IDs. Headers travel with the message: outputs
    write them, and templates have them as `{{$message.headers.NAME}}`, the subject as `{{$message.source}}`. A message
    with more than 64 KiB of headers becomes a dead letter."""

    options_model = NatsReadOptions
    _subscription: Any = None
    _holding: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._client = NatsClient(self.connection)
        self._pending: list[str] = []
        self._nats = await self._client.connected()
        self._jetstream = self._client.jetstream()
        with self._client.as_delivery_errors():
            consumer = await self._consumer()
            self._subscription = await self._jetstream.pull_subscribe_bind(self.options.consumer, self.options.stream)
        wait = consumer.config.ack_wait or self.options.acknowledge_seconds
        self._holding = asyncio.create_task(
            hold_forever(max(0.5, wait / 3), lambda: self._answer(self._pending, b"+WPI"), self.options.stream)
        )

    async def stream(self) -> AsyncIterator[Batch]:
        limit = FIRST_RECORDS
        while True:
            messages = await self._fetched(limit)
            if messages:
                self._pending = [message.reply for message in messages]
                limit = next_limit(limit, [len(message.data) for message in messages])
                yield Batch([self._record(message) for message in messages], list(self._pending))

    async def acknowledge(self, position: Any) -> None:
        await self._answer(position, b"+ACK")
        acknowledged = set(position)
        self._pending = [reply for reply in self._pending if reply not in acknowledged]

    async def lag(self) -> int | None:
        with self._client.as_delivery_errors():
            consumer = await self._jetstream.consumer_info(self.options.stream, self.options.consumer)
        return None if consumer.num_pending is None else int(consumer.num_pending)

    async def close(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            with contextlib.suppress(DeliveryError):
                await self._answer(self._pending, b"-NAK")  # the next reader gets them without delay
        await self._client.close()

    async def _consumer(self) -> Any:
        from nats.js import api
        from nats.js.errors import NotFoundError

        options = self.options
        with contextlib.suppress(NotFoundError):
            return await self._jetstream.consumer_info(options.stream, options.consumer)
        config = api.ConsumerConfig(
            durable_name=options.consumer,
            deliver_policy=api.DeliverPolicy.ALL if options.begin == "earliest" else api.DeliverPolicy.NEW,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=options.acknowledge_seconds,
            filter_subject=options.filter_subject or None,
        )
        return await self._jetstream.add_consumer(options.stream, config)

    async def _fetched(self, limit: int) -> list[Any]:
        from nats.errors import TimeoutError as NatsTimeoutError

        with self._client.as_delivery_errors():
            try:
                messages: list[Any] = await self._subscription.fetch(limit, timeout=_WAIT_SECONDS)
            except NatsTimeoutError:  # there were no messages
                messages = []
            if not self._nats.is_connected:
                raise ConnectionResetError
        return messages

    async def _answer(self, replies: list[str], answer: bytes) -> None:
        if not replies:
            return
        with self._client.as_delivery_errors():
            for reply in replies:
                await self._nats.publish(reply, answer)
            await self._nats.flush(timeout=self._client.ANSWER_SECONDS)

    def _record(self, message: Any) -> InputRecord:
        headers = {name.lower(): value for name, value in (message.headers or {}).items()}
        return InputRecord(
            message.data,
            content_type=headers.get(CONTENT_TYPE) or self.options.content_type,
            key=message.subject.encode() if self.options.order_by_subject else None,
            identity=f"{self.options.stream}/{message.metadata.sequence.stream}",
            source=message.subject,
            headers=headers_of((message.headers or {}).items()),
        )
