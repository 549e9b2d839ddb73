"""Stages run while something needs them, and rest otherwise.

A stage is an entry and its module: a toy of every form in ``tests/stage_toys`` is dropped in beside Headrace's own,
runs, is shown, and does its work; one that is broken is named, and stops no other.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.domain.message import new_message_id
from backend.domain.registry import PLUGINS
from backend.runtime.layout import Layout
from tests.e2e.test_api_calls import Api, asking, people, received
from tests.e2e.test_filters import BR, INDEX, order, published, received_by, subscribed
from tests.infra import PLUGINS_FOLDER, QUICK_INSTALLATION, STAGE_TOYS
from tests.installation import Installation, temporary_installation
from tests.receiver import Receiver
from tests.waiting import SPARK_SECONDS, wait_until

__all__ = ["people"]

PARTITIONS = 2
ON_DEMAND = {
    *("input_batching", "input_streaming", "adapting_transformer", "adapting_slow"),
    *("filtering", "exporter", "collections", "toy_reader"),
}
ALWAYS = {"adapting", "syndicating", "toy_tap", "toy_counter"}
FED = {"toy_shelf"}
"""Gets a message each second from a stage that always runs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stages' own files, which are below the folder that local files may be in."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("plugins")
    for toys in (STAGE_TOYS / "stages", STAGE_TOYS / "jobs", PLUGINS_FOLDER / "connectors"):
        shutil.copytree(toys, made / toys.name)
    return made


@pytest.fixture(scope="module")
def toys(project_layout: Layout, plugins: Path, folder: Path) -> Iterator[Installation]:
    """An installation without pipelines, with a stage of each form, which rest soon."""
    with temporary_installation("stages", project_layout.jars) as installation:
        installation.environment = QUICK_INSTALLATION | {
            PLUGINS: str(plugins),
            "HEADRACE_FILES_ROOT": str(folder),
            "HEADRACE_STAGE_IDLE_SECONDS": "5",
        }
        installation.up()
        for pipeline in installation.api("GET", "pipelines/")[1]["results"]:
            delete(installation, pipeline["id"])
        yield installation


def delete(installation: Installation, pipeline: str) -> None:
    installation.create(f"pipelines/{pipeline}/pause/", {})
    assert installation.api("DELETE", f"pipelines/{pipeline}/")[0] == 204


def job(installation: Installation) -> dict[str, Any]:
    [found] = [one for one in installation.api("GET", "jobs/")[1] if one["name"] == "data-plane"]
    return dict(found)


def stages(installation: Installation) -> dict[str, dict[str, Any]]:
    return {stage["name"]: stage for stage in job(installation)["stages"]}


def in_state(installation: Installation, state: str) -> set[str]:
    return {name for name, stage in stages(installation).items() if stage["state"] == state}


def rests(installation: Installation, *names: str) -> None:
    wait_until(lambda: set(names) <= in_state(installation, "resting"), SPARK_SECONDS, 0.5)


def runs(installation: Installation, name: str, demands: set[str], slots: int) -> bool:
    shown = stages(installation)[name]
    return shown["state"] == "running" and shown["demand"] in demands and shown["slots"] == slots


def shelf(folder: Path) -> set[str]:
    kept = folder / "shelf"
    return set(kept.read_text().splitlines()) if kept.exists() else set()


def test_stages_that_always_run(toys: Installation, folder: Path) -> None:
    def run() -> bool:
        return runs(toys, "toy_tap", {"always"}, PARTITIONS) and runs(toys, "toy_counter", {"always"}, 1)

    wait_until(run, SPARK_SECONDS, 0.5, lambda: job(toys))
    # What the query in short batches writes to the topic of the store wakes it, and is stored.
    wait_until(lambda: {"counted 1", "counted 2"} <= shelf(folder), SPARK_SECONDS, 0.5, lambda: job(toys))
    wait_until(lambda: runs(toys, "toy_shelf", {"messages", "recent"}, 1), SPARK_SECONDS, 0.5, lambda: job(toys))
    wait_until(lambda: job(toys)["problem"] == "", explain=lambda: job(toys))


def test_without_pipelines_only_what_always_runs_does_and_all_is_well(toys: Installation) -> None:
    rests(toys, *ON_DEMAND)
    wait_until(lambda: in_state(toys, "running") == ALWAYS | FED, SPARK_SECONDS, 0.5)
    assert all(stages(toys)[name]["slots"] == 0 for name in ON_DEMAND)
    wait_until(lambda: toys.components()["spark"] == "ok")


def test_a_stage_runs_while_a_published_pipeline_needs_it(toys: Installation, inbox: Receiver) -> None:
    rests(toys, "filtering")
    source = published(toys, {"index": INDEX, "outputs": []})
    subscriber = subscribed(toys, inbox.url, BR)
    wait_until(lambda: stages(toys)["filtering"]["state"] == "running", SPARK_SECONDS)
    needed = stages(toys)["filtering"]
    assert (needed["demand"], needed["pipelines"], needed["slots"]) == ("pipelines", 1, 1)

    def comes() -> bool:
        toys.accepted(source, [order(1, "BR", 1)])
        return 1 in received_by(inbox, BR)

    wait_until(lambda: toys.post(source, order(0, "PT", 1))[0] == 202)
    wait_until(comes, SPARK_SECONDS, 0.5)
    for pipeline in (source, subscriber):
        delete(toys, pipeline)
    rests(toys, "filtering")
    wait_until(lambda: toys.components()["spark"] == "ok")


def test_a_redriven_dead_letter_wakes_its_stage(toys: Installation, people: Api, inbox: Receiver) -> None:
    people.holds = True
    path = "/{{n}}?slow=woken"
    pipeline = asking(toys, people, inbox, path, timeout_seconds=5, retry={"attempts": 1}, breaker={"errors": 100})
    wait_until(lambda: toys.post(pipeline, {"n": 1, "key": 1})[0] == 202)

    def waiting() -> list[dict[str, Any]]:
        letters = toys.api("GET", f"dead-letters/?pipeline={pipeline}")[1]["results"]
        return [letter for letter in letters if letter["state"] == "waiting"]

    wait_until(lambda: len(waiting()) == 1, SPARK_SECONDS)
    shown = toys.api("GET", f"pipelines/{pipeline}/")[1]
    changed = {"name": shown["name"], "config": shown["config"] | {"transforms": []}}
    assert toys.api("PUT", f"pipelines/{pipeline}/", changed)[0] == 200
    toys.create(f"pipelines/{pipeline}/publish/", {})
    rests(toys, "adapting_transformer", "adapting_slow")
    people.holds = False
    [letter] = waiting()
    assert toys.api("POST", "dead-letters/redrive/", {"filter": {"ids": letter["id"]}})[0] == 200
    wait_until(lambda: [message["name"] for message in received(inbox, path)] == ["person 1"], SPARK_SECONDS)
    rests(toys, "adapting_transformer")


def test_a_message_passes_a_query_a_lane_and_a_store(toys: Installation, inbox: Receiver, folder: Path) -> None:
    rests(toys, "toy_shout")
    pipeline = toys.publish_pipeline("Toy stages", inbox.url)
    wait_until(lambda: toys.post(pipeline, {"name": "ana"})[0] == 202)

    def is_shouted() -> bool:
        toys.accepted(pipeline, [{"name": "ana"}])
        return any("ANA" in line for line in shelf(folder)) and runs(toys, "toy_shout", {"messages", "recent"}, 1)

    wait_until(is_shouted, SPARK_SECONDS, 1.0, lambda: job(toys))
    # The message itself went on as ever.
    wait_until(lambda: any(b"ana" in body for body in inbox.bodies))
    assert not any(b"ANA" in body for body in inbox.bodies)
    delete(toys, pipeline)
    rests(toys, "toy_shout")


def test_an_input_is_read_by_a_stage_of_a_plugin(toys: Installation, inbox: Receiver, tmp_path: Path) -> None:
    """It shares the inputs with Headrace's own stage: each batch is read by whichever claims it first."""
    rests(toys, "toy_reader")
    source = tmp_path / "orders"
    source.write_text('{"n": 1}\n')
    named = {"name": f"lines {new_message_id()}", "type": "toy_lines", "connection": {"folder": str(tmp_path)}}
    lines = toys.create("connectors/", named)["id"]
    reading = {"type": "connector", "connector": lines, "options": {"file": "orders"}, "every_seconds": 1}
    pipeline = toys.publish_pipeline("Toy reader", inbox.url, input=reading)
    wait_until(lambda: runs(toys, "toy_reader", {"pipelines"}, 1), SPARK_SECONDS, 0.5, lambda: job(toys))
    assert stages(toys)["toy_reader"]["pipelines"] == 1
    wait_until(lambda: inbox.bodies)

    def has_read() -> bool:
        with source.open("a") as file:
            file.write("nonsense\n")  # its dead letter names the stage that has read it
        return bool(toys.api("GET", f"dead-letters/?pipeline={pipeline}&stage=toy_reader")[1]["results"])

    wait_until(has_read, SPARK_SECONDS, 1.0)
    delete(toys, pipeline)


def test_broken_stages_are_named_and_stop_no_other(
    toys: Installation, plugins: Path, inbox: Receiver, folder: Path
) -> None:
    toys.set_job("stop")
    wait_until(lambda: job(toys)["status"] == "stopped", SPARK_SECONDS, 0.5)
    (plugins / "stages/toy_broken.py").write_text("1 / 0")
    for module in ("toy_counter", "toy_shelf"):
        (plugins / f"jobs/{module}.py").write_text("1 / 0")
    toys.set_job("start")
    said = (
        "The module backend.domain.stages.toy_broken cannot be loaded: ZeroDivisionError: division by zero.",
        "toy_counter cannot be started; the application's log says why.",
        "toy_shelf[0] has failed and was started again",
    )
    pipeline = toys.publish_pipeline("Beside broken stages", inbox.url)
    wait_until(lambda: toys.post(pipeline, {"name": "eva"})[0] == 202)

    def wakes_the_store() -> bool:
        toys.accepted(pipeline, [{"name": "eva"}])
        problem = job(toys)["problem"]
        return all(sentence in problem for sentence in said)

    wait_until(wakes_the_store, SPARK_SECONDS, 1.0, lambda: job(toys))

    def only_these_fail() -> bool:
        states = {name: stage["state"] for name, stage in stages(toys).items()}
        failing = {name for name, state in states.items() if state == "failing"}
        running = {name for name, state in states.items() if state == "running"}
        return failing == {"toy_counter", "toy_shelf"} and {"toy_tap", "adapting", "syndicating"} <= running

    wait_until(only_these_fail, SPARK_SECONDS, 0.5, lambda: job(toys))
    wait_until(lambda: any(b"eva" in body for body in inbox.bodies))
    assert not any("EVA" in line for line in shelf(folder))
    delete(toys, pipeline)
