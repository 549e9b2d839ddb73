"""One output of one pipeline version: bounded share, order per key, retries, breaker and rate limit."""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import DeliveryError, Destination, connectors
from backend.domain.masking import redacted
from backend.domain.message import Message, utc_now
from backend.domain.pipeline import RuntimeOutput
from backend.domain.records import Attempt
from backend.domain.registry import UnknownComponentError
from backend.resilience.gate import Gate, Held, Kind, OutputGate, Repeat, Send
from backend.resilience.retries import GivenUpError, with_retries
from backend.resilience.scripts import OutputKey
from backend.resilience.share import Share
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

_QUEUE_BYTES = 16 * 1024 * 1024
_SATURATED_SECONDS = 15.0

_HELD = {
    "breaker_open": "The circuit breaker of this output is open; the message is delivered once it has closed.",
    "rate_limited": "The output's rate limit is used up; the message is delivered as the limit allows.",
}


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has the message."""

    status: str
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The receiver had the message before. ``same_read`` tells that it was this very record, read again."""

    same_read: bool
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """The message is to become a dead letter; ``due`` and ``retryable`` as for ``dead_letter``."""

    reason: str
    error: str
    attempts: list[Attempt] = field(default_factory=list)
    due: float | None = None
    retryable: bool = False


Outcome = Delivered | Suppressed | Undeliverable


def build_destination(output: RuntimeOutput) -> Destination[Any, Any]:
    """The destination of an output. Raises DeliveryError when its configuration no longer fits, or could
    not be had."""
    if output.connector.error:
        raise DeliveryError("configuration", output.connector.error, retryable=True)
    try:
        connector = connectors.get(output.connector.type)
        if connector.destination is None:
            raise DeliveryError(
                "configuration", f"The connector type {connector.type} cannot deliver.", retryable=False
            )
        return connector.destination(
            connector.connection_model.model_validate(output.connector.connection),
            connector.destination.options_model.model_validate(output.config.options),
        )
    except (UnknownComponentError, ValidationError) as error:
        raise DeliveryError(
            "configuration", f"The output's configuration is refused: {error}", retryable=False
        ) from None


class Output:
    """Delivers messages to one destination.

    Messages with the same key go one after the other; at most ``concurrency`` at the same time,
    and no more than ``queue`` of them and 16 MiB are under way or wait for their turn. Further ones
    wait in line, until ``dismiss_line`` says that others need their place in the window.
    """

    def __init__(
        self, pipeline_id: str, runtime: RuntimeOutput, *, recorder: Recorder, gate: Gate, breaker: BreakerPolicy
    ) -> None:
        self.runtime = runtime
        self._pipeline_id = pipeline_id
        self._recorder = recorder
        self._gate: OutputGate = gate.output(
            OutputKey(pipeline_id, runtime.name), runtime.config.breaker or breaker, runtime.config.rate_limit
        )
        self._slots = asyncio.Semaphore(runtime.config.concurrency)
        self._tails: dict[bytes, asyncio.Future[None]] = {}
        self._opened: asyncio.Task[Destination[Any, Any]] | None = None
        self._secrets: list[str] = []
        self._share = Share(runtime.config.queue, _QUEUE_BYTES)
        self.in_flight = 0
        self.last_used = 0.0
        self._ended = 0
        self._pace_since = time.monotonic()

    async def send(self, message: Message, position: str, kind: Kind = "first") -> Outcome:
        """Delivers the message, read at ``position``, or says why it could not be. Never raises."""
        self.in_flight += 1
        self.last_used = time.monotonic()
        if await self._share.enter(len(message.body)):
            try:
                outcome = await self._send_in_turn(message, position, kind)
            finally:
                self._share.leave(len(message.body))
        else:
            outcome = Undeliverable(
                "output_saturated",
                f"The output's {self._share.messages} places stayed taken while others waited; the message is "
                "tried again.",
                due=time.time() + _SATURATED_SECONDS,
            )
        self.in_flight -= 1
        self._ended += 1
        self._note(message, outcome)
        return outcome

    def is_slow(self) -> bool:
        """Whether what waits in line needs more than a second, at the pace since this was last asked."""
        now = time.monotonic()
        pace = self._ended / max(now - self._pace_since, 0.001)
        self._ended, self._pace_since = 0, now
        return self._share.waiting > pace

    def dismiss_line(self) -> None:
        """What waits for a place is set aside as dead letters, to be delivered later."""
        self._share.dismiss_line()

    async def close(self) -> None:
        if self._opened is None:
            return
        with contextlib.suppress(DeliveryError):
            await (await self._opened).close()

    async def _send_in_turn(self, message: Message, position: str, kind: Kind) -> Outcome:
        before = self._tails.get(message.key)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tails[message.key] = done
        try:
            if before is not None:
                await before
            return await self._deliver_with_retries(message, position, kind)
        finally:
            done.set_result(None)
            if self._tails.get(message.key) is done:
                del self._tails[message.key]

    async def _deliver_with_retries(self, message: Message, position: str, kind: Kind) -> Outcome:
        attempts: list[Attempt] = []

        async def attempt(number: int) -> Outcome:
            asked: Kind = kind if number == 1 else "retry"
            # Asking takes milliseconds, for which no delivery should keep its place. A token of a rate limit is
            # for now, though: it is taken by who has a place already.
            epoch = self._gate.epoch
            admission = await self._gate.admit(asked, message.id) if self._gate.limit_policy is None else None
            if isinstance(admission, Repeat | Held):
                return self._without_try(admission, position, attempts)
            async with self._slots:
                if admission is None or self._is_outdated(admission, epoch):
                    admission = await self._gate.admit(asked, message.id)
                if isinstance(admission, Repeat | Held):
                    return self._without_try(admission, position, attempts)
                return await self._try(message, position, admission, number, attempts)

        try:
            return await with_retries(
                self.runtime.config.retry,
                attempt,
                opened=self._gate.opened,
                on_retry=lambda: self._recorder.count(self._pipeline_id, events.retried(self.runtime.name)),
            )
        except GivenUpError as given_up:
            return Undeliverable(
                given_up.reason, str(given_up), attempts, due=given_up.due, retryable=given_up.retryable
            )

    def _is_outdated(self, admission: Send, epoch: int) -> bool:
        """Whether the breaker may have opened since it was asked for."""
        return not admission.probe and self._gate.epoch != epoch

    def _without_try(self, admission: Repeat | Held, position: str, attempts: list[Attempt]) -> Outcome:
        if isinstance(admission, Repeat):
            return Suppressed(admission.position == position, attempts)
        return Undeliverable(admission.reason, _HELD[admission.reason], attempts, due=admission.due)

    async def _try(
        self, message: Message, position: str, admission: Send, number: int, attempts: list[Attempt]
    ) -> Delivered:
        """Raises DeliveryError."""
        if admission.wait > 0:
            await asyncio.sleep(admission.wait)
        config = self.runtime.config
        began = time.perf_counter()
        try:
            async with asyncio.timeout(config.timeout_seconds):
                destination = await self._destination()
                receipt = await destination.deliver(message)
        except TimeoutError:
            error = DeliveryError("timeout", f"No answer within {config.timeout_seconds:g} seconds.", retryable=True)
        except DeliveryError as refused:
            error = refused.without(self._secrets)
        else:
            self._gate.delivered(message.id, position, probe=admission.probe)
            took = time.perf_counter() - began
            self._recorder.latency(self._pipeline_id, self.runtime.name, took)
            if random.random() < config.logged_successes:
                attempts.append(
                    Attempt(
                        utc_now(),
                        number,
                        round(took * 1000, 3),
                        receipt.status,
                        response=redacted(receipt.body, self._secrets),
                    )
                )
            return Delivered(receipt.status, attempts)
        self._gate.failed(f"{error}"[:300], probe=admission.probe)
        took = time.perf_counter() - began
        attempts.append(
            Attempt(
                utc_now(), number, round(took * 1000, 3), error.status, error.reason, str(error)[:2000], error.response
            )
        )
        raise error

    async def _destination(self) -> Destination[Any, Any]:
        # Opened once, by the first message; a failed opening is tried anew by the next try.
        if self._opened is None or (self._opened.done() and self._opened.exception() is not None):
            self._opened = asyncio.create_task(self._open())
        if self._opened.done():
            return self._opened.result()
        return await asyncio.shield(self._opened)

    async def _open(self) -> Destination[Any, Any]:
        destination = build_destination(self.runtime)
        self._secrets = destination.secrets()
        await destination.open()
        return destination

    def _note(self, message: Message, outcome: Outcome) -> None:
        name = self.runtime.name
        match outcome:
            case Delivered():
                self._recorder.count(self._pipeline_id, events.delivered(name))
            case Suppressed():
                self._recorder.count(self._pipeline_id, events.suppressed(name))
            case Undeliverable():
                self._recorder.count(self._pipeline_id, events.dead(name))
                self._recorder.error(
                    self._pipeline_id,
                    stage=f"output {name}",
                    reason=outcome.reason,
                    message=outcome.error,
                    message_id=message.id,
                )
