"""How many messages wait, told by counts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from backend.apps.monitoring import history
from backend.apps.monitoring.selectors import _LastWaiting, ask_backlog, backlog_in


class Hours:
    """A batch that answers each question for an hour from the same counts."""

    def __init__(self, **counts: int) -> None:
        self._counts = counts
        self.answers: list[list[bytes | None]] = []

    def hmget(self, key: str, names: list[str]) -> None:
        held = {name.replace(".", "_"): name for name in names}
        n = {held[name]: n for name, n in self._counts.items() if name in held}
        self.answers.append([str(n[name]).encode() if name in n else None for name in names])


def waiting(outputs: list[str], **counts: int) -> int | None:
    hours = Hours(**counts)
    ask_backlog(hours, "p", outputs)
    return backlog_in(hours.answers, outputs)


def test_what_came_in_waits_until_the_slowest_output_is_done_with_it() -> None:
    came_in = {"input_accepted": 90, "filtering_matched": 10, "adapting_dropped": 4, "adapting_dead": 1}
    assert waiting(["erp"], **came_in) == 95 * 24
    done = {"output_erp_delivered": 95, "output_crm_delivered": 20, "output_crm_dead": 5}
    assert waiting(["erp"], **came_in, **done) == 0
    assert waiting(["erp", "crm"], **came_in, **done) == 70 * 24


def test_copies_are_no_negative_backlog_and_without_outputs_there_is_none() -> None:
    assert waiting(["erp"], input_accepted=1, output_erp_delivered=2) == 0
    assert waiting([], input_accepted=1) is None


@pytest.mark.parametrize("count", [b"many", b"9" * 5000])
def test_counts_that_are_no_numbers_hold_up_no_history(count: bytes) -> None:
    hours: list[Any] = [[count, None, None, None, None, None]]
    with pytest.raises(ValueError, match="int"):
        backlog_in(hours, ["erp"])
    assert history._waiting(hours, ["erp"]) is None


def test_a_step_tells_what_waited_at_its_last_minute_of_all_pipelines_together() -> None:
    first, second = (datetime(2026, 1, 1, 10, minute, tzinfo=UTC) for minute in (0, 1))
    steps = _LastWaiting()
    for step, minute, n in [
        (0, first, 9),
        (0, first, 9),
        (0, second, 2),
        (0, second, 3),
        (0, second, None),
        (60, first, None),
    ]:
        steps.add(step, minute, n)
    assert (steps.of(0), steps.of(60), steps.of(120)) == (5, None, None)
