"""How many messages wait, told by counts."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from backend.apps.monitoring import history
from backend.apps.monitoring.selectors import _LastWaiting, ask_backlog, backlog_in
from backend.domain.message import Redelivery
from backend.domain.stages import STAGES
from backend.telemetry import events

REDELIVERED_STAGES = [stage.name for stage in STAGES if stage.redelivers]


class Hours:
    """A batch that answers each question for an hour from the same counts."""

    def __init__(self, **counts: int) -> None:
        self._counts = counts
        self.answers: list[list[bytes | None]] = []

    def hmget(self, key: str, names: list[str]) -> None:
        held = {name.replace(".", "_"): name for name in names}
        n = {held[name]: n for name, n in self._counts.items() if name in held}
        self.answers.append([str(n[name]).encode() if name in n else None for name in names])


class Asked:
    """A batch that notes what is asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def hmget(self, key: str, names: list[str]) -> None:
        self.names |= set(names)


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


LETTER_STORIES = {
    "an output, delivered then": ["output_erp_dead", "output_erp_redelivered", "output_erp_delivered"],
    "an output, twice": ["output_erp_dead", "output_erp_redelivered", "output_erp_dead"],
    "an output, and known to its ledger": ["output_erp_dead"],
    "adapting, twice": ["adapting_dead", "adapting_redelivered", "adapting_dead"],
    "adapting, dropped then": ["adapting_dead", "adapting_redelivered", "adapting_dropped"],
    "adapting, delivered then": ["adapting_dead", "adapting_redelivered", "output_erp_delivered"],
    "adapting, dead by the output then": ["adapting_dead", "adapting_redelivered", "output_erp_dead"],
    "filtering": ["filtering_dead"],
    "filtering, delivered then": ["filtering_dead", "filtering_redelivered", "output_erp_delivered"],
    "no output, delivered then": ["syndicating_dead", "output_erp_redelivered", "output_erp_delivered"],
    "no output, twice": ["syndicating_dead", "syndicating_redelivered", "syndicating_dead"],
}


@pytest.mark.parametrize("story", LETTER_STORIES.values(), ids=LETTER_STORIES)
def test_a_dead_letter_is_one_message_wherever_it_died_and_however_often_it_is_redelivered(story: list[str]) -> None:
    waits = 7 * 24
    assert waiting(["erp"], input_accepted=8, **Counter(story)) == waits


@pytest.mark.parametrize("stage", ["adapting", "filtering"])
def test_a_redelivered_dead_letter_of_a_stage_waits_until_its_outputs_have_it(stage: str) -> None:
    under_way = {f"{stage}_dead": 1, f"{stage}_redelivered": 1}
    assert waiting(["erp"], input_accepted=1, **under_way) == 24
    assert waiting(["erp", "crm"], input_accepted=1, **under_way, output_erp_delivered=1) == 24


def test_a_dead_letter_of_one_output_is_no_matter_of_another() -> None:
    done = {"output_crm_delivered": 1, "output_erp_dead": 1, "output_erp_redelivered": 1, "output_erp_delivered": 1}
    assert waiting(["erp", "crm"], input_accepted=1, **done) == 0
    assert waiting(["erp", "crm"], input_accepted=2, **done) == 24


def test_what_a_stage_counts_of_a_dead_letter_is_what_the_backlog_asks_for() -> None:
    hours = Asked()
    ask_backlog(hours, "p", ["erp"])
    for stage in REDELIVERED_STAGES:
        for letter in (None, Redelivery("1", ""), Redelivery("1", "erp")):
            counted = [*events.dead_letter(stage, letter), *([events.handled_again(stage, letter)] if letter else [])]
            assert set(counted) <= hours.names, (stage, letter)
            assert len(set(counted)) == (2 if letter else 1)


def test_copies_are_no_negative_backlog_and_without_outputs_there_is_none() -> None:
    assert waiting(["erp"], input_accepted=1, output_erp_delivered=2) == 0
    assert waiting([], input_accepted=1) is None


@pytest.mark.parametrize("count", [b"many", b"9" * 5000])
def test_counts_that_are_no_numbers_hold_up_no_history(count: bytes) -> None:
    hours: list[Any] = [[count, *[None] * 11]]
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
