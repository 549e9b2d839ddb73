"""What the driver concludes from a lane task's reports."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.streaming import kept_running
from spark_jobs.streaming.kept_running import LaneSlot
from spark_jobs.streaming.stop_channel import SlotReport

WELL = {"polled": 0.2, "committing": 0.1, "held_back": 0.0, "oldest": 0.5, "losses": []}


@pytest.mark.parametrize(
    ("progress", "problem"),
    [
        ({}, ""),
        ({"held_back": 20.0, "oldest": 55.0}, ""),
        ({"oldest": 3000.0}, ""),
        ({"held_back": 70.0, "oldest": 90.0}, "has read nothing for 70 s: .* the oldest .* 90 s ago"),
        ({"oldest": 4000.0}, "4000 s"),
        ({"committing": 70.0}, "has waited 70 s for a transaction"),
        ({"polled": 40.0}, "has read nothing for 40 s"),
        ({"turned": 40.0}, "has been at the same step for 40 s"),
    ],
)
def test_a_lane_without_progress_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, progress: dict[str, Any], problem: str
) -> None:
    with running(monkeypatch, [SlotReport(0, 7, WELL | progress)]) as slot:
        if problem:
            with pytest.raises(AssertionError, match=problem):
                assert not slot.problem()
            assert slot.problem().startswith("syndicating[0] ")
        else:
            assert slot.problem() == ""


def test_a_hung_task_is_killed_and_reported_until_its_successor_has_run_well(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    reports = [SlotReport(0, 7, WELL, received=now - 21)]
    with running(monkeypatch, reports) as slot:
        monkeypatch.setattr(kept_running.time, "monotonic", lambda: now)
        assert slot.problem() == "syndicating[0] is hung: it has reported no progress for 21 s."
        now += 59
        reports[0] = SlotReport(0, 8, WELL, received=now)
        assert "syndicating[0] was hung and was started again" in slot.problem()
        now += 2
        assert slot.problem() == ""


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch, reports: list[SlotReport]) -> Iterator[LaneSlot]:
    """A slot whose task reports the first of these."""
    monkeypatch.setattr(kept_running, "InheritableThread", threading.Thread)  # there is no Spark here
    stopped = threading.Event()
    channel: Any = SimpleNamespace(stopped=stopped, report=lambda _: reports[0])
    spark: Any = SimpleNamespace(
        setJobGroup=lambda *_: None,
        parallelize=lambda *_: SimpleNamespace(foreachPartition=lambda _: stopped.wait()),
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(killTaskAttempt=lambda *_: True)),
    )
    slot = LaneSlot(spark, "syndicating", 0, lambda _: None, channel)
    yield slot
    stopped.set()
    slot.join()
