from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backend.domain.status import (
    Action,
    Facts,
    GatheredMessages,
    Letters,
    OpenBreaker,
    Provisioning,
    State,
    Status,
    Traffic,
    UnstoredFiles,
    status_of,
)

AT = datetime(2026, 1, 2, 12, 34, tzinfo=UTC)
FLOWING = Facts(newest=1, published=1, traffic=Traffic(delivered=5, failed=0))
OPEN = OpenBreaker("erp", is_probing=False, cause="The receiver answered 503.", since=AT, until=AT)
PROBING = replace(OPEN, is_probing=True)
LETTERS = Letters(3, AT, "The receiver answered 500.")
FILES = UnstoredFiles("archive", 2, "The bucket is gone.", AT, next_try=None)
GATHERED = GatheredMessages(7, AT)
STANDS = {"syndicating": "No Spark application sends heartbeats; messages wait in Kafka."}


def provisioning(*, has_failed: bool) -> Provisioning:
    return Provisioning(2, has_failed, "The registry refused the schema.", AT)


def status(**facts: object) -> Status:
    return status_of(replace(FLOWING, **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "state", "action"),
    [
        ({}, State.DELIVERING, None),
        ({"traffic": Traffic(0, 0)}, State.IDLE, None),
        ({"traffic": None}, State.UNKNOWN, None),
        ({"gathered": GATHERED}, State.DELIVERING, None),
        ({"gathered": GATHERED, "traffic": Traffic(0, 0)}, State.IDLE, Action.OPEN_EXPORTS),
        ({"newest": 2}, State.UNPUBLISHED, Action.PUBLISH),
        ({"published": None}, State.DRAFT, Action.PUBLISH),
        ({"newest": 2, "draft_failure": "Its plugin is gone."}, State.DEGRADED, Action.EDIT),
        ({"published": None, "draft_failure": "Its plugin is gone."}, State.DEGRADED, Action.EDIT),
        ({"newest": 2, "provisioning": provisioning(has_failed=False)}, State.PROVISIONING, None),
        ({"published": None, "provisioning": provisioning(has_failed=False)}, State.PROVISIONING, None),
        ({"newest": 2, "provisioning": provisioning(has_failed=True)}, State.DEGRADED, Action.EDIT),
        ({"published": None, "provisioning": provisioning(has_failed=True)}, State.FAILING, Action.EDIT),
        ({"letters": LETTERS}, State.DEGRADED, Action.OPEN_DEAD_LETTERS),
        ({"unstored": [FILES]}, State.DEGRADED, Action.OPEN_EXPORTS),
        ({"warnings": ["The slot fills the disk."]}, State.DEGRADED, None),
        ({"breakers": [PROBING]}, State.DEGRADED, Action.CLOSE_BREAKER),
        ({"paused": True}, State.PAUSED, Action.RESUME),
        ({"input_failure": "No such table."}, State.INPUT_FAILING, Action.OPEN_INPUT),
        ({"breakers": [OPEN]}, State.BLOCKED, Action.CLOSE_BREAKER),
        ({"stages": STANDS}, State.FAILING, Action.OPEN_JOBS),
        ({"starting": ["syndicating"]}, State.STARTING, None),
        ({"starting": ["syndicating"], "newest": 2}, State.STARTING, None),
        ({"starting": ["syndicating"], "letters": LETTERS}, State.DEGRADED, Action.OPEN_DEAD_LETTERS),
        ({"unseen": ["syndicating"]}, State.STARTING, None),
        ({"unseen": ["syndicating"], "stages": {"adapting": "It is stopped."}}, State.FAILING, Action.OPEN_JOBS),
        ({"failure": "No such connector."}, State.FAILING, Action.EDIT),
        ({"letters": LETTERS, "traffic": Traffic(0, 4)}, State.FAILING, Action.OPEN_DEAD_LETTERS),
        # What only waits for a rate limit, or for a breaker that is open, is not a failure of its own.
        ({"traffic": Traffic(0, 4)}, State.IDLE, None),
        ({"letters": LETTERS, "traffic": Traffic(0, 4), "breakers": [OPEN]}, State.BLOCKED, Action.CLOSE_BREAKER),
        # Nobody reads the input of a paused pipeline, but what it has accepted is still delivered.
        ({"paused": True, "input_failure": "No such table."}, State.PAUSED, Action.RESUME),
        ({"paused": True, "breakers": [OPEN]}, State.BLOCKED, Action.CLOSE_BREAKER),
        ({"paused": True, "letters": LETTERS}, State.PAUSED, Action.RESUME),
    ],
)
def test_the_worst_that_is_true_gives_the_state_and_what_helps(
    facts: dict[str, object], state: State, action: Action | None
) -> None:
    shown = status(**facts)
    assert (shown.state, shown.action) == (state, action)


def test_all_that_is_true_is_told_the_worst_first() -> None:
    shown = status(newest=2, letters=LETTERS, breakers=[PROBING, OPEN], unstored=[FILES], input_failure="Gone.")
    assert [one.state for one in (shown, *shown.more)] == [
        State.BLOCKED,
        State.INPUT_FAILING,
        State.DEGRADED,
        State.DEGRADED,
        State.DEGRADED,
        State.UNPUBLISHED,
    ]


def test_what_is_not_known_yet_of_a_stage_is_no_failure_and_says_so() -> None:
    shown = status(unseen=["syndicating"])
    assert shown.reason == "The console has just started; whether the stage syndicating works is known in a moment."
    assert shown.place == "syndicating"


def test_an_idle_pipeline_names_what_waits_for_its_file() -> None:
    shown = status(gathered=GATHERED, traffic=Traffic(0, 0))
    assert (shown.reason, shown.until) == ("Messages wait for their file: 7.", AT)


def test_nobody_is_told_to_publish_what_cannot_be_read() -> None:
    shown = status(newest=2, draft_failure="Its plugin is gone.")
    assert shown.reason.startswith("Version 2, which is not published, cannot be read")
    assert shown.error == "Its plugin is gone."
    assert [(one.state, one.action) for one in shown.more] == [(State.UNPUBLISHED, None)]


def test_a_reason_names_the_part_and_the_error() -> None:
    shown = status(breakers=[OPEN], unstored=[FILES])
    assert shown.reason == "Nothing is sent to erp: its circuit breaker is open."
    assert (shown.place, shown.error, shown.until) == ("erp", "The receiver answered 503.", AT)
    assert shown.more[0].reason == "Files of the output archive that could not be stored: 2."
