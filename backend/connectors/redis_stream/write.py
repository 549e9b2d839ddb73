from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field
from redis.asyncio import Redis

from backend.connectors.redis_stream.client import as_delivery_errors, client_of
from backend.connectors.redis_stream.connection import RedisStreamConnection
from backend.domain import json
from backend.domain.capabilities import Deliver, DeliverBatch, DeliveryError, Options, Receipt, Sent
from backend.domain.message import CONTENT_TYPE, MESSAGE_ID, Message
from backend.domain.model import ADVANCED
from backend.domain.reasons import Reason


class RedisStreamOptions(Options):
    """Entries that are appended to one stream."""

    stream: str = Field(
        min_length=1, description="Key of the stream; it is made when it is missing.", examples=["orders"]
    )
    entry: Literal["body", "fields"] = Field(
        "body",
        description="What an entry holds: the message's body in one field, beside its id and content type, or a field "
        "for each field of the message, with objects, lists, numbers and null as JSON.",
    )
    field: str = Field("body", min_length=1, description="Field that holds the body.", json_schema_extra=ADVANCED)
    max_length: int | None = Field(
        None,
        ge=1,
        description="Entries to keep: the oldest are removed when there are clearly more (MAXLEN ~).",
        json_schema_extra=ADVANCED,
    )


class _Appending:
    """What single deliveries and batches share."""

    connection: RedisStreamConnection
    options: RedisStreamOptions
    _redis: Redis | None = None

    async def open(self) -> None:
        self._redis = client_of(self.connection)

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose(close_connection_pool=True)

    def target(self) -> str:
        return f"stream {self.options.stream} at {self.connection.host}:{self.connection.port}"

    def sent(self, message: Message) -> Sent:
        fields = self.fields(message)
        return Sent(json.dumps(fields) if self.options.entry == "fields" else message.body)

    def append(self, redis: Any, fields: dict[str, str | bytes]) -> Any:
        return redis.xadd(self.options.stream, fields, maxlen=self.options.max_length, approximate=True)

    def fields(self, message: Message) -> dict[str, str | bytes]:
        """Raises DeliveryError."""
        if self.options.entry == "body":
            return {
                self.options.field: message.body,
                MESSAGE_ID: message.id,
                CONTENT_TYPE: message.content_type,
            }
        try:
            document = json.loads(message.body)
        except json.InvalidJsonError as error:
            raise DeliveryError(Reason.NOT_JSON, f"The message is not JSON: {error}", retryable=False) from None
        if not isinstance(document, dict) or not document:
            raise DeliveryError(
                Reason.NOT_JSON,
                "The message is not a JSON object with fields, as the output asks for.",
                retryable=False,
            )
        return {name: json.text(value) for name, value in document.items()}


class RedisDeliver(_Appending, Deliver[RedisStreamConnection, RedisStreamOptions]):
    """Appends an entry for each message.

    At least once: an entry whose acknowledgement was lost is appended again when the message is retried."""

    options_model = RedisStreamOptions

    async def deliver(self, message: Message) -> Receipt:
        with as_delivery_errors():
            entry_id: bytes = await self.append(self._redis, self.fields(message))
        return Receipt(status=entry_id.decode())


class RedisDeliverBatch(_Appending, DeliverBatch[RedisStreamConnection, RedisStreamOptions]):
    """Appends the entries of a batch in one transaction, in order.

    At least once: a batch whose acknowledgement was lost is appended again."""

    options_model = RedisStreamOptions

    @property
    def atomic(self) -> bool:
        return True

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        assert self._redis is not None
        entries = [self._fields_or_error(message) for message in messages]
        async with self._redis.pipeline(transaction=True) as pipeline:
            for entry in entries:
                if not isinstance(entry, DeliveryError):
                    self.append(pipeline, entry)
            with as_delivery_errors():
                ids = iter(await pipeline.execute() if len(pipeline) else [])
        return [entry if isinstance(entry, DeliveryError) else Receipt(next(ids).decode()) for entry in entries]

    def _fields_or_error(self, message: Message) -> dict[str, str | bytes] | DeliveryError:
        try:
            return self.fields(message)
        except DeliveryError as error:
            return error
