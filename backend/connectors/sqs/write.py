import hashlib
import re
from collections.abc import Sequence
from typing import Any

from backend.connectors.parts.request_parts import parts_of, send_parts
from backend.connectors.parts.source_headers import KeepHeaders, is_plain, passed_on, text_of
from backend.connectors.sqs.queue import MOST_ENTRIES, SEND_SECONDS, Queue, QueueOptions, SqsConnection
from backend.domain.capabilities import Deliver, DeliverBatch, DeliveryError, Receipt, Sent
from backend.domain.message import CONTENT_TYPE, MESSAGE_ID, Message, SourceHeader
from backend.domain.reasons import Reason

_REQUEST_BYTES = 1024 * 1024
"""The most that one request may hold, and so a message, with its attributes."""
_GROUP = re.compile(r"[!-~]{1,128}")
_ATTRIBUTES = 10
"""The most that a message may have."""
_ATTRIBUTE = re.compile(r"(?!aws\.|amazon\.)[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.IGNORECASE)
_ATTRIBUTE_CHARACTERS = 256

Entry = dict[str, Any]


class SqsOptions(QueueOptions):
    """Messages that are sent to one queue."""

    keep_headers: KeepHeaders = True


class _Sending:
    """What single deliveries and batches share."""

    connection: SqsConnection
    options: SqsOptions

    async def open(self) -> None:
        self._queue = Queue(self.connection, self.options)
        await self._queue.open()

    async def close(self) -> None:
        await self._queue.close()

    def target(self) -> str:
        endpoint = self.connection.endpoint
        return f"queue {self.options.queue} at {endpoint.host if endpoint else self.connection.region}"

    def sent(self, message: Message) -> Sent:
        entry = self._entry(message)
        return Sent(message.body, f"message group {entry['MessageGroupId']}" if self.options.is_fifo else "")

    def _entry(self, message: Message) -> Entry:
        """The arguments of one message. Raises DeliveryError."""
        try:
            body = message.body.decode()
        except UnicodeDecodeError:
            text = "The message is not text in UTF-8, which is all that SQS takes."
            raise DeliveryError(Reason.UNFIT_VALUE, text, retryable=False, about_message=True) from None
        if not body:
            text = "The message is empty, which SQS does not take."
            raise DeliveryError(Reason.UNFIT_VALUE, text, retryable=False, about_message=True)
        entry: Entry = {
            "MessageBody": body,
            "MessageAttributes": self._attributes(message),
        }
        if _size(entry) > _REQUEST_BYTES:
            text = "The message is larger than SQS takes (1 MiB with its attributes)."
            raise DeliveryError(Reason.TOO_LARGE, text, retryable=False, about_message=True)
        if self.options.is_fifo:
            entry |= {"MessageGroupId": _group(message.key), "MessageDeduplicationId": message.id}
        return entry

    def _attributes(self, message: Message) -> dict[str, dict[str, Any]]:
        own = {MESSAGE_ID: message.id, CONTENT_TYPE: message.content_type}
        attributes: dict[str, dict[str, Any]] = {
            name: {"DataType": "String", "StringValue": value} for name, value in own.items()
        }
        kept = _fit(passed_on(message, self.options.keep_headers))
        return attributes | dict(list(kept.items())[: _ATTRIBUTES - len(attributes)])


def _fit(headers: Sequence[SourceHeader]) -> dict[str, dict[str, Any]]:
    """The last of each name, of those that can be attributes."""
    return {
        name: _attribute(value)
        for name, value in dict(headers).items()
        if value and len(name) <= _ATTRIBUTE_CHARACTERS and _ATTRIBUTE.fullmatch(name)
    }


def _attribute(value: bytes) -> dict[str, Any]:
    text = text_of(value)
    if text is None or not is_plain(text):
        return {"DataType": "Binary", "BinaryValue": value}
    return {"DataType": "String", "StringValue": text}


class SqsDeliver(_Sending, Deliver[SqsConnection, SqsOptions]):
    """Sends each message by a request of its own, with the attributes `message-id` and `content-type`.

    At least once: a message whose acknowledgement was lost is sent again when it is retried. A FIFO queue drops
    repeats within five minutes, and keeps the order of messages with the same key, which is their message group (a hash
    of it, if it has more than 128 characters or others than visible ASCII). A message of up to 1 MiB fits, in UTF-8,
    with its attributes. Of the headers of a record that was read, eight become attributes, too, of each name the last,
    those that are no plain text as binary values. Left out are those that SQS cannot have: empty ones, and names with
    other characters than letters, digits, dots, dashes and underscores."""

    options_model = SqsOptions

    async def deliver(self, message: Message) -> Receipt:
        answer = await self._queue.call("send_message", seconds=SEND_SECONDS, **self._entry(message))
        return Receipt(status=answer["MessageId"])


class SqsDeliverBatch(_Sending, DeliverBatch[SqsConnection, SqsOptions]):
    """Sends ten messages by one request, as many as 1 MiB holds.

    At least once, as with single messages. Messages that SQS refuses leave the others of their request alone."""

    options_model = SqsOptions

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        entries = [self._entry_or_error(message) for message in messages]
        fit = [entry for entry in entries if not isinstance(entry, DeliveryError)]
        sent = iter(await send_parts(parts_of(fit, _size, MOST_ENTRIES, _REQUEST_BYTES), self._send))
        return [entry if isinstance(entry, DeliveryError) else next(sent) for entry in entries]

    def _entry_or_error(self, message: Message) -> Entry | DeliveryError:
        try:
            return self._entry(message)
        except DeliveryError as error:
            return error

    async def _send(self, entries: Sequence[Entry]) -> list[Receipt | DeliveryError]:
        named = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
        answer = await self._queue.call("send_message_batch", seconds=SEND_SECONDS, Entries=named)
        results: dict[str, Receipt | DeliveryError] = {
            entry["Id"]: Receipt(status=entry["MessageId"]) for entry in answer.get("Successful", ())
        }
        results |= {entry["Id"]: _failure(entry) for entry in answer.get("Failed", ())}
        return [results[entry["Id"]] for entry in named]


def _failure(entry: dict[str, Any]) -> DeliveryError:
    """Of one entry of a request."""
    code, is_its_fault = entry["Code"], entry["SenderFault"]
    text = f"SQS: {entry.get('Message', '').rstrip('.')} ({code})."
    reason = f"sqs_{code.rpartition('.')[2].lower()}"
    return DeliveryError(reason, text, retryable=not is_its_fault, about_message=is_its_fault)


def _size(entry: Entry) -> int:
    """As SQS counts, in bytes: names, types and values of attributes, too."""
    attributes = entry["MessageAttributes"].items()
    sizes = [
        len(name) + len(value["DataType"]) + len(value.get("BinaryValue") or value["StringValue"].encode())
        for name, value in attributes
    ]
    return len(entry["MessageBody"].encode()) + sum(sizes)


def _group(key: bytes) -> str:
    text = key.decode(errors="replace")
    return text if _GROUP.fullmatch(text) else hashlib.sha256(key).hexdigest()
