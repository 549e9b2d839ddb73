"""What the real-time query's positions tell about it."""

import pytest

from backend.domain import routing
from backend.domain.stages import ADAPTING
from backend.kafka.client.ends import is_loss
from backend.settings import KafkaSettings
from spark_jobs.jobs import adapting
from spark_jobs.jobs.adapting import Observer


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(adapting.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def observer() -> Observer:
    return Observer(KafkaSettings(bootstrap_servers="127.0.0.1:1"), 30, lambda loss: None)


def test_a_partition_that_a_whole_batch_did_not_read_starves(observer: Observer, clock: Clock) -> None:
    observer.compare(1, {0: 10, 1: 20}, {0: 15, 1: 25})
    assert observer.problem == ""  # what came within the batch is read by the next one
    observer.compare(2, {0: 15, 1: 20}, {0: 30, 1: 25})
    assert f"{ADAPTING.name} does not read partition 1 " in observer.problem
    observer.compare(3, {0: 30, 1: 25}, {0: 30, 1: 25})
    assert observer.problem == ""


def test_a_partition_that_was_added_and_has_no_slot_starves(observer: Observer, clock: Clock) -> None:
    observer.compare(1, {0: 10}, {0: 10, 1: 5})
    observer.compare(2, {0: 10}, {0: 10, 1: 5})
    assert "partition 1 " in observer.problem


def test_a_batch_that_does_not_end_is_a_problem_only_while_messages_wait(observer: Observer, clock: Clock) -> None:
    observer.compare(1, {0: 10}, {0: 10})
    clock.now += 3600  # nothing to read for an hour
    observer.compare(1, {0: 10}, {0: 11})
    assert observer.problem == ""
    clock.now += 40
    observer.compare(1, {0: 10}, {0: 11})
    assert observer.problem == ""
    clock.now += 10
    observer.compare(1, {0: 10}, {0: 11})
    assert "has ended no batch for 50 s" in observer.problem
    observer.compare(2, {0: 11}, {0: 11})
    assert observer.problem == ""
    assert not observer.is_stuck


def test_neighbours_5_a_batch_that_never_ends_is_stuck_and_a_new_query_is_not(
    observer: Observer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer.compare(1, {0: 10}, {0: 11})
    clock.now += 61
    observer.compare(1, {0: 10}, {0: 11})
    assert observer.is_stuck
    for name, offset in (("first_offsets", 0), ("end_offsets", 11)):
        monkeypatch.setattr(adapting, name, lambda *_, offset=offset: {(routing.INPUT, 0): offset})
    assert observer.starts({0: 10}) == {0: 10}
    assert not observer.is_stuck


def test_markers_of_transactions_are_no_loss() -> None:
    assert is_loss(100, 200)
    assert not is_loss(100, 102)
    assert not is_loss(-1001, 200)  # nothing was ever read
