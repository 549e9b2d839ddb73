"""One output of one pipeline version: bounded concurrency, order per key, retries."""

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from backend.domain.connector import DeliveryError, Destination, connectors
from backend.domain.message import Message
from backend.domain.pipeline import RetryPolicy, RuntimeOutput
from backend.domain.registry import UnknownComponentError
from backend.telemetry import events
from backend.telemetry.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has the message."""

    status: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """The message is to become a dead letter."""

    reason: str
    error: str
    attempts: int


Outcome = Delivered | Undeliverable


def build_destination(output: RuntimeOutput) -> Destination[Any, Any]:
    """The destination of an output. Raises DeliveryError when its configuration no longer fits."""
    try:
        connector = connectors.get(output.connector_type)
        if connector.destination is None:
            raise DeliveryError(
                "configuration", f"The connector type {output.connector_type} cannot deliver.", retryable=False
            )
        return connector.destination(
            connector.connection_model.model_validate(output.connection),
            connector.destination.options_model.model_validate(output.config.options),
        )
    except (UnknownComponentError, ValidationError) as error:
        raise DeliveryError(
            "configuration", f"The output's configuration is refused: {error}", retryable=False
        ) from None


class Output:
    """Delivers messages to one destination.

    Messages with the same key go one after the other; at most ``concurrency`` at the same time.
    """

    def __init__(self, pipeline_id: str, runtime: RuntimeOutput, recorder: Recorder) -> None:
        self.runtime = runtime
        self._pipeline_id = pipeline_id
        self._recorder = recorder
        self._slots = asyncio.Semaphore(runtime.config.concurrency)
        self._tails: dict[bytes, asyncio.Future[None]] = {}
        self._opened: asyncio.Task[Destination[Any, Any]] | None = None
        self.in_flight = 0

    async def send(self, message: Message) -> Outcome:
        """Delivers the message or says why it could not be. Never raises."""
        self.in_flight += 1
        before = self._tails.get(message.key)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tails[message.key] = done
        try:
            if before is not None:
                await before
            async with self._slots:
                outcome = await self._deliver_with_retries(message)
        finally:
            self.in_flight -= 1
            done.set_result(None)
            if self._tails.get(message.key) is done:
                del self._tails[message.key]
        self._note(message, outcome)
        return outcome

    async def close(self) -> None:
        if self._opened is None:
            return
        with contextlib.suppress(DeliveryError):
            await (await self._opened).close()

    async def _deliver_with_retries(self, message: Message) -> Outcome:
        policy = self.runtime.config.retry
        for attempt in range(1, policy.attempts + 1):
            try:
                async with asyncio.timeout(self.runtime.config.timeout_seconds):
                    destination = await self._destination()
                    receipt = await destination.deliver(message)
                return Delivered(receipt.status, attempt)
            except TimeoutError:
                limit = self.runtime.config.timeout_seconds
                error = DeliveryError("timeout", f"No answer within {limit:g} seconds.", retryable=True)
            except DeliveryError as refused:
                error = refused
            if not error.retryable or attempt == policy.attempts:
                break
            self._recorder.count(self._pipeline_id, events.retried(self.runtime.name))
            await asyncio.sleep(_wait(policy, attempt, error.retry_after))
        return Undeliverable(error.reason, str(error), attempt)

    async def _destination(self) -> Destination[Any, Any]:
        # Opened once, by the first message; a failed opening is tried anew by the next try.
        if self._opened is None or (self._opened.done() and self._opened.exception() is not None):
            self._opened = asyncio.create_task(self._open())
        return await asyncio.shield(self._opened)

    async def _open(self) -> Destination[Any, Any]:
        destination = build_destination(self.runtime)
        await destination.open()
        return destination

    def _note(self, message: Message, outcome: Outcome) -> None:
        name = self.runtime.name
        if isinstance(outcome, Delivered):
            self._recorder.count(self._pipeline_id, events.delivered(name))
            return
        self._recorder.count(self._pipeline_id, events.dead(name))
        self._recorder.error(
            self._pipeline_id,
            stage=f"output {name}",
            reason=outcome.reason,
            message=outcome.error,
            message_id=message.id,
        )


def _wait(policy: RetryPolicy, attempt: int, retry_after: float | None) -> float:
    """Seconds before the next try: exponential with jitter, or the receiver's wish within bounds."""
    planned = min(policy.initial_seconds * policy.factor ** (attempt - 1), policy.max_seconds)
    jittered = planned * random.uniform(0.5, 1.0)
    if retry_after is None:
        return jittered
    return min(max(retry_after, jittered), policy.max_seconds)
