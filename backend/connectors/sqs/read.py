import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from pydantic import Field

from backend.connectors.parts.batch_limit import FIRST_RECORDS, next_limit
from backend.connectors.parts.holding import hold_forever
from backend.connectors.parts.source_headers import headers_of, present
from backend.connectors.sqs.queue import CALL_SECONDS, MOST_ENTRIES, Queue, QueueOptions, SqsConnection
from backend.domain.capabilities import Batch, InputRecord, ReadStream
from backend.domain.message import CONTENT_TYPE
from backend.domain.model import ADVANCED

log = logging.getLogger(__name__)

_WAIT_SECONDS = 20
"""How long a request waits for messages; the longest that SQS permits."""
_HIDDEN_SECONDS = 30
"""SQS delivers a message again that was not deleted for this long."""
_EXTEND_SECONDS = 10.0
"""How often that time is begun anew."""
_MOST_REQUESTS = 10
"""At the same time."""
_CLOSE_SECONDS = 5.0

_GROUP, _DEDUPLICATION, _SENT = "MessageGroupId", "MessageDeduplicationId", "SentTimestamp"


class SqsReadOptions(QueueOptions):
    """Messages of one queue."""

    content_type: str = Field(
        "application/json",
        min_length=1,
        description="Content type of messages that have no attribute content-type.",
        json_schema_extra=ADVANCED,
    )


class SqsReadStream(ReadStream[SqsConnection, SqsReadOptions]):
    """Receives the messages of a queue, and deletes them.

    At least once. Messages are deleted once Headrace has stored them, and hidden from other readers until then, for up
    to twelve hours. After a crash they are delivered again within 30 seconds, as messages with the same IDs; each
    delivery counts for a redrive policy, which moves a message to a dead-letter queue. The message group of a FIFO
    queue is the ordering key. Message attributes travel with the message, and so do `message-group-id`,
    `message-deduplication-id` and `sent-timestamp` (in milliseconds): outputs write them, and templates have them as
    `{{$message.headers.NAME}}`, the queue as `{{$message.source}}`. A message with more than 64 KiB of them becomes a
    dead letter."""

    options_model = SqsReadOptions
    _extending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._held: dict[str, None] = {}
        """Receipt handles, in order."""
        self._queue = Queue(self.connection, self.options)
        await self._queue.open()
        await self._queue.find()
        self._extending = asyncio.create_task(
            hold_forever(_EXTEND_SECONDS, lambda: self._hide(_HIDDEN_SECONDS), self.options.queue)
        )

    async def stream(self) -> AsyncIterator[Batch]:
        limit = FIRST_RECORDS
        while True:
            messages = await self._received(limit)
            if messages:
                handles = [message["ReceiptHandle"] for message in messages]
                self._held |= dict.fromkeys(handles)
                limit = next_limit(limit, [len(message["Body"]) for message in messages])
                yield Batch([self._record(message) for message in messages], handles)

    async def acknowledge(self, position: Any) -> None:
        for entries in _tens(position):
            answer = await self._queue.call("delete_message_batch", Entries=entries)
            for failed in answer.get("Failed", ()):  # it is delivered again, as a message with the same id
                log.warning("A message of %s could not be deleted: %s", self.options.queue, failed["Code"])
        for handle in position:
            self._held.pop(handle, None)

    async def lag(self) -> int | None:
        """Those that are neither hidden nor delayed."""
        name = "ApproximateNumberOfMessages"
        answer = await self._queue.call("get_queue_attributes", AttributeNames=[name])
        return int(answer["Attributes"][name])

    async def close(self) -> None:
        if self._extending is not None:
            self._extending.cancel()
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._hide(0)  # the next reader gets them at once
        await self._queue.close()

    async def _received(self, limit: int) -> list[Any]:
        """Up to about ``limit``; none, if none comes for a while. A queue that has many is asked several times at once:
        of a message group, it gives nothing to one request while another has messages of it."""
        messages = await self._receive(min(limit, MOST_ENTRIES), _WAIT_SECONDS)
        if len(messages) == MOST_ENTRIES:
            count = min(_MOST_REQUESTS, limit // MOST_ENTRIES) - 1
            for further in await asyncio.gather(*(self._receive(MOST_ENTRIES, 0) for _ in range(count))):
                messages += further
        return messages

    async def _receive(self, limit: int, wait_seconds: int) -> list[Any]:
        answer = await self._queue.call(
            "receive_message",
            seconds=wait_seconds + CALL_SECONDS,
            MaxNumberOfMessages=limit,
            WaitTimeSeconds=wait_seconds,
            VisibilityTimeout=_HIDDEN_SECONDS,
            MessageSystemAttributeNames=[_GROUP, _DEDUPLICATION, _SENT],
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", ()))

    async def _hide(self, seconds: int) -> None:
        for entries in _tens(list(self._held)):
            hidden = [{**entry, "VisibilityTimeout": seconds} for entry in entries]
            await self._queue.call("change_message_visibility_batch", Entries=hidden)

    def _record(self, message: Any) -> InputRecord:
        attributes, system = message.get("MessageAttributes", {}), message.get("Attributes", {})
        group = system.get(_GROUP, "") if self.options.is_fifo else ""
        properties = present(
            message_group_id=system.get(_GROUP),
            message_deduplication_id=system.get(_DEDUPLICATION),
            sent_timestamp=system.get(_SENT),
        )
        values = [(name, one.get("StringValue", one.get("BinaryValue"))) for name, one in attributes.items()]
        return InputRecord(
            message["Body"].encode(),
            content_type=attributes.get(CONTENT_TYPE, {}).get("StringValue") or self.options.content_type,
            key=group.encode() or None,
            identity=f"{self.options.queue}/{message['MessageId']}",
            source=self.options.queue,
            headers=headers_of([*properties, *values]),
        )


def _tens(handles: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Entries of requests."""
    for first in range(0, len(handles), MOST_ENTRIES):
        part = handles[first : first + MOST_ENTRIES]
        yield [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(part)]
