"""Steps that wait for external APIs, on Spark: a slow one holds back its own pipeline only."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.test_filters import published
from tests.e2e.test_messages import name
from tests.installation import Installation
from tests.receiver import Receiver, receiver_in_thread
from tests.waiting import wait_until

MANY = 300


class Api:
    """Answers at once, or holds every request until it is let go."""

    def __init__(self) -> None:
        self.holds = False
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        while self.holds and request.query.get("slow"):
            await asyncio.sleep(0.05)
        return web.json_response({"name": f"person {request.path.removeprefix('/')}"})


@pytest.fixture
def people() -> Iterator[Api]:
    api = Api()
    with receiver_in_thread(api.answer) as running:
        api.url = running.url
        yield api


def asking(installation: Installation, people: Api, inbox: Receiver, path: str, **step: Any) -> str:
    """A pipeline that calls the API for each message; messages with the same ``key`` are in order."""
    api, out = (
        installation.create("connectors/", {"name": name(), "type": "http", "connection": {"url": url}})
        for url in (people.url, inbox.url)
    )
    call = {
        "type": "call",
        "connector": api["id"],
        "options": {"path": path},
        "mapping": {"name": "name"},
        **step,
    }
    output = {"name": "out", "connector": out["id"], "options": {"headers": {"X-Path": _tag(path)}}}
    return published(
        installation, {"input": {"type": "http", "ordering_key": "key"}, "transforms": [call], "outputs": [output]}
    )


def received(inbox: Receiver, path: str) -> list[dict[str, Any]]:
    pairs = zip(list(inbox.headers), list(inbox.bodies), strict=False)
    return [json.loads(body) for headers, body in pairs if headers.get("X-Path") == _tag(path)]


def _tag(path: str) -> str:
    """The path without placeholders, which headers of outputs would replace."""
    return path.replace("{{n}}", "n")


def accepted(installation: Installation, pipeline: str, messages: list[dict[str, Any]]) -> None:
    wait_until(lambda: installation.post(pipeline, {"probe": True})[0] == 202)
    installation.accepted(pipeline, messages)


def test_a_slow_api_holds_back_its_own_pipeline_only(installation: Installation, people: Api, inbox: Receiver) -> None:
    slow_path, quick_path = "/{{n}}?slow=1", "/{{n}}?quick=1"
    patient = {"timeout_seconds": 60, "on_failure": "skip", "breaker": {"errors": 1000}}
    slow = asking(installation, people, inbox, slow_path, **patient)
    quick = asking(installation, people, inbox, quick_path, on_failure="skip")
    people.holds = True
    accepted(installation, slow, [{"n": n, "key": n % 7} for n in range(MANY)])
    accepted(installation, quick, [{"n": n, "key": n} for n in range(20)])

    def numbers(path: str) -> list[int]:
        return [message["n"] for message in received(inbox, path) if "n" in message]

    wait_until(lambda: sorted(numbers(quick_path)) == list(range(20)))
    assert numbers(slow_path) == []
    people.holds = False
    wait_until(lambda: len(numbers(slow_path)) >= MANY)
    arrived = numbers(slow_path)
    assert sorted(arrived) == list(range(MANY))
    for key in range(7):
        of_one = [n for n in arrived if n % 7 == key]
        assert of_one == sorted(of_one)
    assert all(m["name"] == f"person {m['n']}" for m in received(inbox, slow_path) if "n" in m)

    def diverted() -> int:
        counts = installation.api("GET", f"pipelines/{slow}/metrics/")[1]["last_24_hours"]
        return int(counts["adapting.diverted"])

    wait_until(lambda: diverted() >= MANY - 110)

    def goes_the_usual_way() -> bool:
        before, delivered = diverted(), len(numbers(slow_path))
        installation.accepted(slow, [{"n": MANY, "key": key} for key in range(7)])
        wait_until(lambda: len(numbers(slow_path)) == delivered + 7)
        return diverted() == before

    # Once the slow lane is empty.
    wait_until(goes_the_usual_way)


def test_a_message_without_an_answer_waits_as_a_dead_letter_and_is_sent_again(
    installation: Installation, people: Api, inbox: Receiver
) -> None:
    people.holds = True
    path = "/{{n}}?slow=again"
    retry = {"attempts": 1}
    pipeline = asking(installation, people, inbox, path, timeout_seconds=5, retry=retry, breaker={"errors": 100})
    wait_until(lambda: installation.post(pipeline, {"n": 1, "key": 1})[0] == 202)

    def waiting() -> list[dict[str, Any]]:
        letters = installation.api("GET", f"dead-letters/?pipeline={pipeline}")[1]["results"]
        return [letter for letter in letters if letter["state"] == "waiting"]

    wait_until(lambda: len(waiting()) == 1)
    [letter] = waiting()
    assert letter["reason"] == "call_failed"
    assert letter["error"] == "Step 1 (call): The API gave no answer within 5 seconds."
    people.holds = False
    status, _ = installation.api("POST", "dead-letters/redrive/", {"filter": {"ids": letter["id"]}})
    assert status == 200
    wait_until(lambda: [m["name"] for m in received(inbox, path)] == ["person 1"])
