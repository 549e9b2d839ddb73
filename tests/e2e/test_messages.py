"""Messages through the whole platform: HTTP, Kafka, Spark, receiver."""

import json
import shutil
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from backend.domain.message import new_message_id
from backend.resilience.scripts import LEDGER_HORIZON
from tests.installation import Installation
from tests.receiver import Receiver
from tests.waiting import SPARK_SECONDS, wait_until

MESSAGES = 1000
TRANSFORMS: list[dict[str, Any]] = [
    {"type": "drop_unless", "path": "n", "condition": "less_than", "value": 900},
    {"type": "rename", "path": "user", "to": "customer"},
    {"type": "set", "path": "source", "value": "test"},
]
LANES: list[tuple[str, list[dict[str, Any]]]] = [("untransformed", []), ("transformed", TRANSFORMS)]


def name() -> str:
    return f"Test {new_message_id()}"


def ids(inbox: Receiver) -> Counter[str]:
    return Counter(headers["Headrace-Message-Id"] for headers in inbox.headers)


def order(number: int) -> dict[str, Any]:
    return {"n": number, "user": {"name": "Ana"}}


@pytest.mark.parametrize(("lane", "transforms"), LANES)
def test_a_thousand_messages_each_accounted_for(
    installation: Installation, inbox: Receiver, lane: str, transforms: list[dict[str, Any]]
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url, transforms=transforms)
    wait_until(lambda: installation.post(pipeline, order(901))[0] == 202)
    sent = dict(zip(installation.accepted(pipeline, map(order, range(MESSAGES))), range(MESSAGES), strict=True))
    expected = {message_id: n for message_id, n in sent.items() if not transforms or n < 900}
    extra = 0 if transforms else 1  # the first message, which the transforms drop
    wait_until(lambda: len(inbox.bodies) >= len(expected) + extra)
    delivered = ids(inbox)
    assert {message_id: delivered[message_id] for message_id in expected} == dict.fromkeys(expected, 1)
    assert delivered.total() == len(expected) + extra
    for headers, body in zip(inbox.headers, inbox.bodies, strict=True):
        got = json.loads(body)
        assert ("source" in got) == bool(transforms)
        assert ("customer" in got) == bool(transforms)
        assert sent.get(headers["Headrace-Message-Id"], 901) == got["n"]

    def counts() -> dict[str, int]:
        _, metrics = installation.api("GET", f"pipelines/{pipeline}/metrics/")
        return dict(metrics["last_24_hours"])

    accounted = {"input.accepted": MESSAGES + 1, "output.out.delivered": len(expected) + extra}
    if transforms:
        accounted |= {"adapting.transformed": len(expected), "adapting.dropped": MESSAGES + 1 - len(expected)}
        accounted["step.1.dropped"] = accounted["adapting.dropped"]
    wait_until(lambda: counts() == accounted)


def test_nothing_is_lost_when_the_spark_driver_is_killed(installation: Installation, inbox: Receiver) -> None:
    """Untransformed messages, and transformed ones, which have a customer."""
    pipelines = [installation.publish_pipeline(name(), inbox.url, transforms=steps[1:]) for _, steps in LANES]
    for pipeline in pipelines:
        wait_until(lambda pipeline=pipeline: installation.post(pipeline, order(-1))[0] == 202)  # type: ignore[misc]
    sent: list[str] = []

    def send(pipeline: str) -> None:
        sent.extend(installation.accepted(pipeline, map(order, range(MESSAGES))))

    def delivered() -> tuple[list[int], list[int]]:
        untransformed, transformed = list[int](), list[int]()
        for message in map(json.loads, list(inbox.bodies)):
            (transformed if "customer" in message else untransformed).append(message["n"])
        return untransformed, transformed

    senders = [threading.Thread(target=send, args=(pipeline,), daemon=True) for pipeline in pipelines]
    for sender in senders:
        sender.start()
    wait_until(lambda: all(len(numbers) > MESSAGES // 4 for numbers in delivered()))
    driver = installation.spark()
    assert driver is not None
    for process in [driver, *driver.children(recursive=True)]:
        process.kill()
    for sender in senders:
        sender.join()
    assert len(sent) == 2 * MESSAGES
    wait_until(lambda: set(sent) <= set(ids(inbox)), SPARK_SECONDS)
    wait_until(lambda: installation.components()["spark"] == "ok")
    assert [set(numbers) for numbers in delivered()] == [{-1, *range(MESSAGES)}] * 2
    jobs = installation.api("GET", "jobs/")[1]
    assert jobs[0]["restarts"] >= 1


def test_a_lost_checkpoint_repeats_nothing_that_was_delivered(installation: Installation, inbox: Receiver) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(-1))[0] == 202)
    sent = installation.accepted(pipeline, map(order, range(100)))
    wait_until(lambda: set(sent) <= set(ids(inbox)))
    delivered_at = time.time()
    store = redis.from_url(installation.endpoint("redis"))
    # The workers have seen that the checkpoint and every lane are past all of that.
    wait_until(lambda: float(store.get(LEDGER_HORIZON) or 0) > delivered_at, 300)  # type: ignore[arg-type]
    store.delete(*store.keys("headrace:delivered*"))

    driver = installation.spark()
    assert driver is not None
    for process in [driver, *driver.children(recursive=True)]:
        process.kill()
    shutil.rmtree(installation.var / "spark/checkpoints")
    wait_until(lambda: installation.spark() not in (None, driver))
    wait_until(lambda: installation.components()["spark"] == "ok", SPARK_SECONDS)
    last = installation.accepted(pipeline, [order(100)])[0]
    wait_until(lambda: last in ids(inbox), SPARK_SECONDS)
    assert set(ids(inbox).values()) == {1}
    wait_until(
        lambda: sum(row["deliveries"] for row in installation.api("GET", f"usage/?pipeline={pipeline}")[1]) == 102
    )
    printed = installation.manage_in("usage_reconcile", "--until", f"{datetime.now(UTC) + timedelta(minutes=1)}")
    assert "Usage and deliveries agree." in printed
