"""What a part of a stage that fails is reported as."""

import logging
import threading

import pytest

from spark_jobs.streaming import kept_running
from spark_jobs.streaming.kept_running import KeptRunning
from tests.waiting import LIMIT_SECONDS


def test_every_member_of_a_workspace_sees_a_problem_so_that_the_exception_is_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept_running, "InheritableThread", threading.Thread)  # there is no Spark here
    stopped, failed_twice = threading.Event(), threading.Event()

    def body() -> None:
        begun.wait()
        if kept.failures == 1:
            failed_twice.set()
            stopped.wait()
        raise ValueError("postgresql://admin@10.0.0.5: another workspace's message")

    with caplog.at_level(logging.ERROR):
        begun = threading.Event()
        kept = KeptRunning("syndicating[0]", body, stopped)
        begun.set()
        assert failed_twice.wait(LIMIT_SECONDS)
        problem = kept.problem()
        stopped.set()
        kept.join()
    assert problem.startswith("syndicating[0] has failed and was started again (1)")
    assert "log" in problem
    assert "10.0.0.5" not in problem
    assert "10.0.0.5" in caplog.text
