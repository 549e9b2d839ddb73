"""Which stages run when there are too few task slots."""

import pytest

from backend.domain.stages import (
    ADAPTING,
    COLLECTIONS,
    FILTERING,
    INPUT_BATCHING,
    STAGES,
    STREAM_SQL,
    SYNDICATING,
    Application,
    stages_in,
    task_slots,
)
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


def test_no_two_stages_of_an_application_have_the_same_priority() -> None:
    for application in Application:
        priorities = [stage.priority for stage in stages_in(application)]
        assert len(priorities) == len(set(priorities))
    assert {stage for application in Application for stage in stages_in(application)} == set(STAGES)


def test_what_was_accepted_comes_before_what_has_still_to_be_read() -> None:
    by_priority = sorted(stages_in(Application.DATA_PLANE), key=lambda stage: stage.priority)
    assert [stage.name for stage in by_priority] == [
        *("syndicating", "adapting", "adapting_transformer", "filtering", "adapting_slow"),
        *("collections", "exporter", "input_streaming", "input_batching"),
    ]


def test_a_query_uses_a_slot_per_partition_and_others_one_per_task() -> None:
    assert task_slots(ADAPTING, partitions=6, lane_slots=2) == 6
    assert task_slots(SYNDICATING, partitions=6, lane_slots=2) == 2
    assert task_slots(COLLECTIONS, partitions=6, lane_slots=2) == 2
    assert task_slots(STREAM_SQL, partitions=0, lane_slots=1) > 1
