"""Batches of one output: gathered by count, bytes and age, sent side by side, in order for each key.

While a message is in a batch that is not settled, later ones of its key wait. Several of one key share a batch only
when the receiver takes all of a batch or nothing, in order.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from backend.delivery.delivery import Delivery
from backend.delivery.outcomes import Outcome
from backend.domain.batching import BatchPolicy
from backend.domain.message import Message
from backend.domain.records import Attempt
from backend.resilience.bulkhead import Bulkhead

_WORTH_SENDING = 0.25
"""The part of a full batch that is sent beside others when no more can join: batches that were split stay large."""


@dataclass(eq=False, slots=True)
class Pending:
    """A message on its way through a batch."""

    delivery: Delivery
    outcome: asyncio.Future[Outcome]
    since: float = field(default_factory=time.monotonic)

    @property
    def message(self) -> Message:
        return self.delivery.message

    @property
    def attempts(self) -> list[Attempt]:
        return self.delivery.attempts


Settle = Callable[[Pending, Outcome], None]
"""Gives a message its outcome; its key may be delivered again."""

Send = Callable[[Sequence[Pending], Settle], Awaitable[None]]
"""Delivers a batch as patiently as its policy says. It settles every message, and raises nothing."""


class Batcher:
    """Gathers what is delivered through one client. Used and closed on one event loop.

    ``slots`` bounds the batches in flight, with those of other clients of the same output; the batch's first attempt
    holds the slot that was taken for it, which ``send`` gives back. While ``is_full`` no message can join before others
    have ended, so that a batch would wait in vain to fill; ``check`` has to follow when it becomes true.
    """

    def __init__(
        self, policy: BatchPolicy, *, atomic: bool, slots: Bulkhead, send: Send, is_full: Callable[[], bool]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._policy = policy
        self._is_full = is_full
        self._atomic = atomic
        self._slots = slots
        self._send = send
        self._pending: deque[Pending] = deque()
        self._bytes = 0
        self._busy_keys: dict[bytes, int] = {}
        self._to_flush = 0
        self._changed = asyncio.Event()
        self._running: set[asyncio.Future[None]] = set()
        self._task = asyncio.create_task(self._run())

    def add(self, delivery: Delivery) -> asyncio.Future[Outcome]:
        """The future outcome."""
        pending = Pending(delivery, self._loop.create_future())
        self._pending.append(pending)
        self._bytes += len(pending.message.body)
        if self._is_due() or len(self._pending) == 1:
            self._changed.set()
        return pending.outcome

    def check(self) -> None:
        """Whether a batch is due may have changed."""
        self._changed.set()

    def flush(self) -> None:
        """What is waiting now is sent without waiting for its batch to fill."""
        if self._pending:
            self._to_flush = len(self._pending)
            self._changed.set()

    async def close(self) -> None:
        """Once nothing is in flight."""
        self._task.cancel()
        await asyncio.gather(self._task, *self._running, return_exceptions=True)

    def _settle(self, pending: Pending, outcome: Outcome) -> None:
        key = pending.message.key
        self._busy_keys[key] -= 1
        if not self._busy_keys[key]:
            del self._busy_keys[key]
            self._changed.set()
        if not pending.outcome.done():
            pending.outcome.set_result(outcome)

    def _is_due(self) -> bool:
        if not self._pending:
            return False
        policy = self._policy
        return (
            self._to_flush > 0
            or len(self._pending) >= policy.messages
            or self._bytes >= policy.bytes
            or time.monotonic() - self._pending[0].since >= policy.seconds
            or self._waits_in_vain()
        )

    def _waits_in_vain(self) -> bool:
        is_worth_sending = not self._running or len(self._pending) >= _WORTH_SENDING * self._policy.messages
        return is_worth_sending and self._is_full()

    async def _run(self) -> None:
        while True:
            await self._until_due()
            await self._slots.enter(0)
            batch = self._take()
            if not batch:  # every key that waits is in flight
                self._slots.leave(0)
                self._changed.clear()
                await self._changed.wait()
                continue
            task = asyncio.ensure_future(self._send(batch, self._settle))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._running.discard(task)
        self._changed.set()

    async def _until_due(self) -> None:
        while not self._is_due():
            self._changed.clear()
            left = None
            if self._pending:
                left = max(0.0, self._pending[0].since + self._policy.seconds - time.monotonic())
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _take(self) -> list[Pending]:
        """The next batch, oldest first. What has to wait for its key stays, with all later ones of that key. A copy of
        a message that is in the batch stays too: the ledger only knows what was delivered before."""
        batch: list[Pending] = []
        ids: set[str] = set()
        left: deque[Pending] = deque()
        keys_left: set[bytes] = set()
        size = 0
        while self._pending and len(batch) < self._policy.messages:
            pending = self._pending.popleft()
            key, body = pending.message.key, len(pending.message.body)
            if batch and size + body > self._policy.bytes:
                self._pending.appendleft(pending)
                break
            if key in self._busy_keys or key in keys_left or pending.message.id in ids:
                left.append(pending)
                keys_left.add(key)
                continue
            batch.append(pending)
            ids.add(pending.message.id)
            size += body
            if not self._atomic:
                keys_left.add(key)
        self._pending.extendleft(reversed(left))
        self._bytes -= size
        for pending in batch:
            self._busy_keys[pending.message.key] = self._busy_keys.get(pending.message.key, 0) + 1
        self._to_flush = max(0, self._to_flush - len(batch))
        return batch
