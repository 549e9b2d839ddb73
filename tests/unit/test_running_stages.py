"""Which stages the driver starts and stops, without Spark."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.domain.stages import (
    ADAPTING,
    ADAPTING_TRANSFORMER,
    COLLECTIONS,
    FILTERING,
    SYNDICATING,
    Stage,
)
from backend.settings import Settings
from spark_jobs import running_stages
from spark_jobs.running_stage import RunningStage
from spark_jobs.running_stages import Options, RunningStages
from spark_jobs.stage_demand import StageDemand
from tests.waiting import wait_until

STAGES = (ADAPTING, ADAPTING_TRANSFORMER, FILTERING, SYNDICATING, COLLECTIONS)
PARTITIONS = 2
IDLE_SECONDS = 600.0
RUN, REST, WAIT = "running", "resting", "waiting"


class Application:
    """The stages with everything around them that is not decided here."""

    def __init__(self, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.problems: dict[Stage, str] = {}
        self.broken: set[Stage] = set()
        """Those that cannot be started."""
        self.sent: dict[str, Any] = {}
        self.problem = ""
        self.context = SimpleNamespace(defaultParallelism=slots, master="local[9]")
        self.reporter = SimpleNamespace(demands=None, send=self._send)
        self.found: dict[Stage, bool] = dict.fromkeys(STAGES, False)
        monkeypatch.setattr(running_stages, "_partitions", lambda *_: PARTITIONS)
        monkeypatch.setattr(running_stages, "time", SimpleNamespace(monotonic=lambda: self.now))
        spark = SimpleNamespace(sparkContext=self.context)
        self.stages = RunningStages(cast(Any, spark), Settings(), STAGES, Options(1, "", 30), cast(Any, self.reporter))
        demand = StageDemand(STAGES, idle_seconds=IDLE_SECONDS, clock=lambda: self.now)
        watch = SimpleNamespace(found=self.found, start=lambda: None, stop=lambda: None, watch=lambda _: None)
        monkeypatch.setattr(self.stages, "_demand", demand)
        monkeypatch.setattr(self.stages, "_unhandled", watch)
        monkeypatch.setattr(self.stages, "_start", self._start)

    def need(self, *stages: Stage) -> None:
        """What the manager says from now on."""
        self.reporter.demands = {stage.name: "pipelines" for stage in stages}

    def states(self) -> dict[str, str]:
        self.stages.adjust()
        self.stages.report("running")
        return {name: str(beat["state"]) for name, beat in self.sent.items()}

    def _start(self, stage: Stage, slots: int) -> RunningStage:
        if stage in self.broken:
            raise RuntimeError(stage.name)
        return RunningStage(lambda: self.problems.get(stage, ""), dict, lambda: None)

    def _send(self, state: str, stages: dict[str, Any], problem: str) -> None:
        self.sent, self.problem = stages, problem


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    made = Application(6, monkeypatch)
    yield made
    made.stages.stop()


def states(**others: str) -> dict[str, str]:
    return dict.fromkeys((stage.name for stage in STAGES), REST) | {"adapting": RUN, "syndicating": RUN} | others


def test_without_an_answer_of_the_manager_everything_runs(application: Application) -> None:
    application.stages.start()
    assert set(application.states().values()) == {RUN}
    assert application.sent["adapting"] == {"state": RUN, "demand": "always", "slots": PARTITIONS}


def test_what_nothing_needs_rests_and_is_no_problem(application: Application) -> None:
    application.need()
    application.stages.start()
    assert application.states() == states()
    assert application.problem == ""
    assert application.sent["filtering"] == {"state": REST, "demand": "none", "slots": 0}


def test_a_stage_starts_as_soon_as_it_is_needed_and_rests_later(application: Application) -> None:
    application.need()
    application.stages.start()
    application.need(FILTERING)
    assert application.states() == states(filtering=RUN)
    application.need()
    application.now += IDLE_SECONDS - 1
    assert application.states() == states(filtering=RUN)
    assert application.sent["filtering"]["demand"] == "recent"
    application.now += 1
    wait_until(lambda: application.states() == states())


def test_messages_that_wait_wake_a_stage(application: Application) -> None:
    application.need()
    application.stages.start()
    application.found[COLLECTIONS] = True
    assert application.states() == states(collections=RUN)
    assert application.sent["collections"]["demand"] == "messages"


def test_what_rests_leaves_its_slots_to_others(application: Application) -> None:
    application.context.defaultParallelism = 4
    application.need(FILTERING)
    application.stages.start()
    assert application.states() == states(filtering=RUN)
    application.need(FILTERING, COLLECTIONS)
    assert application.states() == states(filtering=RUN, collections=WAIT)
    assert "too few task slots for collections" in application.problem


def test_a_change_of_the_number_of_slots_counts_once_it_has_lasted(application: Application) -> None:
    application.need()
    application.stages.start()
    application.context.defaultParallelism = 1
    assert application.states() == states()
    application.now += 31
    application.states()
    wait_until(lambda: application.states() == states(adapting=WAIT))


def test_a_problem_of_a_stage_is_a_problem_of_the_application(application: Application) -> None:
    application.stages.start()
    application.problems[FILTERING] = "filtering[0] is hung."
    assert application.states()["filtering"] == "failing"
    assert application.problem == "filtering[0] is hung."


def test_stages_of_an_application_that_ends_are_stopped(application: Application) -> None:
    application.stages.start()
    application.stages.stop()
    wait_until(lambda: application.stages.ended(0.1))
    application.stages.report("stopped")
    assert {beat["state"] for beat in application.sent.values()} == {"stopped"}
    assert application.problem == ""


def test_a_stage_that_cannot_be_started_stops_no_other_and_is_tried_again(application: Application) -> None:
    application.need(FILTERING)
    application.broken = {FILTERING}
    application.stages.start()
    states = application.states()
    assert (states["filtering"], states["syndicating"]) == ("failing", RUN)
    assert "filtering cannot be started" in application.problem
    application.broken = set()
    assert application.states()["filtering"] == "failing"
    application.now += 31
    assert application.states()["filtering"] == RUN
    assert application.problem == ""


def test_a_stage_that_could_not_be_started_rests_once_nothing_needs_it(application: Application) -> None:
    application.need(FILTERING)
    application.broken = {FILTERING}
    application.stages.start()
    application.need()
    application.now += IDLE_SECONDS + 1
    application.states()
    application.now += IDLE_SECONDS + 1
    assert application.states()["filtering"] == REST
