"""One output of a pipeline, whatever the version: bounded room, order per key, retries, breaker and rate limit."""

import asyncio
import time

from backend.delivery import attempts
from backend.delivery.batch_sender import BatchSender
from backend.delivery.batching import Batcher, Pending
from backend.delivery.client import DeliveryClient
from backend.delivery.outcomes import Delivered, Outcome, Suppressed, Undeliverable
from backend.domain.batching import BatchPolicy
from backend.domain.breaker import BreakerPolicy
from backend.domain.capabilities import DeliveryError
from backend.domain.message import Message
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.domain.reasons import Reason
from backend.domain.records import Attempt
from backend.resilience.bulkhead import Bulkhead
from backend.resilience.gate import Gate, Held, Kind, OutputGate, Repeat, Send
from backend.resilience.retries import RetriesExhaustedError, with_retries
from backend.resilience.scripts import OutputKey
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

_QUEUE_BYTES = 16 * 1024 * 1024
_SATURATED_SECONDS = 15.0
_CLIENT_IDLE_SECONDS = 60.0
_NO_BYTES = 0


class Output:
    """Delivers the messages of all versions of a pipeline to one of its outputs.

    Messages with the same key go one after the other; at most ``concurrency`` deliveries run at the same time, and
    no more than ``queue`` messages and 16 MiB are in flight or wait for their turn. Further ones wait in line, until
    ``dismiss_line`` says that others need their place in the window. The newest configuration that was used decides
    about these bounds; connector, options, timeout and retries are those of each message's own version.
    """

    def __init__(
        self, pipeline_id: str, runtime: RuntimeOutput, *, recorder: Recorder, gate: Gate, breaker: BreakerPolicy
    ) -> None:
        self.name = runtime.name
        self._pipeline_id = pipeline_id
        self._recorder = recorder
        self._default_breaker = breaker
        self._config = config = runtime.config
        self._gate: OutputGate = gate.output(
            OutputKey(pipeline_id, self.name), config.breaker or breaker, config.rate_limit
        )
        self._room = Bulkhead(config.queue, _QUEUE_BYTES)
        self._slots = Bulkhead(config.concurrency, 1)
        self._version = 0
        self._clients: list[DeliveryClient] = []
        self._batchers: dict[DeliveryClient, Batcher] = {}
        self._tails: dict[bytes, tuple[asyncio.Future[None], DeliveryClient]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.in_flight = 0
        self.last_used = time.monotonic()
        self._ended = 0
        self._pace_since = self.last_used

    async def send(
        self, runtime: RuntimeOutput, version: int, message: Message, position: str, kind: Kind = "first"
    ) -> Outcome:
        """Delivers the message, which was read at ``position``, or says why it could not be. Never raises."""
        self.in_flight += 1
        self.last_used = time.monotonic()
        try:
            outcome = await self._send_with_room(runtime, version, message, position, kind)
        finally:
            self.in_flight -= 1
            self._ended += 1
        self._note(message, outcome)
        return outcome

    def is_slow(self) -> bool:
        """Whether what waits in line needs more than a second, at the pace since this was last called."""
        now = time.monotonic()
        pace = self._ended / max(now - self._pace_since, 0.001)
        self._ended, self._pace_since = 0, now
        return self._room.waiting > pace

    def dismiss_line(self) -> None:
        """What waits for room becomes dead letters, to be delivered later."""
        self._room.dismiss_line()

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

    async def _send_with_room(
        self, runtime: RuntimeOutput, version: int, message: Message, position: str, kind: Kind
    ) -> Outcome:
        size = len(message.body)
        if not self._room.enter_now(size) and not await self._room.enter(size):
            return Undeliverable(
                Reason.OUTPUT_SATURATED,
                f"The output's {self._room.capacity} places stayed taken while others waited; the message is "
                "redelivered automatically.",
                due=time.time() + _SATURATED_SECONDS,
            )
        try:
            if version > self._version:
                self._configure(runtime.config, version)
            client = self._client(runtime)
            client.in_flight += 1
            try:
                return await self._send_in_order(client, message, position, kind)
            finally:
                client.in_flight -= 1
                client.last_used = time.monotonic()
        finally:
            self._room.leave(size)

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

    async def _send_in_order(self, client: DeliveryClient, message: Message, position: str, kind: Kind) -> Outcome:
        tail = self._tails.get(message.key)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tails[message.key] = entry = (done, client)
        try:
            # A batcher keeps the order of a key itself: waiting here would put each message of a key into a batch
            # of its own.
            if tail is not None and not (client.batched and tail[1] is client):
                await tail[0]
            if client.batched:
                return await self._batcher(client).deliver(
                    Pending(message, position, kind, asyncio.get_running_loop().create_future())
                )
            return await self._deliver_with_retries(client, message, position, kind)
        finally:
            done.set_result(None)
            if self._tails.get(message.key) is entry:
                del self._tails[message.key]

    async def _close_client(self, client: DeliveryClient) -> None:
        if client in self._batchers:
            await self._batchers.pop(client).close()
        await client.close()

    # -- one by one --------------------------------------------------------------

    async def _deliver_with_retries(
        self, client: DeliveryClient, message: Message, position: str, kind: Kind
    ) -> Outcome:
        log_entries: list[Attempt] = []

        async def attempt(number: int) -> Outcome:
            purpose: Kind = kind if number == 1 else "retry"
            # Admission takes milliseconds, during which no delivery should hold a slot. A token of a rate limit is
            # for now, though: it is taken by what has a slot already.
            epoch = self._gate.epoch
            admission = await self._gate.admit(purpose, message.id) if self._gate.limit_policy is None else None
            if isinstance(admission, Repeat | Held):
                return attempts.not_attempted(admission, position, log_entries)
            if not self._slots.enter_now(_NO_BYTES):
                await self._slots.enter(_NO_BYTES)
            try:
                if admission is None or self._is_outdated(admission, epoch):
                    admission = await self._gate.admit(purpose, message.id)
                if isinstance(admission, Repeat | Held):
                    return attempts.not_attempted(admission, position, log_entries)
                return await self._attempt(client, message, position, admission, number=number, log_entries=log_entries)
            finally:
                self._slots.leave(_NO_BYTES)

        try:
            return await with_retries(
                client.runtime.config.retry,
                attempt,
                opened=self._gate.opened,
                on_retry=lambda: self._recorder.count(self._pipeline_id, events.retried(self.name)),
            )
        except RetriesExhaustedError as exhausted:
            return Undeliverable(
                exhausted.reason, str(exhausted), log_entries, due=exhausted.due, retryable=exhausted.retryable
            )

    def _is_outdated(self, admission: Send, epoch: int) -> bool:
        """Whether the breaker may have opened since it was given."""
        return not admission.probe and self._gate.epoch != epoch

    async def _attempt(
        self,
        client: DeliveryClient,
        message: Message,
        position: str,
        admission: Send,
        *,
        number: int,
        log_entries: list[Attempt],
    ) -> Delivered:
        """Raises DeliveryError."""
        if admission.wait > 0:
            await asyncio.sleep(admission.wait)
        began = time.perf_counter()
        try:
            receipt = await client.deliver(message)
        except DeliveryError as error:
            self._gate.failed(str(error)[:300], probe=admission.probe)
            log_entries.append(attempts.failed(error, number, time.perf_counter() - began))
            raise
        self._gate.delivered(message.id, position, probe=admission.probe)
        seconds = time.perf_counter() - began
        self._recorder.latency(self._pipeline_id, self.name, seconds)
        log_entries += attempts.succeeded(client, number, seconds, receipt)
        return Delivered(receipt.status, log_entries)

    def _batcher(self, client: DeliveryClient) -> Batcher:
        batcher = self._batchers.get(client)
        if batcher is None:
            sender = BatchSender(client, gate=self._gate, slots=self._slots, recorder=self._recorder)
            policy = client.runtime.config.batch or BatchPolicy.model_validate({})
            batcher = Batcher(policy, atomic=client.atomic, slots=self._slots, send=sender.send)
            self._batchers[client] = batcher
        return batcher

    def _note(self, message: Message, outcome: Outcome) -> None:
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
                    message_id=message.id,
                )
