"""A queue of Amazon SQS."""

import asyncio
from typing import Any

from pydantic import ConfigDict, Field

from backend.connectors.parts.aws import AwsClient, AwsConnection
from backend.domain.capabilities import BatchRefusedError, DeliveryError, Options
from backend.domain.model import ADVANCED
from backend.domain.reasons import Reason

CALL_SECONDS = 10.0
"""A call that takes longer has failed."""
SEND_SECONDS = 120.0
"""The same for a call that sends messages: more than an output may be given."""
MOST_ENTRIES = 10
"""Of one request."""
_GONE = {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"}
_REFUSED = {
    "AWS.SimpleQueueService.BatchRequestTooLong",
    "BatchRequestTooLong",
    "InvalidMessageContents",
    "InvalidParameterValue",
    "MissingParameter",
}


class SqsConnection(AwsConnection):
    """Queues of an account and a region of Amazon SQS, or of a compatible server."""

    model_config = ConfigDict(title="SQS connection")


class QueueOptions(Options):
    """One queue."""

    queue: str = Field(
        pattern=r"^[A-Za-z0-9_-]{1,75}(\.fifo)?$",
        description="Name of the queue; it must exist.",
        examples=["orders.fifo"],
    )
    account: str = Field(
        "",
        pattern=r"^(\d{12})?$",
        description="ID of the account that owns the queue, if it is not that of the access key.",
        json_schema_extra=ADVANCED,
    )

    @property
    def is_fifo(self) -> bool:
        """Whether the queue keeps the order within message groups."""
        return self.queue.endswith(".fifo")


class Queue:
    """A client of one queue. Used on one event loop. Its methods raise DeliveryError."""

    def __init__(self, connection: SqsConnection, options: QueueOptions) -> None:
        self._options = options
        self._client = AwsClient(connection, "sqs", "SQS", seconds=SEND_SECONDS)
        self._address = ""
        self._asking = asyncio.Lock()

    async def open(self) -> None:
        self._sqs = await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def call(self, operation: str, *, seconds: float = CALL_SECONDS, **arguments: Any) -> dict[str, Any]:
        """The answer to that operation of the library's client."""
        with self._client.as_delivery_errors(self._meaning):
            async with asyncio.timeout(seconds):
                address = await self._known_address()
                answer: dict[str, Any] = await getattr(self._sqs, operation)(QueueUrl=address, **arguments)
        return answer

    async def find(self) -> None:
        """Fails when there is no such queue."""
        with self._client.as_delivery_errors(self._meaning):
            async with asyncio.timeout(CALL_SECONDS):
                await self._known_address()

    async def _known_address(self) -> str:
        """By which other calls name the queue."""
        async with self._asking:
            if not self._address:
                options = self._options
                owner = {"QueueOwnerAWSAccountId": options.account} if options.account else {}
                self._address = (await self._sqs.get_queue_url(QueueName=options.queue, **owner))["QueueUrl"]
        return self._address

    def _meaning(self, code: str, text: str) -> DeliveryError | None:
        if code in _GONE:
            text = f"There is no queue {self._options.queue}: check its name, the region and the account."
            return DeliveryError(Reason.CONFIGURATION, text, retryable=True, option="queue")
        if code in _REFUSED:
            reason = f"sqs_{code.rpartition('.')[2].lower()}"
            return BatchRefusedError(reason, f"SQS: {text} ({code}).", retryable=False, about_message=True)
        return None
