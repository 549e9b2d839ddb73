"""Everything is killed or restarted while messages flow to receivers that fail, hang and are slow:
nothing is lost, a repeat keeps its id, and each delivery is billed once."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import pytest
from aiohttp import web

from tests.installation import Installation, call
from tests.receiver import Receiver, receiver_in_thread
from tests.waiting import wait_until

BATCH = 20
PAUSE = 0.1
"""Between two batches: slow enough that every fault falls into the middle of the stream."""

QUIET = {"errors": 10, "window_seconds": 10, "open_seconds": 5}
RETRY = {"attempts": 3, "initial_seconds": 0.1}


async def failing(_: web.Request) -> web.Response:
    """Every twentieth request fails, and for five of every 25 seconds all do."""
    down = time.time() % 25 < 5 or random.random() < 0.05
    return web.Response(status=503 if down else 200)


async def hanging(_: web.Request) -> web.Response:
    if random.random() < 0.01:
        await asyncio.sleep(5)
    return web.Response()


async def slow(_: web.Request) -> web.Response:
    await asyncio.sleep(0.05)
    return web.Response()


RECEIVERS = {"failing": failing, "hanging": hanging, "slow": slow}


class Sender:
    """Posts numbered messages in batches; a rejected batch is posted again until it is accepted."""

    def __init__(self, installation: Installation, pipelines: list[str], messages: int) -> None:
        self._installation = installation
        self._pipelines = pipelines
        self._messages = messages
        self.accepted = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> None:
        self._thread.join(300)
        assert self.accepted == self._messages

    def _run(self) -> None:
        url = f"{self._installation.endpoint('ingest')}/v1/pipelines/%s/messages"
        key = self._installation.facts["demo"]["api_key"]
        for index, first in enumerate(range(0, self._messages, BATCH)):
            lines = "\n".join(json.dumps({"n": number}) for number in range(first, first + BATCH))
            pipeline = self._pipelines[index % len(self._pipelines)]
            while call("POST", url % pipeline, lines.encode(), key, "application/x-ndjson")[0] != 202:
                time.sleep(0.2)
            self.accepted += BATCH
            time.sleep(PAUSE)


def kill_process(installation: Installation, name: str) -> None:
    [pid] = [process["pid"] for process in installation.supervisor.processes() if process["name"] == name]
    psutil.Process(pid).kill()


def kill_lanes(installation: Installation) -> None:
    """The Python workers of Spark's executor, and with them whatever lane task they run."""
    driver = installation.spark()
    assert driver is not None
    for process in driver.children(recursive=True):
        with suppress(psutil.Error):  # it may be ending already
            if "pyspark.daemon" in " ".join(process.cmdline()):
                process.kill()


def kill_spark(installation: Installation) -> None:
    driver = installation.spark()
    assert driver is not None
    for process in [driver, *driver.children(recursive=True)]:
        process.kill()


def restart(name: str) -> Callable[[Installation], None]:
    def act(installation: Installation) -> None:
        installation.supervisor.stop_process(name)
        installation.supervisor.start_process(name)

    return act


FAULTS: list[Callable[[Installation], None]] = [
    kill_lanes,
    restart("redis"),
    lambda installation: kill_process(installation, "workers"),
    restart("postgresql"),
    restart("kafka"),
    kill_spark,
]


def published(installation: Installation, name: str, url: str) -> str:
    connector = installation.create(
        "connectors/", {"name": f"Chaos {name}", "type": "http", "connection": {"url": url}}
    )
    output = {"name": name, "connector": connector["id"], "breaker": QUIET, "retry": RETRY, "timeout_seconds": 1}
    pipeline = installation.create("pipelines/", {"name": f"Chaos {name}", "config": {"outputs": [output]}})
    installation.create(f"pipelines/{pipeline['id']}/publish/", {})
    return str(pipeline["id"])


def numbers_and_ids(received: Receiver) -> dict[str, set[int]]:
    """The numbers received under each message id."""
    numbers: dict[str, set[int]] = {}
    for headers, body in zip(list(received.headers), list(received.bodies), strict=False):
        numbers.setdefault(headers["Headrace-Message-Id"], set()).add(json.loads(body)["n"])
    return numbers


def usage_of(installation: Installation, pipeline: str) -> int:
    status, rows = installation.api("GET", f"usage/?step=day&pipeline={pipeline}")
    return sum(row["deliveries"] for row in rows) if status == 200 else -1


def unsettled(
    installation: Installation, received: dict[str, Receiver], pipelines: dict[str, str], messages: int
) -> dict[str, Any]:
    """What these pipelines have not settled yet. Waiting dead letters are redriven: breakers and bulkheads held
    them back.

    A message that was received but rejected is in flight, in no list, until it is billed.
    """
    installation.api("POST", "dead-letters/redrive/", {"filter": {"state": "waiting"}})
    left: dict[str, Any] = {}
    for state in ("waiting", "redelivering"):
        status, groups = installation.api("GET", f"dead-letters/summary/?state={state}")
        own = groups if status != 200 else [group for group in groups if group["pipeline"] in pipelines.values()]
        if own:
            left[state] = own
    ids = {name: numbers_and_ids(inbox) for name, inbox in received.items()}
    got = {n for by_id in ids.values() for numbers in by_id.values() for n in numbers}
    if missing := set(range(messages)) - got:
        left["missing"] = len(missing), sorted(missing)[:10]
    for name, by_id in ids.items():
        if (billed := usage_of(installation, pipelines[name])) != len(by_id):
            left[f"{name} (received, billed)"] = len(by_id), billed
    return left


def test_nothing_is_lost_doubled_or_unbilled_whatever_is_killed(installation: Installation) -> None:
    kill_while_messages_flow(installation, 2_100)


@pytest.mark.long
def test_nothing_is_lost_doubled_or_unbilled_in_a_long_stream(installation: Installation) -> None:
    kill_while_messages_flow(installation, 10_000)


def kill_while_messages_flow(installation: Installation, messages: int) -> None:
    began = datetime.now(UTC) - timedelta(minutes=1)
    with ExitStack() as stack:
        received = {name: stack.enter_context(receiver_in_thread(answer)) for name, answer in RECEIVERS.items()}
        pipelines = {name: published(installation, name, inbox.url) for name, inbox in received.items()}
        wait_until(lambda: all(installation.post(id, {"n": -1})[0] == 202 for id in pipelines.values()))
        sender = Sender(installation, list(pipelines.values()), messages)
        sender.start()
        for index, fault in enumerate(FAULTS, 1):
            wait_until(lambda index=index: sender.accepted >= index * messages // (len(FAULTS) + 1), 180)  # type: ignore[misc]
            fault(installation)
        sender.wait()
        wait_until(lambda: set(installation.components().values()) == {"ok"}, 90)

        deadline = time.monotonic() + 180
        while left := unsettled(installation, received, pipelines, messages):
            assert time.monotonic() < deadline, left
            time.sleep(1)
        for inbox in received.values():
            assert all(len(numbers) == 1 for numbers in numbers_and_ids(inbox).values())  # a repeat keeps its id
    until = datetime.now(UTC) + timedelta(minutes=1)
    printed = installation.manage_in("usage_reconcile", "--since", began.isoformat(), "--until", until.isoformat())
    assert "Usage and deliveries agree." in printed
