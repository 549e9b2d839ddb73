"""Sends the batches of one client: admission for each message, one call for all, retries of those that failed."""

import asyncio
import logging
import time
from collections.abc import Sequence

from backend.delivery import attempts
from backend.delivery.batching import Pending, Settle
from backend.delivery.client import DeliveryClient
from backend.delivery.outcomes import Delivered, Undeliverable
from backend.domain.capabilities import BatchRefusedError, DeliveryError, Receipt, internal_error
from backend.resilience.bulkhead import Bulkhead
from backend.resilience.gate import Held, OutputGate, Repeat
from backend.resilience.retries import RetriesExhaustedError, with_retries
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

log = logging.getLogger(__name__)

_NO_BYTES = 0


class BatchSender:
    """``gate`` and ``slots`` are the output's, which all of its clients share."""

    def __init__(self, client: DeliveryClient, *, gate: OutputGate, slots: Bulkhead, recorder: Recorder) -> None:
        self._client = client
        self._gate = gate
        self._slots = slots
        self._recorder = recorder

    async def send(self, batch: Sequence[Pending], settle: Settle) -> None:
        """Settles every message. The caller has taken a slot, which the first attempt gives back."""
        remaining = list(batch)

        async def attempt(number: int) -> None:
            """Settles what it can. Raises the first of the errors that are worth another attempt."""
            nonlocal remaining
            if number > 1:
                await self._slots.enter(_NO_BYTES)
            try:
                failed = await self._attempt(remaining, number, settle)
            finally:
                self._slots.leave(_NO_BYTES)
            remaining = [pending for pending, _ in failed]
            if failed:
                raise failed[0][1]

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
                    last.reason, last.error, pending.attempts, due=exhausted.due, retryable=exhausted.retryable
                )
                settle(pending, outcome)
        except Exception as error:  # a fault of ours must not leave messages without an outcome
            log.exception("A batch could not be delivered.")
            failure = internal_error(error)
            for pending in remaining:
                settle(pending, Undeliverable(failure.reason, str(failure), pending.attempts, retryable=True))

    async def _attempt(
        self, batch: Sequence[Pending], number: int, settle: Settle
    ) -> list[tuple[Pending, DeliveryError]]:
        """Sends what is admitted; those that failed and are worth another attempt, each with its error."""
        admissions = await asyncio.gather(
            *(self._gate.admit(p.kind if number == 1 else "retry", p.message.id) for p in batch)
        )
        sent: list[Pending] = []
        wait, probe = 0.0, False
        for pending, admission in zip(batch, admissions, strict=True):
            if isinstance(admission, Repeat | Held):
                settle(pending, attempts.not_attempted(admission, pending.position, pending.attempts))
            else:
                sent.append(pending)
                wait, probe = max(wait, admission.wait), probe or admission.probe
        if not sent:
            return []
        if wait > 0:
            await asyncio.sleep(wait)
        began = time.perf_counter()
        results = await self._deliver(sent)
        seconds = time.perf_counter() - began
        if all(isinstance(result, DeliveryError) for result in results):
            # A batch is one call to the receiver, so it is one failure to its breaker.
            self._gate.failed(str(results[0])[:300], probe=probe)
            probe = False
        worth_retrying: list[tuple[Pending, DeliveryError]] = []
        for pending, result in zip(sent, results, strict=True):
            if isinstance(result, DeliveryError):
                pending.attempts.append(attempts.failed(result, number, seconds))
                if result.retryable:
                    worth_retrying.append((pending, result))
                else:
                    settle(pending, Undeliverable(result.reason, str(result), pending.attempts))
                continue
            self._gate.delivered(pending.message.id, pending.position, probe=probe)
            probe = False
            self._recorder.latency(self._gate.key.pipeline_id, self._gate.key.output, seconds)
            pending.attempts += attempts.succeeded(self._client, number, seconds, result)
            settle(pending, Delivered(result.status, pending.attempts))
        return worth_retrying

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
