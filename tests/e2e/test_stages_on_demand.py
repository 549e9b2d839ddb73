"""Stages run while something needs them, and rest otherwise."""

from collections.abc import Iterator
from typing import Any

import pytest

from backend.runtime.layout import Layout
from tests.e2e.test_api_calls import Api, asking, received
from tests.e2e.test_filters import BR, INDEX, order, published, received_by, subscribed
from tests.infra import QUICK_INSTALLATION
from tests.installation import Installation, temporary_installation
from tests.receiver import Receiver, receiver_in_thread
from tests.waiting import SPARK_SECONDS, wait_until

ON_DEMAND = {
    *("input_batching", "input_streaming", "adapting_transformer", "adapting_slow"),
    *("filtering", "exporter", "collections"),
}
ALWAYS = {"adapting", "syndicating"}


@pytest.fixture(scope="module")
def sparing(project_layout: Layout) -> Iterator[Installation]:
    """An installation without pipelines, whose stages rest soon."""
    with temporary_installation("on-demand", project_layout.jars) as installation:
        installation.environment = QUICK_INSTALLATION | {"HEADRACE_STAGE_IDLE_SECONDS": "5"}
        installation.up()
        for pipeline in installation.api("GET", "pipelines/")[1]["results"]:
            delete(installation, pipeline["id"])
        yield installation


@pytest.fixture
def people() -> Iterator[Api]:
    api = Api()
    with receiver_in_thread(api.answer) as running:
        api.url = running.url
        yield api


def delete(installation: Installation, pipeline: str) -> None:
    installation.create(f"pipelines/{pipeline}/pause/", {})
    assert installation.api("DELETE", f"pipelines/{pipeline}/")[0] == 204


def stages(installation: Installation) -> dict[str, dict[str, Any]]:
    [job] = [one for one in installation.api("GET", "jobs/")[1] if one["name"] == "data-plane"]
    return {stage["name"]: stage for stage in job["stages"]}


def in_state(installation: Installation, state: str) -> set[str]:
    return {name for name, stage in stages(installation).items() if stage["state"] == state}


def rests(installation: Installation, *names: str) -> None:
    wait_until(lambda: set(names) <= in_state(installation, "resting"), SPARK_SECONDS, 0.5)


def test_without_pipelines_only_what_always_runs_does_and_all_is_well(sparing: Installation) -> None:
    rests(sparing, *ON_DEMAND)
    wait_until(lambda: in_state(sparing, "running") == ALWAYS)
    assert all(stages(sparing)[name]["slots"] == 0 for name in ON_DEMAND)
    wait_until(lambda: sparing.components()["spark"] == "ok")


def test_a_stage_runs_while_a_published_pipeline_needs_it(sparing: Installation, inbox: Receiver) -> None:
    rests(sparing, "filtering")
    source = published(sparing, {"index": INDEX, "outputs": []})
    subscriber = subscribed(sparing, inbox.url, BR)
    wait_until(lambda: stages(sparing)["filtering"]["state"] == "running", SPARK_SECONDS)
    needed = stages(sparing)["filtering"]
    assert (needed["demand"], needed["pipelines"], needed["slots"]) == ("pipelines", 1, 1)

    def comes() -> bool:
        sparing.accepted(source, [order(1, "BR", 1)])
        return 1 in received_by(inbox, BR)

    wait_until(lambda: sparing.post(source, order(0, "PT", 1))[0] == 202)
    wait_until(comes, SPARK_SECONDS, 0.5)
    for pipeline in (source, subscriber):
        delete(sparing, pipeline)
    rests(sparing, "filtering")
    wait_until(lambda: sparing.components()["spark"] == "ok")


def test_a_redriven_dead_letter_wakes_its_stage(sparing: Installation, people: Api, inbox: Receiver) -> None:
    people.holds = True
    path = "/{{n}}?slow=woken"
    pipeline = asking(sparing, people, inbox, path, timeout_seconds=5, retry={"attempts": 1}, breaker={"errors": 100})
    wait_until(lambda: sparing.post(pipeline, {"n": 1, "key": 1})[0] == 202)

    def waiting() -> list[dict[str, Any]]:
        letters = sparing.api("GET", f"dead-letters/?pipeline={pipeline}")[1]["results"]
        return [letter for letter in letters if letter["state"] == "waiting"]

    wait_until(lambda: len(waiting()) == 1, SPARK_SECONDS)
    shown = sparing.api("GET", f"pipelines/{pipeline}/")[1]
    changed = {"name": shown["name"], "config": shown["config"] | {"transforms": []}}
    assert sparing.api("PUT", f"pipelines/{pipeline}/", changed)[0] == 200
    sparing.create(f"pipelines/{pipeline}/publish/", {})
    rests(sparing, "adapting_transformer", "adapting_slow")
    people.holds = False
    [letter] = waiting()
    assert sparing.api("POST", "dead-letters/redrive/", {"filter": {"ids": letter["id"]}})[0] == 200
    wait_until(lambda: [message["name"] for message in received(inbox, path)] == ["person 1"], SPARK_SECONDS)
    rests(sparing, "adapting_transformer")
