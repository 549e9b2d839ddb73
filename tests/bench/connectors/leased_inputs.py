"""Many leased inputs at once: how long an offered input waits for a reader."""

import statistics
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.bench.connectors import sql_input
from tests.bench.connectors.platform import SOURCE, running_slot, source_connection

_POLL_SECONDS = 0.5
ROUNDS = 4
_ROWS = 10
"""That each input reads at first."""
_END = f'{{"position":["{_ROWS}"]}}'
"""The breakpoint after them."""


@dataclass
class Result:
    """Delays in seconds, from the offer to the claim; ``peak`` is MiB of the task."""

    inputs: int
    first: list[float]
    """All are offered at the same moment."""
    later: list[float]
    """As they come back, 30 seconds after their last batch."""
    cpu: float
    """Cores of the task."""
    peak: float


def run(inputs: int) -> Result:
    from django.utils import timezone

    from backend.apps.manager.models import InputLease
    from backend.apps.pipelines.services import pipeline_publish
    from tests import factories

    table = "leased"
    sql_input.make_table(table, _ROWS)
    workspace = factories.make_workspace()
    source = factories.make_connector(workspace, type="sql", **SOURCE)
    output = factories.output(factories.make_connector(workspace))
    options = {"source": {"type": "table", "table": table}, "mode": {"type": "incrementing", "column": "id"}}
    read = {"type": "connector", "connector": str(source.pk), "options": options}
    actor = factories.admin_of(workspace)
    for _ in range(inputs):
        pipeline_publish(pipeline=factories.make_pipeline(workspace, outputs=[output], input=read), actor=actor)
    leases = InputLease.objects.filter(pipeline__workspace=workspace)
    leases.update(visible_at=timezone.now() + timedelta(days=1))
    with running_slot("input") as slot:
        offered_at = timezone.now()
        leases.update(visible_at=offered_at)
        with slot.used() as used:
            began = time.monotonic()
            delays = _delays(leases, 1 + ROUNDS)
            seconds = time.monotonic() - began
        assert not leases.exclude(failure="").exists()
        assert leases.filter(breakpoint=_END).count() == inputs
    with source_connection() as connection:
        connection.execute(f"DROP TABLE {table}")
    leases.delete()
    first = [of[0] for of in delays.values()]
    later = [delay for of in delays.values() for delay in of[1:]]
    return Result(inputs, first, later, used.cpu / seconds, used.peak)


def _delays(leases: Any, offers: int) -> dict[Any, list[float]]:
    """Of each lease's next offers. A lease keeps the time of its offer until its batch has ended."""
    known = {key: times for key, *times in leases.values_list("pk", "visible_at", "last_began_at")}
    delays: dict[Any, list[float]] = {key: [] for key in known}
    while min(map(len, delays.values())) < offers:
        time.sleep(_POLL_SECONDS)
        for key, offered_at, began_at in leases.values_list("pk", "visible_at", "last_began_at"):
            if began_at != known[key][1]:
                delays[key].append((began_at - known[key][0]).total_seconds())
            known[key] = [offered_at, began_at]
    return delays


def percentiles(delays: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    cuts = statistics.quantiles(delays, n=100)
    return cuts[49], cuts[98]
