"""One output of a pipeline, whatever the version: bounded room, order per key, retries, breaker and rate limit."""

import asyncio
import logging
import time
from collections.abc import Collection, Hashable, Sequence

from backend.delivery import attempts
from backend.delivery.batch_sender import BatchSender
from backend.delivery.batching import Batcher
from backend.delivery.client import DeliveryClient
from backend.delivery.commits import COMMITTED, Commit
from backend.delivery.delivery import Delivery
from backend.delivery.order import KeyOrder
from backend.delivery.outcomes import Abandoned, Delivered, Outcome, Suppressed, Undeliverable
from backend.delivery.shares import Share, Window, WindowSlot
from backend.domain.batching import BatchPolicy
from backend.domain.breaker import BreakerPolicy
from backend.domain.capabilities import DeliveryError, Receipt, internal_error
from backend.domain.message import Message
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.domain.reasons import Reason
from backend.resilience.bulkhead import Bulkhead
from backend.resilience.gate import Gate, Held, Kind, OutputGate, Repeat, Send
from backend.resilience.retries import RetriesExhaustedError, with_retries
from backend.resilience.scripts import OutputKey
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

log = logging.getLogger(__name__)

_QUEUE_BYTES = 16 * 1024 * 1024
_SATURATED_SECONDS = 15.0
_CLIENT_IDLE_SECONDS = 60.0
_NO_BYTES = 0


class Output(Share):
    """Delivers the messages of all versions of a pipeline to one of its outputs.

    Messages with the same key go one after the other, in the order of ``accept``; at most ``concurrency`` deliveries
    run at the same time. No more than ``queue`` messages and 16 MiB are admitted, and no more than others leave of the
    window (shares.py). Further ones are queued, until ``evict_queue`` says that others need their slots. The newest
    configuration that was used decides about these bounds; connector, options, timeout and retries are those of each
    message's own version.
    """

    def __init__(
        self,
        pipeline_id: str,
        runtime: RuntimeOutput,
        *,
        recorder: Recorder,
        gate: Gate,
        breaker: BreakerPolicy,
        window: Window | None = None,
    ) -> None:
        super().__init__(runtime.config.queue, _QUEUE_BYTES, window or Window())
        self.name = runtime.name
        self._pipeline_id = pipeline_id
        self._recorder = recorder
        self._default_breaker = breaker
        self._config = config = runtime.config
        self._gate: OutputGate = gate.output(
            OutputKey(pipeline_id, self.name), config.breaker or breaker, config.rate_limit
        )
        self._slots = Bulkhead(config.concurrency, 1)
        self._version = 0
        self._clients: list[DeliveryClient] = []
        self._batchers: dict[DeliveryClient, Batcher] = {}
        self._order = KeyOrder()
        self._closing: set[asyncio.Task[None]] = set()

    def accept(
        self,
        runtime: RuntimeOutput,
        version: int,
        message: Message,
        position: str,
        *,
        kind: Kind = "first",
        slot: WindowSlot | None = None,
        read_at: tuple[str, ...] = (),
        commit: Commit = COMMITTED,
    ) -> Delivery:
        """Takes the message's turn among those of its key, and its room; ``send`` has to follow.

        Both are taken at once: a message that had room but not its turn would wait for one that has its turn but no
        room.

        ``position`` names the record it was read from, and ``commit`` is that record's; ``slot`` is its slot in the
        window, which outputs share.
        """
        if version > self._version:
            self._configure(runtime.config, version)
        client = self._client(runtime)
        client.in_flight += 1
        room = self.arrive(len(message.body))
        turn = self._order.take(message.key, client)
        return Delivery(message, position, kind, client, turn, slot, room, read_at, commit)

    async def send(self, delivery: Delivery) -> Outcome:
        """Delivers the message, or says why it could not be. Never raises."""
        message, client = delivery.message, delivery.client
        outcome: Outcome = Abandoned()
        try:
            outcome = await self._send_with_room(delivery)
        except Exception as error:  # a fault of ours must not leave the message without an outcome
            log.exception("A message could not be delivered.")
            failure = internal_error(error)
            outcome = Undeliverable(failure.reason, str(failure), delivery.attempts, retryable=True)
        else:
            if isinstance(outcome, Suppressed) and outcome.same_read and delivery.read_at:
                # A second copy of this redelivery is to find this position.
                self._gate.delivered(message.id, delivery.position, probe=False)
        finally:
            is_limited = self._gate.limit_policy is not None
            self._order.end(message.key, delivery.turn, _awaited_commit(outcome, delivery, is_limited=is_limited))
            client.in_flight -= 1
            client.last_used = time.monotonic()
            self.leave(len(message.body))
        self._note(delivery, outcome)
        return outcome

    @property
    def is_behind(self) -> bool:
        """Never while it stages: then nobody is waited for, and what the ledger knows must not become a dead letter."""
        return not self._stages and super().is_behind

    def flush(self) -> None:
        """Batches are sent as they are."""
        for batcher in self._batchers.values():
            batcher.flush()

    def close_idle_clients(self, now: float) -> None:
        """Those of former configurations, once nobody has used them for a minute."""
        for client in self._clients[:-1]:
            if not client.in_flight and now - client.last_used > _CLIENT_IDLE_SECONDS:
                self._clients.remove(client)
                task = asyncio.create_task(self._close_client(client))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Once nothing is in flight."""
        await asyncio.gather(*(self._close_client(client) for client in self._clients), *self._closing)

    # -- room, client and order ------------------------------------------------

    async def _send_with_room(self, delivery: Delivery) -> Outcome:
        if delivery.room is not None:
            if (batcher := self._batchers.get(delivery.client)) is not None:
                batcher.check()
            if not await delivery.room:
                return _saturated("The output was slow while others waited; the message is redelivered automatically.")
        if delivery.slot is not None:
            delivery.slot.acquire()
        try:
            await delivery.turn.comes()
            if not delivery.client.batched:
                return await self._deliver_with_retries(delivery)
            outcome = self._batcher(delivery.client).add(delivery)
            delivery.turn.join()
            return await outcome
        finally:
            self.end(len(delivery.message.body))

    @property
    def _stages(self) -> bool:
        return bool(self._clients) and self._clients[-1].stages

    def _configure(self, config: OutputConfig, version: int) -> None:
        self._version = version
        if config is not self._config:
            self._config = config
            self._room.resize(config.queue)
            self._slots.resize(config.concurrency)
            self._gate.configure(config.breaker or self._default_breaker, config.rate_limit)

    def _client(self, runtime: RuntimeOutput) -> DeliveryClient:
        if self._clients and self._clients[-1].runtime is runtime:  # nearly always
            return self._clients[-1]
        for client in self._clients:
            if client.serves(runtime):
                return client
        client = DeliveryClient(runtime)
        self._clients.append(client)
        return client

    async def _close_client(self, client: DeliveryClient) -> None:
        if client in self._batchers:
            await self._batchers.pop(client).close()
        await client.close()

    # -- one by one --------------------------------------------------------------

    async def _deliver_with_retries(self, delivery: Delivery) -> Outcome:
        message = delivery.message

        async def attempt(number: int) -> Outcome:
            purpose: Kind = delivery.kind if number == 1 else "retry"
            # Admission takes milliseconds, during which no delivery should hold a slot. A token of a rate limit is
            # for now, though: it is taken by what has a slot already.
            epoch, holds = self._gate.epoch, self._gate.holds
            admission = await self._gate.turn(purpose, message.id) if self._gate.limit_policy is None else None
            if isinstance(admission, Repeat | Held):
                return attempts.not_attempted(admission, delivery)
            if self._order.set_aside.holds(message.key) or delivery.commit.is_lost:
                [obstacle] = await self._obstacles([delivery])
                if obstacle is not None:
                    return obstacle
            if not self._slots.enter_now(_NO_BYTES):
                await self._slots.enter(_NO_BYTES)
            try:
                if admission is None or self._is_outdated(admission, epoch, holds):
                    admission = await self._gate.turn(purpose, message.id)
                if isinstance(admission, Repeat | Held):
                    return attempts.not_attempted(admission, delivery)
                return await self._attempt(delivery, admission, number)
            finally:
                self._slots.leave(_NO_BYTES)

        try:
            return await with_retries(
                delivery.client.runtime.config.retry,
                attempt,
                opened=self._gate.opened,
                on_retry=lambda: self._recorder.count(self._pipeline_id, events.retried(self.name)),
            )
        except RetriesExhaustedError as exhausted:
            return Undeliverable(
                exhausted.reason,
                str(exhausted),
                delivery.attempts,
                due=exhausted.due,
                retryable=exhausted.retryable,
                rejected=exhausted.rejected,
            )

    async def _obstacles(self, deliveries: Sequence[Delivery]) -> list[Outcome | None]:
        """What comes of each message that may not be sent although it was admitted. Waits for the commits of dead
        letters that come before them in the order of their keys."""
        uncommitted = await self._order.set_aside.uncommitted(delivery.message.key for delivery in deliveries)
        return [self._obstacle(delivery, uncommitted) for delivery in deliveries]

    def _obstacle(self, delivery: Delivery, uncommitted: Collection[Hashable]) -> Outcome | None:
        if delivery.message.key in uncommitted:
            return _saturated(
                "A dead letter of the same key could not be stored in time; the message is redelivered automatically."
            )
        return Abandoned() if delivery.commit.is_lost else None

    def _is_outdated(self, admission: Send, epoch: int, holds: int) -> bool:
        """Whether the breaker may have opened, or the receiver have asked to be left alone, since it was given."""
        return self._gate.holds != holds or (not admission.probe and self._gate.epoch != epoch)

    async def _attempt(self, delivery: Delivery, admission: Send, number: int) -> Delivered:
        """Raises DeliveryError."""
        message, client, again = delivery.message, delivery.client, bool(delivery.attempts)
        began = time.perf_counter()
        try:
            receipt = self._prepared(delivery) if client.stages else await client.deliver(message)
        except DeliveryError as error:
            delivery.attempts.append(attempts.failed(error, number, time.perf_counter() - began))
            if error.about_message:
                self._gate.answered(message.id, probe=admission.probe, again=again)
            else:
                self._gate.failed(str(error)[:300], message.id, probe=admission.probe, again=again)
                if error.retry_after is not None:
                    self._gate.hold(error.retry_after)
            raise
        seconds = time.perf_counter() - began
        delivery.attempts += attempts.succeeded(client, number, seconds, receipt)
        self._recorder.latency(self._pipeline_id, self.name, seconds)
        # Last: what the ledger knows is neither sent nor billed again, so nothing may fail after it.
        self._gate.delivered(message.id, delivery.position, probe=admission.probe, again=again)
        return Delivered(receipt.status, delivery.attempts)

    def _prepared(self, delivery: Delivery) -> Receipt:
        """Of a message that is handed over with its outcome. Raises DeliveryError."""
        delivery.document = delivery.client.document(delivery.message)
        return Receipt("staged" if delivery.document is None else "collected")

    def _batcher(self, client: DeliveryClient) -> Batcher:
        batcher = self._batchers.get(client)
        if batcher is None:
            sender = BatchSender(
                client, gate=self._gate, slots=self._slots, recorder=self._recorder, obstacles=self._obstacles
            )
            policy = client.runtime.config.batch or BatchPolicy.model_validate({})
            batcher = Batcher(
                policy, atomic=client.atomic, slots=self._slots, send=sender.send, is_full=lambda: self.is_full
            )
            self._batchers[client] = batcher
        return batcher

    def _note(self, delivery: Delivery, outcome: Outcome) -> None:
        if delivery.kind == "redelivery" and isinstance(outcome, Delivered | Undeliverable):
            self._recorder.count(self._pipeline_id, events.redelivered(self.name))
        match outcome:
            case Delivered():
                self._recorder.count(self._pipeline_id, events.delivered(self.name))
            case Suppressed():
                self._recorder.count(self._pipeline_id, events.suppressed(self.name))
            case Undeliverable():
                self._recorder.count(self._pipeline_id, events.dead(self.name))
                self._recorder.error(
                    self._pipeline_id,
                    stage=f"output {self.name}",
                    reason=outcome.reason,
                    message=outcome.error,
                    message_id=delivery.message.id,
                )


def _saturated(text: str) -> Undeliverable:
    return Undeliverable(Reason.OUTPUT_SATURATED, text, due=time.time() + _SATURATED_SECONDS)


def _awaited_commit(outcome: Outcome, delivery: Delivery, *, is_limited: bool) -> Commit | None:
    """What later messages of the key wait for. Not for one that would become a dead letter again, and not under a rate
    limit, which sets messages aside in any order. A redelivered one was set aside before."""
    if not isinstance(outcome, Undeliverable) or outcome.rejected or delivery.kind == "redelivery":
        return None
    return None if is_limited and outcome.reason == Reason.RATE_LIMITED else delivery.commit
