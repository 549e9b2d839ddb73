"""A data stream of Amazon Kinesis."""

import asyncio
from typing import Any

from pydantic import ConfigDict, Field

from backend.connectors.parts.aws import AwsClient, AwsConnection
from backend.domain.capabilities import BatchRefusedError, DeliveryError, Options
from backend.domain.reasons import Reason

CALL_SECONDS = 10.0
"""A call that takes longer has failed."""
SEND_SECONDS = 120.0
"""The same for a call that sends or reads records: more than an output may be given."""
_REFUSED = {"InvalidArgumentException", "ValidationException"}


class KinesisConnection(AwsConnection):
    """Data streams of an account and a region of Amazon Kinesis, or of a compatible server."""

    model_config = ConfigDict(title="Kinesis connection")


class StreamOptions(Options):
    """One stream."""

    stream: str = Field(
        max_length=2048,
        pattern=r"^([a-zA-Z0-9_.-]{1,128}|arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d{12}:stream/[a-zA-Z0-9_.-]{1,128})$",
        description="Name of the stream, or its ARN if another account owns it; it must exist.",
        examples=["orders"],
    )


class Stream:
    """A client of one stream. Used on one event loop. Its methods raise DeliveryError."""

    def __init__(self, connection: KinesisConnection, options: StreamOptions) -> None:
        is_arn = options.stream.startswith("arn:")
        self._arn = {"StreamARN": options.stream} if is_arn else {}
        self._name = {} if is_arn else {"StreamName": options.stream}
        self._client = AwsClient(connection, "kinesis", "Kinesis", seconds=SEND_SECONDS)

    async def open(self) -> None:
        self._kinesis = await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def call(self, operation: str, *, seconds: float = CALL_SECONDS, **arguments: Any) -> dict[str, Any]:
        """The answer to that operation of the library's client."""
        return await self.ask(operation, seconds=seconds, **self._name, **arguments)

    async def ask(self, operation: str, *, seconds: float = CALL_SECONDS, **arguments: Any) -> dict[str, Any]:
        """The same for an operation that does not take the stream's name."""
        with self._client.as_delivery_errors(self._meaning):
            async with asyncio.timeout(seconds):
                answer: dict[str, Any] = await getattr(self._kinesis, operation)(**self._arn, **arguments)
        return answer

    def _meaning(self, code: str, text: str) -> DeliveryError | None:
        if code == "ResourceNotFoundException":
            text = f"Kinesis: {text}. Check the name of the stream, and the region."
            return DeliveryError(Reason.CONFIGURATION, text, retryable=True, option="stream")
        if code in _REFUSED:
            text = f"Kinesis: {text} ({code})."
            return BatchRefusedError(f"kinesis_{code.lower()}", text, retryable=False, about_message=True)
        return None
