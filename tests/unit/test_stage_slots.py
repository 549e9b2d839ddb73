"""Which stages run when there are too few task slots."""

import pytest

from backend.domain.stages import ADAPTING, COLLECTIONS, FILTERING, INPUT_BATCHING, STAGES, STREAM_SQL, SYNDICATING
from spark_jobs.stage_slots import Need, plan

NEEDS = [Need(COLLECTIONS, 1, 4), Need(ADAPTING, 2, 2), Need(SYNDICATING, 1, 4)]


def test_all_run_with_what_they_can_use() -> None:
    assert plan(NEEDS, 10) == {SYNDICATING: 4, ADAPTING: 2, COLLECTIONS: 4}


def test_all_run_before_any_gets_more_than_it_needs() -> None:
    assert plan(NEEDS, 6) == {SYNDICATING: 3, ADAPTING: 2, COLLECTIONS: 1}


@pytest.mark.parametrize(("slots", "running"), [(3, {SYNDICATING: 1, ADAPTING: 2}), (1, {SYNDICATING: 1}), (0, {})])
def test_delivery_goes_on_longest(slots: int, running: dict[object, int]) -> None:
    assert plan(NEEDS, slots) == running


def test_what_cannot_run_leaves_its_slots_to_the_next() -> None:
    assert plan([Need(ADAPTING, 8, 8), Need(FILTERING, 1, 1), Need(INPUT_BATCHING, 1, 1)], 2) == {
        FILTERING: 1,
        INPUT_BATCHING: 1,
    }


def test_every_stage_has_a_priority() -> None:
    every = [*STAGES, STREAM_SQL]
    assert plan([Need(stage, 1, 1) for stage in every], len(every)).keys() == set(every)
