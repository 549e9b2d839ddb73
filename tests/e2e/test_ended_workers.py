"""A record that ends its worker is set aside, and nobody else notices: a step that aborts the process, one that never
returns, and one that eats memory."""

import re
from typing import Any

import pytest

from tests.e2e.test_messages import ids, name, order
from tests.installation import Installation
from tests.receiver import Receiver
from tests.waiting import SPARK_SECONDS, wait_until

STAGE = "adapting_transformer"
PLAIN = [{"type": "set", "path": "source", "value": "test"}]
"""They pass the same stage."""
PADDING = 10_001
PLACE = re.compile(r"firehose_transformer/\d+@\d+ and has ([\d,]+) bytes")


def lane_tasks(installation: Installation) -> int:
    """How many tasks are to run besides the adapting query's; other stages may come to rest meanwhile."""
    [job] = [one for one in installation.api("GET", "jobs/")[1] if one["name"] == "data-plane"]
    return sum(stage["slots"] for stage in job["stages"] if stage["name"] != "adapting")


@pytest.mark.parametrize(
    ("does", "reason", "says"),
    [
        ("abort", "ended_worker", "twice (killed by SIGABRT, exit status -6)"),
        ("hang", "ended_worker", "twice (killed by SIGKILL, exit status -9)"),
        ("eat", "out_of_memory", "(a worker may have 2,048 MiB, HEADRACE_LANE_MEMORY_BYTES)"),
    ],
)
def test_neighbours_4_a_record_that_ends_its_worker_is_set_aside_and_the_stage_goes_on_behind_it(
    installation: Installation, inbox: Receiver, does: str, reason: str, says: str
) -> None:
    neighbour = installation.publish_pipeline(name(), inbox.url, transforms=PLAIN)
    hostile = installation.publish_pipeline(name(), inbox.url, transforms=[{"type": "toy_hostile", "path": "does"}])
    wait_until(lambda: installation.post(neighbour, order(0))[0] == 202)
    wait_until(lambda: inbox.bodies)
    driver = installation.spark()

    sent = installation.accepted(neighbour, map(order, range(50)))
    [bad] = installation.accepted(hostile, [{"does": does, "padding": "x" * PADDING}])
    sent += installation.accepted(neighbour, map(order, range(50, 100)))
    sent += installation.accepted(hostile, [{"does": "nothing"}])

    def letters() -> list[dict[str, Any]]:
        return list(installation.api("GET", f"dead-letters/?pipeline={hostile}")[1]["results"])

    wait_until(letters, SPARK_SECONDS)
    sent += installation.accepted(neighbour, map(order, range(100, 150)))
    wait_until(lambda: set(sent) <= set(ids(inbox)), SPARK_SECONDS)

    [letter] = letters()
    assert (letter["message_id"], letter["stage"], letter["reason"]) == (bad, STAGE, reason)
    assert letter["state"] == "waiting"
    assert letter["due_at"] is None
    assert says in letter["error"]
    if reason == "ended_worker":
        place = PLACE.search(letter["error"])
        assert place is not None
        assert int(place[1].replace(",", "")) == letter["body_bytes"] > PADDING
    assert bad not in ids(inbox)
    assert installation.api("GET", f"dead-letters/?pipeline={neighbour}")[1]["results"] == []
    wait_until(lambda: installation.components()["spark"] == "ok")
    wait_until(lambda: len(installation.lane_workers()) == lane_tasks(installation))
    assert installation.spark() == driver
