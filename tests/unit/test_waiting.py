"""A wait looks less often the longer it lasts."""

from types import SimpleNamespace

import pytest

from tests import waiting


def test_a_long_wait_takes_little_of_the_time_of_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def is_over() -> bool:
        nonlocal looks
        looks += 1
        return now >= 60

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    waiting.wait_until(is_over)
    assert now < 61
    assert looks < 150  # each twentieth of a second they would be 1,200
