"""Sends the batches of one client: admission for each message, one call for all, retries of those that failed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from backend.delivery import attempts
from backend.delivery.batching import Pending, Settle
from backend.delivery.client import DeliveryClient
from backend.delivery.delivery import Delivery
from backend.delivery.outcomes import Delivered, Outcome, Undeliverable
from backend.domain.capabilities import BatchRefusedError, DeliveryError, Receipt, internal_error
from backend.resilience.bulkhead import Bulkhead
from backend.resilience.gate import Held, OutputGate, Repeat, Send
from backend.resilience.retries import RetriesExhaustedError, with_retries
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

log = logging.getLogger(__name__)

_NO_BYTES = 0


@dataclass(slots=True)
class _Call:
    """A batch as its breaker counts it: one call to the receiver is one error, however often it is tried."""

    name: str
    has_failed: bool = False


class BatchSender:
    """``gate`` and ``slots`` are the output's, which all of its clients share; ``obstacles`` returns what comes of
    each message that may not be sent although it was admitted. Nothing is awaited for each message by itself, since a
    task for each costs more than the rest of its way through a batch."""

    def __init__(
        self,
        client: DeliveryClient,
        *,
        gate: OutputGate,
        slots: Bulkhead,
        recorder: Recorder,
        obstacles: Callable[[Sequence[Delivery]], Awaitable[Sequence[Outcome | None]]],
    ) -> None:
        self._client = client
        self._gate = gate
        self._slots = slots
        self._recorder = recorder
        self._obstacles = obstacles

    async def send(self, batch: Sequence[Pending], settle: Settle) -> None:
        """Settles every message. The caller has taken a slot, which the first attempt gives back."""
        remaining = list(batch)
        call = _Call(batch[0].message.id)

        async def attempt(number: int) -> None:
            """Settles what it can. Raises one of the errors that are worth another attempt: that after which the
            receiver wants to be left alone for longest, or the first."""
            nonlocal remaining
            if number > 1:
                await self._slots.enter(_NO_BYTES)
            try:
                failed = await self._attempt(remaining, number, settle, call)
            finally:
                self._slots.leave(_NO_BYTES)
            remaining = [pending for pending, _ in failed]
            if failed:
                raise max((error for _, error in failed), key=lambda error: error.retry_after or 0.0)

        key = self._gate.key
        try:
            await with_retries(
                self._client.runtime.config.retry,
                attempt,
                opened=self._gate.opened,
                on_retry=lambda: self._recorder.count(key.pipeline_id, events.retried(key.output), len(remaining)),
            )
        except RetriesExhaustedError as exhausted:
            for pending in remaining:
                last = pending.attempts[-1]
                outcome = Undeliverable(
                    last.reason,
                    last.error,
                    pending.attempts,
                    due=exhausted.due,
                    retryable=exhausted.retryable,
                )
                settle(pending, outcome)
        except Exception as error:  # a fault of ours must not leave messages without an outcome
            log.exception("A batch could not be delivered.")
            failure = internal_error(error)
            for pending in remaining:
                if not pending.outcome.done():
                    settle(pending, Undeliverable(failure.reason, str(failure), pending.attempts, retryable=True))

    async def _attempt(
        self, batch: Sequence[Pending], number: int, settle: Settle, call: "_Call"
    ) -> list[tuple[Pending, DeliveryError]]:
        """Sends what is admitted; those that failed and are worth another attempt, each with its error."""
        sent, probe = await self._admitted(batch, number, settle)
        if not sent:
            return []
        began = time.perf_counter()
        results = await self._deliver(sent)
        seconds = time.perf_counter() - began
        errors = [result for result in results if isinstance(result, DeliveryError) and not result.about_message]
        if len(errors) == len(sent):
            self._gate.failed(str(errors[0])[:300], call.name, probe=probe, again=call.has_failed)
            call.has_failed = True
        else:
            self._gate.answered(call.name, probe=probe, again=call.has_failed)
        if asked := [error.retry_after for error in errors if error.retry_after is not None]:
            self._gate.hold(max(asked))
        if delivered := sum(not isinstance(result, DeliveryError) for result in results):
            self._recorder.latency(self._gate.key.pipeline_id, self._gate.key.output, seconds, delivered)
        worth_retrying: list[tuple[Pending, DeliveryError]] = []
        for pending, result in zip(sent, results, strict=True):
            if isinstance(result, DeliveryError):
                pending.attempts.append(attempts.failed(result, number, seconds))
                if result.retryable:
                    worth_retrying.append((pending, result))
                else:
                    settle(
                        pending,
                        Undeliverable(result.reason, str(result), pending.attempts, rejected=result.about_message),
                    )
                continue
            pending.delivery.attempts += attempts.succeeded(self._client, number, seconds, result)
            self._gate.delivered(pending.message.id, pending.delivery.position, probe=False)
            settle(pending, Delivered(result.status, pending.attempts))
        return worth_retrying

    async def _admitted(self, batch: Sequence[Pending], number: int, settle: Settle) -> tuple[Sequence[Pending], bool]:
        """Those that may be sent now, and whether one of them is the breaker's probe; the others are settled."""
        while batch:
            holds = self._gate.holds
            admitted = await self._asked(batch, number, settle)
            batch = [pending for pending, _ in admitted]
            wait = max((admission.wait for _, admission in admitted), default=0.0)
            if wait > 0:
                await asyncio.sleep(wait)
            if holds == self._gate.holds:  # otherwise the receiver has asked to be left alone in the meantime
                return batch, any(admission.probe for _, admission in admitted)
        return [], False

    async def _asked(self, batch: Sequence[Pending], number: int, settle: Settle) -> list[tuple[Pending, Send]]:
        """Those that are admitted; the others are settled."""
        asked = [self._gate.admit(p.delivery.kind if number == 1 else "retry", p.message.id) for p in batch]
        admissions = [await admission for admission in asked]  # which arrive together
        admitted: list[tuple[Pending, Send]] = []
        for pending, admission in zip(batch, admissions, strict=True):
            if isinstance(admission, Repeat | Held):
                settle(pending, attempts.not_attempted(admission, pending.delivery))
            else:
                admitted.append((pending, admission))
        obstacles = await self._obstacles([pending.delivery for pending, _ in admitted])
        for (pending, _), obstacle in zip(admitted, obstacles, strict=True):
            if obstacle is not None:
                settle(pending, obstacle)
        return [each for each, obstacle in zip(admitted, obstacles, strict=True) if obstacle is None]

    async def _deliver(self, batch: Sequence[Pending]) -> Sequence[Receipt | DeliveryError]:
        """One result for each. A batch that is refused for what is in it is halved, so that only the message at
        fault fails; the halves go one after the other, which keeps the order of keys."""
        try:
            return await self._client.deliver_batch([pending.message for pending in batch])
        except BatchRefusedError as error:
            if len(batch) == 1:
                return [error]
            middle = len(batch) // 2
            results = await self._deliver(batch[:middle])
            transient = next((r for r in results if isinstance(r, DeliveryError) and r.retryable), None)
            if transient is not None:  # what comes later must not overtake it
                return [*results, *[transient] * (len(batch) - middle)]
            return [*results, *await self._deliver(batch[middle:])]
        except DeliveryError as error:
            return [error] * len(batch)
