"""What the driver concludes from a lane task's reports."""

import threading
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
    monkeypatch.setattr(kept_running, "InheritableThread", threading.Thread)  # there is no Spark here
    report = SlotReport(0, 7, WELL | progress)
    stopped = threading.Event()
    channel: Any = SimpleNamespace(stopped=stopped, report=lambda _: report)
    spark: Any = SimpleNamespace(
        setJobGroup=lambda *_: None,
        parallelize=lambda *_: SimpleNamespace(foreachPartition=lambda _: stopped.wait()),
    )
    slot = LaneSlot(spark, "syndicating", 0, lambda _: None, channel)
    if problem:
        with pytest.raises(AssertionError, match=problem):
            assert not slot.problem()
        assert slot.problem().startswith("syndicating[0] ")
    else:
        assert slot.problem() == ""
    stopped.set()
    slot.join()
