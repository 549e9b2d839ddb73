"""Reconciles usage with deliveries.

The witness is the syndicating lane's own input, not the billing events that it produced: every message before the
lane's committed offset must have been billed for each output of its version, or be a dead letter that is still open;
and every delivery that was billed must be of such a message.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from backend.apps.deliveries.lane_input import LaneInput, LaneMessage
from backend.apps.deliveries.models import DeadLetter
from backend.apps.deliveries.sinks import DeadLetterSink
from backend.apps.kafka_sink.models import SinkOffset
from backend.apps.kafka_sink.sink import Sink
from backend.apps.usage.billed import Delivery, billed_among, message_uuid
from backend.apps.usage.sinks import UsageSink
from backend.apps.usage.unexplained import Overbilled, Unexplained
from backend.kafka.client.positions import Part, Positions
from backend.settings import platform_settings

_SECONDS = 30.0
_BATCH = 2000
_SUSPECTS = 20_000
_SHOWN = 1000
_SLICE = timedelta(hours=1)
"""What is compared at once: the deliveries that were billed within it are held in a temporary table."""
_SKEW = timedelta(minutes=1)
"""By how much the clocks of two machines may differ."""
_IN_LANE = timedelta(hours=1)
"""How long a delivery that is judged may have followed its message, which Kafka must still have."""


class WorkersBehindError(Exception):
    """The workers have not yet written what Kafka has; the message says what to do."""


class Unbilled(NamedTuple):
    """A delivery that the lane is done with, although it is neither billed nor an open dead letter."""

    position: str
    pipeline_id: str
    output: str
    message_id: str


class _Expected(NamedTuple):
    delivery: Delivery
    report: Unbilled


@dataclass
class Reconciliation:
    """The result for a range. ``differences`` are (pipeline, output, minute, billed, in usage). The lists hold the
    first 1,000; ``unbilled_total`` and ``overbilled_total`` count all."""

    messages: int = 0
    deliveries: int = 0
    unbilled_total: int = 0
    overbilled_total: int = 0
    unknown: int = 0
    """Messages of versions that no longer exist, which cannot be checked."""
    unjudged: int = 0
    """Billed deliveries without a message, which Kafka may have removed meanwhile."""
    billed: int = 0
    usage: int = 0
    unbilled: list[Unbilled] = field(default_factory=list)
    overbilled: list[Overbilled] = field(default_factory=list)
    differences: list[tuple[str, str, str, int, int]] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        return not self.unbilled_total and not self.overbilled_total and not self.differences


def reconcile(since: datetime, until: datetime) -> Reconciliation:
    """Checks the messages that were ready for delivery from ``since`` up to but not including ``until``, the deliveries
    that were billed meanwhile, and the usage of these minutes, all as far back as Kafka keeps messages. Its memory does
    not grow with the range.

    Raises KafkaException when the topic cannot be read, and WorkersBehindError.
    """
    oldest = datetime.now(UTC) - timedelta(hours=settings.CONSOLE.topic_retention_hours)
    since = max(since, oldest)
    begin, result = since, Reconciliation()
    positions = Positions(platform_settings().kafka)
    lane = LaneInput(positions)
    try:
        while since < until:
            end = min(since + _SLICE, until)
            with Unexplained(since, end) as unexplained:
                # What was billed is known before this, so its messages are before these positions.
                done = lane.done()
                _check(lane.messages(since, end, done), unexplained, positions, result)
                for more in _around(lane, since, end, oldest, done):
                    if not unexplained.count:
                        break
                    for batch in _batches(more):
                        _explained(batch, unexplained)
                result.unjudged += unexplained.forget_before(oldest + _IN_LANE)
                result.overbilled_total += unexplained.count
                result.overbilled += unexplained.first(_SHOWN - len(result.overbilled))
            since = end
    finally:
        lane.close()
        positions.close()
    _compare_usage(begin, until, result)
    return result


def _check(
    messages: Iterator[LaneMessage], unexplained: Unexplained, positions: Positions, result: Reconciliation
) -> None:
    """Whether what must have come of each message did come of it."""
    suspects: list[_Expected] = []
    for batch in _batches(messages):
        expected = _explained(batch, unexplained)
        result.messages += len(batch)
        result.unknown += sum(message.outputs is None for message in batch)
        result.deliveries += len(expected)
        suspects += _unsettled(expected)
        if len(suspects) > _SUSPECTS:
            _confirm(suspects, positions, result)
            suspects = []
    _confirm(suspects, positions, result)


def _around(
    lane: LaneInput, since: datetime, until: datetime, oldest: datetime, done: dict[Part, int]
) -> Iterator[Iterator[LaneMessage]]:
    """The messages that deliveries of the range may be of, although they are not in it: what waited, perhaps for long,
    and what a clock that is ahead has stamped."""
    yield lane.messages(until, until + _SKEW, done)
    step = timedelta(minutes=1)
    while since > oldest:
        yield lane.messages(since - step, since, done)
        since, step = since - step, 4 * step


def _batches(messages: Iterator[LaneMessage]) -> Iterator[list[LaneMessage]]:
    while batch := list(islice(messages, _BATCH)):
        yield batch


def _explained(messages: Sequence[LaneMessage], unexplained: Unexplained) -> list[_Expected]:
    """What must have come of these messages; whatever was billed of it is explained."""
    expected = [one for message in messages for one in _expected(message)]
    unexplained.explain([one.delivery for one in expected])
    unexplained.explain_messages(
        [(message_uuid(message.id), str(message.pipeline_id)) for message in messages if message.outputs is None]
    )
    return expected


def _expected(message: LaneMessage) -> Iterator[_Expected]:
    pipeline_id = str(message.pipeline_id)
    for output in message.outputs or ():
        yield _Expected(
            Delivery.of(message.id, pipeline_id, output), Unbilled(message.position, pipeline_id, output, message.id)
        )


def _unsettled(batch: list[_Expected]) -> list[_Expected]:
    """Those that are neither billed nor an open dead letter."""
    billed = billed_among([expected.delivery for expected in batch])
    left = [expected for expected in batch if expected.delivery not in billed]
    if not left:
        return []
    open_letters = {
        (str(pipeline_id), output, message_id)
        for pipeline_id, output, message_id in DeadLetter.objects.filter(
            message_id__in={expected.report.message_id for expected in left}
        )
        .filter(pipeline_id__in={expected.delivery.pipeline_id for expected in left})
        .exclude(state=DeadLetter.State.DELIVERED)
        .values_list("pipeline_id", "output", "message_id")
    }
    return [
        expected
        for expected in left
        if not {
            (expected.delivery.pipeline_id, output, expected.report.message_id)
            for output in (expected.report.output, "")
        }
        & open_letters
    ]


def _confirm(suspects: list[_Expected], positions: Positions, result: Reconciliation) -> None:
    """Records those that are still unsettled once the workers have written what Kafka has by now."""
    if not suspects:
        return
    for sink in (UsageSink, DeadLetterSink):
        _wait_for(sink, positions)
    for first in range(0, len(suspects), _BATCH):
        missing = _unsettled(suspects[first : first + _BATCH])
        result.unbilled_total += len(missing)
        room = _SHOWN - len(result.unbilled)
        result.unbilled += [expected.report for expected in missing[:room]]


def _wait_for(sink: type[Sink], positions: Positions) -> None:
    """Raises WorkersBehindError."""
    ends = positions.ends([sink.topic])
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        offsets = SinkOffset.objects.filter(sink=sink.name).values_list("partition", "next_offset")
        if positions.passed({(sink.topic, partition): offset for partition, offset in offsets}, ends):
            return
        time.sleep(0.2)
    raise WorkersBehindError(
        f"The worker {sink.name!r} has not written everything that Kafka has; see that it runs, and repeat this later."
    )


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


_USAGE = """
WITH billed AS (
    SELECT o.pipeline_id, o.output, date_trunc('minute', b.at) AS minute, count(*) AS n
    FROM usage_billed AS b JOIN usage_output AS o ON o.id = b.output_id
    WHERE b.at >= %(since)s AND b.at < %(until)s
    GROUP BY 1, 2, 3
), stored AS (
    SELECT pipeline_id, output, minute, deliveries AS n FROM usage_usageminute
    WHERE minute >= %(since)s AND minute < %(until)s
), compared AS (
    SELECT pipeline_id, output, minute, coalesce(billed.n, 0) AS billed, coalesce(stored.n, 0) AS stored
    FROM billed FULL JOIN stored USING (pipeline_id, output, minute)
)
"""


def _compare_usage(since: datetime, until: datetime, result: Reconciliation) -> None:
    """Compares the sums per minute with the deliveries that were billed, in every minute that the range touches."""
    values = {"since": _minute(since), "until": _minute(until + timedelta(seconds=59, microseconds=999_999))}
    with connection.cursor() as cursor:
        cursor.execute(_USAGE + "SELECT coalesce(sum(billed), 0), coalesce(sum(stored), 0) FROM compared", values)
        result.billed, result.usage = map(int, cursor.fetchone())
        cursor.execute(
            _USAGE + "SELECT * FROM compared WHERE billed <> stored ORDER BY minute, pipeline_id, output LIMIT 1000",
            values,
        )
        result.differences = [
            (str(pipeline), output, f"{minute:%Y-%m-%dT%H:%M}Z", billed, stored)
            for pipeline, output, minute, billed, stored in cursor.fetchall()
        ]
