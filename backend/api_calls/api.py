"""An external system as one step of one pipeline calls it: in parallel up to a bound, with retries, and not twice for
the same thing."""

import asyncio
import contextlib
import logging
import time
import uuid
from typing import Any

from cachetools import TTLCache

from backend.domain import capabilities, json
from backend.domain.breaker import BreakerPolicy
from backend.domain.capabilities import DeliveryError, internal_error
from backend.domain.connector import RuntimeConnector
from backend.domain.message_templates import Metadata
from backend.domain.reasons import Reason
from backend.domain.retry import held_text
from backend.domain.transforms.base import CallFailedError
from backend.domain.transforms.call import Call
from backend.resilience.gate import Gate, Held, Send
from backend.resilience.retries import RetriesExhaustedError, with_retries
from backend.resilience.scripts import OutputKey
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

log = logging.getLogger(__name__)

_CACHE_BYTES = 16 * 1024 * 1024
_TURN_SECONDS = 30.0
"""A message waits this long for the rate limit at most."""


class System:
    """A step's connector, ready to be called. Made, used and closed on one event loop."""

    def __init__(self, step: Call, connector: RuntimeConnector) -> None:
        """Raises CallFailedError when the configuration does not work."""
        self._seconds = step.timeout_seconds
        try:
            self._call: capabilities.Call[Any, Any] = step.bind(connector)
        except DeliveryError as error:
            raise CallFailedError(Reason.CONFIGURATION, str(error), retryable=error.retryable) from None
        self.request = self._call.request()
        self.shown = self._call.shown
        self._secrets = self._call.secrets()
        self._opened: asyncio.Future[None] | None = None

    async def ask(self, request: Any) -> bytes:
        """The answer, which is JSON or empty. Raises DeliveryError, without secrets."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._open()
                return await self._call.call(request)
        except TimeoutError:
            text = f"The API gave no answer within {self._seconds:g} seconds."
            raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None
        except DeliveryError as error:
            raise error.without(self._secrets) from None
        except Exception as error:
            log.exception("A connector failed unexpectedly.")
            raise internal_error(error) from None

    async def close(self) -> None:
        if self._opened is not None:
            await self._call.close()

    async def _open(self) -> None:
        if self._opened is None or (self._opened.done() and self._opened.exception() is not None):
            self._opened = asyncio.ensure_future(self._call.open())
        await asyncio.shield(self._opened)


class Api:
    """One step's calls, with its cache, its concurrency, its breaker and its rate limit."""

    def __init__(
        self,
        pipeline_id: str,
        step: Call,
        connector: RuntimeConnector,
        *,
        gate: Gate,
        breaker: BreakerPolicy,
        recorder: Recorder,
    ) -> None:
        """Raises CallFailedError when the configuration does not work."""
        self.step = step
        self.connector = connector
        self.last_used = time.monotonic()
        self._system = System(step, connector)
        self._pipeline_id = pipeline_id
        self._recorder = recorder
        self._gate = gate.output(OutputKey(pipeline_id, step.breaker_name), step.breaker or breaker, step.rate_limit)
        self._slots = asyncio.Semaphore(step.concurrency)
        self._cache: TTLCache[Any, bytes] = TTLCache(_CACHE_BYTES, step.cache_seconds, getsizeof=_size)
        self._requests: dict[Any, asyncio.Task[bytes]] = {}
        self.in_flight = 0

    async def call(self, document: Any, metadata: Metadata) -> Any:
        """The answer's JSON, null for an empty one. Raises CallFailedError, and TransformError when the document
        makes no request."""
        request = self._system.request(document, metadata)
        self.in_flight += 1
        self.last_used = time.monotonic()
        try:
            answer = await (self._cached(request) if self.step.cache_seconds else self._ask(request))
            return json.loads(answer) if answer else None
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        """Once the last answer has arrived."""
        while self.in_flight:
            await asyncio.sleep(0.05)
        await self._system.close()

    async def _cached(self, request: Any) -> bytes:
        cached = self._cache.get(request)
        if cached is not None:
            self._recorder.count(self._pipeline_id, events.call_cached(self.step.name))
            return cached
        # Equal requests at the same time share one call.
        call = self._requests.get(request)
        if call is None:
            call = self._requests[request] = asyncio.create_task(self._ask(request))
            call.add_done_callback(lambda _: self._requests.pop(request))
        answer = await asyncio.shield(call)
        with contextlib.suppress(ValueError):  # larger than the whole cache
            self._cache[request] = answer
        return answer

    async def _ask(self, request: Any) -> bytes:
        call = uuid.uuid4().hex
        failed = False

        async def attempt(_number: int) -> bytes:
            nonlocal failed
            async with self._slots:
                try:
                    return await self._attempt(request, call, again=failed)
                except DeliveryError:
                    failed = True
                    raise

        try:
            answer = await with_retries(
                self.step.retry,
                attempt,
                opened=self._gate.opened,
                on_retry=lambda: self._recorder.count(self._pipeline_id, events.call_retried(self.step.name)),
            )
        except RetriesExhaustedError as exhausted:
            self._recorder.count(self._pipeline_id, events.unanswered(self.step.name))
            raise CallFailedError(
                Reason.CALL_FAILED, str(exhausted), due=exhausted.due, retryable=exhausted.retryable
            ) from None
        self._recorder.count(self._pipeline_id, events.called(self.step.name))
        return answer

    async def _attempt(self, request: Any, call: str, *, again: bool) -> bytes:
        """Raises DeliveryError; CallFailedError when it may not be made now."""
        admission = await self._admitted()
        began = time.perf_counter()
        try:
            answer = await self._system.ask(request)
        except DeliveryError as error:
            if error.about_message:
                self._gate.answered(call, probe=admission.probe, again=again)
            else:
                self._gate.failed(str(error)[:300], call, probe=admission.probe, again=again)
                if error.retry_after is not None:
                    self._gate.hold(error.retry_after)
            raise
        self._gate.answered(call, probe=admission.probe, again=again)
        self._recorder.latency(self._pipeline_id, self.step.breaker_name, time.perf_counter() - began)
        return answer

    async def _admitted(self) -> Send:
        until = time.time() + _TURN_SECONDS
        while True:
            admission = await self._gate.turn("retry", "")
            if isinstance(admission, Send):
                return admission
            assert isinstance(admission, Held)  # nothing is a repeat without an id
            if admission.reason is Reason.BREAKER_OPEN:
                raise CallFailedError(Reason.BREAKER_OPEN, "The API's circuit breaker is open.", due=admission.due)
            if admission.due > until:
                text = held_text(admission.due, who="API") if admission.asked else "The API's rate limit is used up."
                raise CallFailedError(Reason.RATE_LIMITED, text, due=admission.due)
            await asyncio.sleep(max(0.005, admission.due - time.time()))


def _size(answer: bytes) -> int:
    return len(answer) + 200
