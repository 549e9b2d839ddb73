"""Servers stopped while the platform runs: it reports which, and recovers automatically."""

import time
from typing import Any

import pytest

from tests.e2e.test_messages import ids, name, order
from tests.installation import Installation
from tests.receiver import Receiver
from tests.waiting import wait_until


def test_without_kafka_the_input_refuses_and_goes_on_when_it_is_back(
    installation: Installation, inbox: Receiver
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    sent = installation.accepted(pipeline, map(order, range(50)))
    installation.supervisor.stop_process("kafka")
    wait_until(lambda: installation.components()["kafka"] != "ok")
    assert "Kafka" in installation.components()["kafka"]
    status, problem = installation.post(pipeline, order(1))
    assert status == 503, problem
    assert "Kafka" in problem["detail"]
    installation.supervisor.start_process("kafka")
    wait_until(lambda: installation.post(pipeline, order(2))[0] == 202)
    sent += installation.accepted(pipeline, map(order, range(50)))
    wait_until(lambda: set(sent) <= set(ids(inbox)), 120)
    wait_until(lambda: set(installation.components().values()) == {"ok"})


@pytest.mark.parametrize("server", ["redis", "postgresql"])
def test_without_redis_or_postgresql_messages_still_flow(
    installation: Installation, inbox: Receiver, server: str
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    wait_until(lambda: len(inbox.bodies) == 1)
    installation.supervisor.stop_process(server)
    wait_until(lambda: installation.components()[server] != "ok")
    sent = installation.accepted(pipeline, map(order, range(50)))
    wait_until(lambda: set(sent) <= set(ids(inbox)))
    if server == "postgresql":
        status, problem = installation.api("GET", "pipelines/")
        assert status == 503
        assert problem["title"] == "PostgreSQL is unavailable"
    time.sleep(1)
    installation.supervisor.start_process(server)
    wait_until(lambda: set(installation.components().values()) == {"ok"})
    sent += installation.accepted(pipeline, map(order, range(50)))
    wait_until(lambda: set(sent) <= set(ids(inbox)))

    def delivered() -> int:
        _, metrics = installation.api("GET", f"pipelines/{pipeline}/metrics/")
        return int(metrics["last_24_hours"].get("output.out.delivered", 0))

    wait_until(lambda: delivered() == len(sent) + 1)


def test_a_stop_and_start_keeps_everything(installation: Installation, inbox: Receiver) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
    sent = installation.accepted(pipeline, map(order, range(100)))

    def kept() -> list[dict[str, Any]]:
        """Without how each pipeline is at the moment."""
        return [
            {name: value for name, value in one.items() if name != "status"}
            for one in installation.api("GET", "pipelines/")[1]["results"]
        ]

    before = kept()
    installation.down()
    assert installation.spark() is None
    installation.up()
    assert kept() == before
    sent += installation.accepted(pipeline, map(order, range(100)))
    wait_until(lambda: set(sent) <= set(ids(inbox)))
    assert max(ids(inbox).values()) == 1  # a clean stop delivers nothing twice
