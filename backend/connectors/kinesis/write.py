import hashlib
from collections.abc import Sequence
from typing import Any

from backend.connectors.kinesis.stream import SEND_SECONDS, KinesisConnection, Stream, StreamOptions
from backend.connectors.parts.request_parts import parts_of, send_parts
from backend.domain.capabilities import Deliver, DeliverBatch, DeliveryError, Receipt, Sent
from backend.domain.message import Message

_REQUEST_RECORDS = 500
_REQUEST_BYTES = 5 * 1024 * 1024
"""The most that one request may hold, with the partition keys."""
_KEY_CHARACTERS = 256

Record = dict[str, Any]


class KinesisOptions(StreamOptions):
    """Records that are put into one stream."""


class _Putting:
    """What single deliveries and batches share."""

    connection: KinesisConnection
    options: KinesisOptions

    async def open(self) -> None:
        self._stream = Stream(self.connection, self.options)
        await self._stream.open()

    async def close(self) -> None:
        await self._stream.close()

    def target(self) -> str:
        endpoint = self.connection.endpoint
        return f"stream {self.options.stream} at {endpoint.host if endpoint else self.connection.region}"

    def sent(self, message: Message) -> Sent:
        return Sent(message.body, f"partition key {_record(message)['PartitionKey']}")


class KinesisDeliver(_Putting, Deliver[KinesisConnection, KinesisOptions]):
    """Puts each message by a request of its own. The message's key is the partition key, so that messages with the same
    key come into the same shard, in order; a key of more than 256 characters is replaced by a hash of it.

    At least once: a message whose acknowledgement was lost is put again when it is retried. A record holds the body
    alone, without content type and message ID."""

    options_model = KinesisOptions

    async def deliver(self, message: Message) -> Receipt:
        return _receipt(await self._stream.call("put_record", seconds=SEND_SECONDS, **_record(message)))


class KinesisDeliverBatch(_Putting, DeliverBatch[KinesisConnection, KinesisOptions]):
    """Puts up to 500 messages, or 5 MiB, by one request, with the partition keys of single messages.

    At least once, as with single messages. Messages that a shard has no capacity for are retried, and leave the others
    of their request alone."""

    options_model = KinesisOptions

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        records = [_record(message) for message in messages]
        return await send_parts(parts_of(records, _size, _REQUEST_RECORDS, _REQUEST_BYTES), self._put)

    async def _put(self, records: Sequence[Record]) -> list[Receipt | DeliveryError]:
        answer = await self._stream.call("put_records", seconds=SEND_SECONDS, Records=records)
        return [_result(entry) for entry in answer["Records"]]


def _record(message: Message) -> Record:
    key = message.key.decode(errors="backslashreplace")
    if len(key) > _KEY_CHARACTERS:
        key = hashlib.sha256(message.key).hexdigest()
    return {"Data": message.body, "PartitionKey": key}


def _size(record: Record) -> int:
    return len(record["Data"]) + len(record["PartitionKey"].encode())


def _result(entry: dict[str, Any]) -> Receipt | DeliveryError:
    code = entry.get("ErrorCode")
    if not code:
        return _receipt(entry)
    text = f"Kinesis: {entry.get('ErrorMessage', '').rstrip('.')} ({code})."
    return DeliveryError(f"kinesis_{code.lower()}", text, retryable=True)


def _receipt(entry: dict[str, Any]) -> Receipt:
    return Receipt(status=f"{entry['ShardId']}/{entry['SequenceNumber']}")
