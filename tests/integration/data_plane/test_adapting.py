"""Steps that wait, against a real API and a real Redis."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from backend.api_calls.services import ApiCalls
from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message, new_message_id, source_fields, utc_now
from backend.domain.transforms.base import CallFailedError, TransformError, transforms
from backend.domain.transforms.chain import Chain
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder
from tests.infra import REDIS_URL, Server
from tests.receiver import receiver
from tests.waiting import wait_until_async

CONNECTOR = uuid.UUID("0198a7e5-0000-7000-8000-000000000000")
PATIENT = BreakerPolicy(errors=50)


class Runner:
    """A pipeline with its steps, as a lane task runs it."""

    def __init__(self, api_calls: ApiCalls, gate: Gate) -> None:
        self.gate = gate
        self.pipeline = str(uuid.uuid4())  # with a breaker of its own
        self._api_calls = api_calls

    async def run(
        self, steps: list[dict[str, Any]], body: Any, url: str = "", message_id: str = "", **connection: Any
    ) -> list[Any]:
        connectors = {CONNECTOR: RuntimeConnector(type="http", connection={"url": url, **connection})}
        message = Message(
            message_id or new_message_id(),
            self.pipeline,
            1,
            b"",
            b"",
            "application/json",
            utc_now(),
            (),
            source_fields("orders", [("tenant", b"a b")]),
        )
        resources = self._api_calls.resources(message, connectors)
        made = [transforms.get(step["type"]).model_validate(step) for step in steps]  # type: ignore[attr-defined]
        results = await Chain(made).run_waiting(json.dumps(body).encode(), resources, message)
        return [json.loads(result.body) for result in results]


@pytest.fixture
async def runner(redis_server: Server) -> AsyncIterator[Runner]:
    gate = Gate(REDIS_URL)
    api_calls = ApiCalls(REDIS_URL, gate=gate, breaker=PATIENT, recorder=Recorder(REDIS_URL))
    yield Runner(api_calls, gate)
    await api_calls.close()


def call(**config: Any) -> dict[str, Any]:
    quick = {"attempts": 2, "initial_seconds": 0.01}
    options = {name: config.pop(name) for name in ("method", "path", "body") if name in config}
    return {
        "type": "call",
        "connector": str(CONNECTOR),
        "options": options,
        "to": "answer",
        "retry": quick,
    } | config


async def test_a_request_is_made_of_the_message_and_its_answer_mapped_into_it(runner: Runner) -> None:
    requests: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append((request.method, request.raw_path))
        return web.json_response({"name": "Ana", "score": {"value": 9223372036854775808}})

    async with receiver(answer) as api:
        step = call(
            method="POST",
            path="/customers/{{id}}?of={{shop}}&tenant={{$message.headers.tenant}}",
            body={"id": "{{id}}", "note": "order {{id}}"},
            to=None,
            mapping={"customer.name": "name", "customer.score": "score.value", "customer.none": "none"},
        )
        token = {"authentication": {"type": "bearer", "token": "t0p-secret"}}
        [made] = await runner.run([step], {"id": 7, "shop": "a/b&c"}, f"{api.url}v1/", **token)
        assert made["customer"] == {"name": "Ana", "score": 2**63}
        assert requests == [("POST", "/v1/customers/7?of=a%2Fb%26c&tenant=a%20b")]
        assert json.loads(api.bodies[0]) == {"id": 7, "note": "order 7"}
        assert api.headers[0]["Authorization"] == "Bearer t0p-secret"
        # The next request of the same connection carries nothing of this one.
        assert (await runner.run([call(name="get")], {}, api.url))[0]["answer"]["name"] == "Ana"
        assert api.bodies[1] == b""


async def test_failures_are_tried_again_and_then_as_the_step_says(runner: Runner) -> None:
    statuses = iter([503, 200, 500, 500, 500, 500, 500, 500])

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"ok": True}, status=next(statuses))

    async with receiver(answer) as api:
        assert await runner.run([call()], {}, api.url) == [{"answer": {"ok": True}}]
        with pytest.raises(CallFailedError, match=r"Step 1 \(call\): The API answered 500") as failed:
            await runner.run([call()], {}, api.url)
        assert failed.value.reason == "call_failed"
        assert failed.value.retryable
        skipped = await runner.run([call(on_failure="skip")], {"a": 1}, api.url)
        assert skipped == [{"a": 1}]
        fallback = {"on_failure": "fallback", "fallback": {"ok": None}}
        assert await runner.run([call(**fallback)], {}, api.url) == [{"answer": {"ok": None}}]


@pytest.mark.parametrize(
    ("text", "message"), [("<html>", "is not JSON"), ('"' + "a" * 2_000_000 + '"', "is longer than 1,048,576 bytes")]
)
async def test_an_answer_that_cannot_be_used_is_a_failure(runner: Runner, text: str, message: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text)

    async with receiver(answer) as api:
        with pytest.raises(CallFailedError, match=message):
            await runner.run([call()], {}, api.url)


async def test_a_message_cannot_lead_the_request_elsewhere(runner: Runner) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(1)

    async with receiver(answer) as api:
        step = call(path="/a/{{id}}/b")
        for value in ("..", ".", None, {"x": 1}, []):
            with pytest.raises(TransformError):
                await runner.run([step], {"id": value}, api.url)
        with pytest.raises(TransformError, match="has no field id"):
            await runner.run([step], {}, api.url)
        assert api.bodies == []


async def test_equal_requests_share_an_answer_for_a_while(runner: Runner) -> None:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(0.05)
        return web.json_response({"n": 1})

    async with receiver(answer) as api:
        step = call(path="/{{id}}", cache_seconds=600)
        bodies = [{"id": n % 2} for n in range(10)]
        made = await asyncio.gather(*(runner.run([step], body, api.url) for body in bodies))
        assert all(result == [{"id": n % 2, "answer": {"n": 1}}] for n, result in enumerate(made))
        assert len(api.bodies) == 2
        # What one message does to its answer is not seen by another.
        [changed] = await runner.run([step, {"type": "set", "path": "answer.n", "value": 2}], {"id": 0}, api.url)
        assert changed["answer"] == {"n": 2}
        assert (await runner.run([step], {"id": 0}, api.url))[0]["answer"] == {"n": 1}
        assert len(api.bodies) == 2
        brief = call(path="/{{id}}", cache_seconds=1)

        async def is_asked_again() -> bool:
            await runner.run([brief], {"id": 0}, api.url)
            return len(api.bodies) >= 4

        await wait_until_async(is_asked_again)


async def test_no_more_requests_at_a_time_than_allowed(runner: Runner) -> None:
    under_way = most = 0
    released = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        nonlocal under_way, most
        if request.path == "/other":
            return web.json_response(1)
        under_way += 1
        most = max(most, under_way)
        await asyncio.wait_for(released.wait(), 60)
        under_way -= 1
        return web.json_response(1)

    async with receiver(answer) as api:
        runs = [asyncio.ensure_future(runner.run([call(concurrency=3)], {}, api.url)) for _ in range(12)]
        await api.received(3)
        # A fourth would have arrived before the requests of a step that began later and has its own slots.
        for _ in range(3):
            await runner.run([call(name="other", path="/other")], {}, api.url)
        assert most == 3
        released.set()
        await asyncio.gather(*runs)
        assert most == 3


async def test_the_api_has_a_breaker_and_a_rate_limit_of_its_own(runner: Runner) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(1, status=500 if request.path == "/bad" else 404 if request.path == "/none" else 200)

    async with receiver(answer) as api:
        step = call(path="/{{p}}", retry={"attempts": 1}, breaker={"errors": 2, "open_seconds": 60})
        for _ in range(4):  # what tells of the message does not count
            with pytest.raises(CallFailedError, match="answered 404"):
                await runner.run([step], {"p": "none"}, api.url)
        began = time.time()
        for _ in range(2):
            with pytest.raises(CallFailedError, match="answered 500"):
                await runner.run([step], {"p": "bad"}, api.url)
        await runner.gate.settled()
        requests = len(api.bodies)
        with pytest.raises(CallFailedError, match="breaker is open") as refused:
            await runner.run([step], {"p": "good"}, api.url)
        assert refused.value.due is not None
        assert began + 59 < refused.value.due < time.time() + 61
        assert len(api.bodies) == requests
        limited = call(name="limited", rate_limit={"messages": 10, "period_seconds": 1})
        began = time.monotonic()
        await asyncio.gather(*(runner.run([limited], {}, api.url) for _ in range(15)))
        assert time.monotonic() - began > 1.2


async def test_neighbours_9_an_api_that_asks_to_be_left_alone_is_not_called(runner: Runner) -> None:
    came: list[float] = []
    wishes = iter(["2", "600"])

    async def busy(request: web.Request) -> web.Response:
        came.append(time.monotonic())
        if request.path == "/busy":
            return web.Response(status=429, headers={"Retry-After": next(wishes)})
        return web.json_response(1)

    step = call(path="/{{p}}", retry={"attempts": 1})
    async with receiver(busy) as api:
        with pytest.raises(CallFailedError, match="answered 429"):
            await runner.run([step], {"p": "busy"}, api.url)
        await runner.run([step], {"p": "calm"}, api.url)
        assert came[1] - came[0] >= 2
        with pytest.raises(CallFailedError, match="answered 429") as failed:
            await runner.run([step], {"p": "busy"}, api.url)
        with pytest.raises(CallFailedError, match="The API asked to be left alone until") as kept_back:
            await runner.run([step], {"p": "calm"}, api.url)
    assert len(came) == 3
    for error in (failed.value, kept_back.value):
        assert error.due == pytest.approx(time.time() + 600, abs=30)


async def test_a_message_seen_before_is_dropped_within_the_window(runner: Runner) -> None:
    step = {"type": "deduplicate", "paths": ["id", "shop"], "seconds": 600}
    first = new_message_id()
    assert await runner.run([step], {"id": 1, "shop": "a"}, message_id=first) != []
    assert await runner.run([step], {"id": 1, "shop": "a"}) == []
    # The same message, read again after a crash, is still the first.
    assert await runner.run([step], {"id": 1, "shop": "a"}, message_id=first) != []
    assert await runner.run([step], {"id": 1, "shop": "b"}) != []
    assert await runner.run([step], {"id": "1", "shop": "a"}) != []
    assert await runner.run([step], {"id": 1}) == [{"id": 1}]
    assert await runner.run([step | {"on_missing": "drop"}], {"id": 1}) == []
    brief = step | {"seconds": 1}
    assert await runner.run([brief], {"id": 2, "shop": "a"}) != []

    async def goes_on_again() -> bool:
        return await runner.run([brief], {"id": 2, "shop": "a"}) != []

    await wait_until_async(goes_on_again)


async def test_of_equal_documents_made_of_one_message_one_goes_on(runner: Runner) -> None:
    steps = [{"type": "split", "path": "items"}, {"type": "deduplicate", "paths": ["items.sku"]}]
    body = {"items": [{"sku": 1}, {"sku": 2}, {"sku": 1}]}
    message_id = new_message_id()
    for _ in range(2):
        made = await runner.run(steps, body, message_id=message_id)
        assert [document["items"]["sku"] for document in made] == [1, 2]
