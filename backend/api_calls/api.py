"""An external API as one step of one pipeline asks it: in parallel up to a bound, patiently, and not twice for the
same thing."""

import asyncio
import contextlib
import time
from typing import Any

from cachetools import TTLCache

from backend.connectors.http_endpoint import HttpConnection, address, refused, sent_secrets, static_headers
from backend.domain import json
from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import DeliveryError
from backend.domain.pipeline import RuntimeConnector
from backend.domain.transforms.base import CallFailedError, CallRequest
from backend.domain.transforms.http_call import HttpCall
from backend.network.http_client import HttpClient, HttpError, Response
from backend.resilience.gate import Gate, Held, Send
from backend.resilience.retries import GivenUpError, with_retries
from backend.resilience.scripts import OutputKey
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

_ANSWER_BYTES = 1024 * 1024
_CACHE_BYTES = 16 * 1024 * 1024
_TURN_SECONDS = 30.0
"""A message waits this long for the rate limit at most."""

_OF_THE_MESSAGE = {"http_400", "http_404", "http_409", "http_410", "http_422", "answer"}
"""Answers that tell of the message and not of the API: its breaker does not count them."""


class HttpApi:
    """An HTTP connector as something to ask. Made, used and closed on one event loop."""

    def __init__(self, connector: RuntimeConnector) -> None:
        """Raises CallFailedError when the connector could not be had."""
        if connector.error:
            raise CallFailedError("configuration", connector.error, retryable=True)
        connection = HttpConnection.model_validate(connector.connection)
        self._connection = connection
        self._headers = [*static_headers(connection), "Accept: application/json"]
        self._secrets = sent_secrets(connection)
        self._client = HttpClient(verify_tls=connection.verify_tls, kept_bytes=_ANSWER_BYTES)

    async def ask(self, request: CallRequest, timeout_seconds: float) -> bytes:
        """The answer, which is JSON or empty. Raises DeliveryError, without secrets."""
        url = address(self._connection, request.path)
        headers = self._headers if request.body is None else [*self._headers, "Content-Type: application/json"]
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._client.request(request.method, url, headers, request.body)
            return _json_of(answer)
        except TimeoutError:
            text = f"The API gave no answer within {timeout_seconds:g} seconds."
            raise DeliveryError("timeout", text, retryable=True) from None
        except HttpError as error:
            raise DeliveryError(error.kind, f"The API: {error}", retryable=error.kind != "forbidden") from None
        except DeliveryError as error:
            raise error.without(self._secrets) from None

    async def close(self) -> None:
        await self._client.close()


class Api:
    """An API as one step of one pipeline asks it. Made, used and closed on one event loop."""

    def __init__(
        self,
        pipeline_id: str,
        step: HttpCall,
        connector: RuntimeConnector,
        *,
        gate: Gate,
        breaker: BreakerPolicy,
        recorder: Recorder,
    ) -> None:
        """Raises CallFailedError when the connector could not be had."""
        self.step = step
        self.connector = connector
        self._http = HttpApi(connector)
        self._pipeline_id = pipeline_id
        self._recorder = recorder
        self._gate = gate.output(OutputKey(pipeline_id, step.breaker_name), step.breaker or breaker, step.rate_limit)
        self._slots = asyncio.Semaphore(step.concurrency)
        self._cache: TTLCache[CallRequest, bytes] = TTLCache(_CACHE_BYTES, step.cache_seconds, getsizeof=_size)
        self._asked: dict[CallRequest, asyncio.Task[bytes]] = {}
        self._in_flight = 0

    async def call(self, request: CallRequest) -> Any:
        """The answer's JSON, null for an empty one. Raises CallFailedError."""
        self._in_flight += 1
        try:
            answer = await (self._cached(request) if self.step.cache_seconds else self._ask(request))
            return json.loads(answer) if answer else None
        finally:
            self._in_flight -= 1

    async def close(self) -> None:
        """Once the last answer has come."""
        while self._in_flight:
            await asyncio.sleep(0.05)
        await self._http.close()

    async def _cached(self, request: CallRequest) -> bytes:
        kept = self._cache.get(request)
        if kept is not None:
            self._recorder.count(self._pipeline_id, events.call_cached(self.step.name))
            return kept
        # All that ask the same at the same time share one request.
        asked = self._asked.get(request)
        if asked is None:
            asked = self._asked[request] = asyncio.create_task(self._ask(request))
            asked.add_done_callback(lambda _: self._asked.pop(request))
        answer = await asyncio.shield(asked)
        with contextlib.suppress(ValueError):  # larger than the whole cache
            self._cache[request] = answer
        return answer

    async def _ask(self, request: CallRequest) -> bytes:
        async def attempt(_number: int) -> bytes:
            async with self._slots:
                return await self._try(request)

        try:
            answer = await with_retries(
                self.step.retry,
                attempt,
                opened=self._gate.opened,
                on_retry=lambda: self._recorder.count(self._pipeline_id, events.call_retried(self.step.name)),
            )
        except GivenUpError as given_up:
            self._recorder.count(self._pipeline_id, events.unanswered(self.step.name))
            raise CallFailedError(
                "call_failed", str(given_up), due=given_up.due, retryable=given_up.retryable
            ) from None
        self._recorder.count(self._pipeline_id, events.called(self.step.name))
        return answer

    async def _try(self, request: CallRequest) -> bytes:
        """Raises DeliveryError; CallFailedError when it may not be made now."""
        admission = await self._admitted()
        began = time.perf_counter()
        try:
            answer = await self._http.ask(request, self.step.timeout_seconds)
        except DeliveryError as error:
            if error.reason in _OF_THE_MESSAGE:
                self._gate.succeeded(probe=admission.probe)
            else:
                self._gate.failed(str(error)[:300], probe=admission.probe)
            raise
        self._gate.succeeded(probe=admission.probe)
        self._recorder.latency(self._pipeline_id, self.step.breaker_name, time.perf_counter() - began)
        return answer

    async def _admitted(self) -> Send:
        until = time.time() + _TURN_SECONDS
        while True:
            admission = await self._gate.admit("retry", "")
            if isinstance(admission, Send):
                await asyncio.sleep(admission.wait)
                return admission
            assert isinstance(admission, Held)  # nothing is a repeat without an id
            if admission.reason == "breaker_open":
                raise CallFailedError("breaker_open", "The API's circuit breaker is open.", due=admission.due)
            if admission.due > until:
                raise CallFailedError("rate_limited", "The API's rate limit is used up.", due=admission.due)
            await asyncio.sleep(max(0.005, admission.due - time.time()))


def _json_of(answer: Response) -> bytes:
    """Raises DeliveryError."""
    if answer.status >= 300:
        raise refused(answer, who="API", final="correct the step or the message")
    if not answer.complete:
        raise DeliveryError("answer", f"The API's answer is longer than {_ANSWER_BYTES:,} bytes.", retryable=False)
    try:
        if answer.body:
            json.loads(answer.body)
    except json.InvalidJsonError as error:
        raise DeliveryError("answer", f"The API's answer is not JSON: {error}", retryable=False) from None
    return answer.body


def _size(answer: bytes) -> int:
    return len(answer) + 200
