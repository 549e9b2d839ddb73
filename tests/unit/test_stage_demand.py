"""Which stages run, by what the manager says and what waits for them."""

from backend.domain.demand import Demand
from backend.domain.stages import (
    ADAPTING,
    EXPORTER,
    FILTERING,
    INPUT_BATCHING,
    STREAM_SQL,
    SYNDICATING,
    Application,
    Stage,
    stages_in,
)
from spark_jobs.stage_demand import StageDemand

IDLE_SECONDS = 600.0
ALWAYS = {ADAPTING: "always", SYNDICATING: "always"}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(clock: Clock, *stages: Stage) -> StageDemand:
    chosen = stages or stages_in(Application.DATA_PLANE)
    return StageDemand(chosen, idle_seconds=IDLE_SECONDS, clock=clock)


def nothing_waits(demand: StageDemand) -> dict[Stage, bool]:
    return dict.fromkeys(demand.unneeded({}), False)


def test_everything_is_wanted_until_the_manager_has_answered() -> None:
    demand = made(Clock())
    assert demand.unneeded(None) == set()
    wanted = demand.wanted(None, {})
    assert wanted.keys() == set(stages_in(Application.DATA_PLANE))
    assert wanted[ADAPTING] == Demand.ALWAYS
    assert wanted[FILTERING] == Demand.UNKNOWN


def test_what_nothing_needs_does_not_even_start() -> None:
    demand = made(Clock())
    assert demand.wanted({}, {}) == ALWAYS  # whether messages wait is not known yet
    assert demand.wanted({}, nothing_waits(demand)) == ALWAYS


def test_queries_run_as_long_as_their_application() -> None:
    assert made(Clock(), STREAM_SQL).wanted({}, {}) == {STREAM_SQL: Demand.ALWAYS}


def test_a_stage_runs_at_once_when_it_is_needed_and_rests_a_while_after_it_was() -> None:
    clock = Clock()
    demand = made(clock)
    needed = {"filtering": "pipelines", "input_batching": "pipelines", "exporter": "files"}
    assert demand.wanted(needed, nothing_waits(demand)) == ALWAYS | {
        FILTERING: "pipelines",
        INPUT_BATCHING: "pipelines",
        EXPORTER: "files",
    }
    clock.now += IDLE_SECONDS * 2  # needed all the time
    demand.wanted(needed, nothing_waits(demand))
    clock.now += IDLE_SECONDS - 1
    assert demand.wanted({}, nothing_waits(demand)) == ALWAYS | dict.fromkeys(
        (FILTERING, INPUT_BATCHING, EXPORTER), Demand.RECENT
    )
    clock.now += 1
    assert demand.wanted({}, nothing_waits(demand)) == ALWAYS


def test_messages_that_wait_wake_a_stage_and_keep_it_running() -> None:
    clock = Clock()
    demand = made(clock)
    assert FILTERING in demand.unneeded({})
    assert demand.wanted({}, nothing_waits(demand) | {FILTERING: True})[FILTERING] == Demand.MESSAGES
    clock.now += IDLE_SECONDS - 1
    assert demand.wanted({}, nothing_waits(demand) | {FILTERING: True})[FILTERING] == Demand.MESSAGES
    clock.now += IDLE_SECONDS - 1
    assert demand.wanted({}, nothing_waits(demand))[FILTERING] == Demand.RECENT
    clock.now += 1
    assert FILTERING not in demand.wanted({}, nothing_waits(demand))


def test_a_stage_stays_as_it_is_while_kafka_cannot_be_asked() -> None:
    clock = Clock()
    demand = made(clock)
    demand.wanted({"filtering": "pipelines"}, {})
    clock.now += IDLE_SECONDS * 10
    assert demand.wanted({}, {}) == ALWAYS | {FILTERING: Demand.RECENT}
    assert demand.wanted({}, nothing_waits(demand)) == ALWAYS


def test_an_input_has_no_topic_to_look_at() -> None:
    clock = Clock()
    demand = made(clock, INPUT_BATCHING)
    assert demand.unneeded({}) == set()
    demand.wanted({"input_batching": "pipelines"}, {})
    clock.now += IDLE_SECONDS
    assert demand.wanted({}, {}) == {}
