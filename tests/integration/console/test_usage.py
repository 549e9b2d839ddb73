"""Billing: each delivery once, whatever is repeated, and reconciled to the message."""

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.core.management import CommandError, call_command
from django.db import connection
from msgspec.structs import replace

from backend.apps.deliveries import reconcile as reconciliation
from backend.apps.deliveries.models import DeadLetter
from backend.apps.deliveries.reconcile import WorkersBehindError, reconcile
from backend.apps.deliveries.sinks import DeadLetterSink
from backend.apps.kafka_sink.sink import Sink, run
from backend.apps.pipelines.models import Pipeline
from backend.apps.usage import billed as billed_module
from backend.apps.usage.billed import Delivery, billed_among
from backend.apps.usage.models import UsageMinute
from backend.apps.usage.sinks import UsageSink
from backend.domain import routing
from backend.domain.message import REDELIVERY, REDELIVERY_OUTPUT, Message, child_message_id, new_message_id, utc_now
from backend.domain.records import Record, billing_event, dead_letter, resolved
from backend.domain.stages import SYNDICATING
from backend.settings import platform_settings
from tests import factories
from tests.infra import KAFKA, Server
from tests.integration.kafka_ends import end_offset
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lane(kafka: Server, monkeypatch: pytest.MonkeyPatch, db: None) -> "Lane":
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE usage_billed, usage_output")
    return Lane(monkeypatch)


class Lane:
    """The syndicating lane as Kafka sees it, with topics of its own: results and offsets in one transaction."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        suffix = str(uuid.uuid4())
        self.adapted, self.billing, self.dead = (f"{name}-{suffix}" for name in ("adapted", "billing", "dead"))
        admin = AdminClient({"bootstrap.servers": KAFKA})
        for future in admin.create_topics(
            [NewTopic(t, 2, 1) for t in (self.adapted, self.billing, self.dead)]
        ).values():
            future.result()
        monkeypatch.setattr(routing, "ADAPTED", self.adapted)
        for sink, topic in ((UsageSink, self.billing), (DeadLetterSink, self.dead)):
            monkeypatch.setattr(sink, "topic", topic)
            monkeypatch.setattr(sink, "name", topic[:50])
        monkeypatch.setattr(reconciliation, "_SECONDS", LIMIT_SECONDS)
        monkeypatch.setattr(reconciliation, "_BATCH", 7)
        self._topics = {routing.BILLING: self.billing, routing.DEAD_LETTER: self.dead}
        # The group is the real one's: each test has a topic of its own.
        self._consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": SYNDICATING.group})
        self._producer = Producer({"bootstrap.servers": KAFKA, "transactional.id": suffix})
        self._producer.init_transactions(20)

    def read(self, *messages: Message, ago: timedelta = timedelta()) -> None:
        """Messages arrive in the lane's topic, or arrived so long ago."""
        producer = Producer({"bootstrap.servers": KAFKA})
        at = int((datetime.now(UTC) - ago).timestamp() * 1000)
        for one in messages:
            producer.produce(self.adapted, one.body, one.key, headers=list(one.headers()), timestamp=at)
        assert producer.flush(LIMIT_SECONDS) == 0

    def commit(self, *records: Record) -> None:
        """Everything that was read until now has these results."""
        self._producer.begin_transaction()
        for record in records:
            self._producer.produce(self._topics[record.topic], record.value, record.key, headers=list(record.headers))
        ends = [TopicPartition(self.adapted, part, end_offset(self.adapted, part)) for part in (0, 1)]
        self._producer.send_offsets_to_transaction(ends, self._consumer.consumer_group_metadata(), 20)
        self._producer.commit_transaction(20)


@pytest.fixture
def working() -> Iterator[Callable[..., None]]:
    """Starts sinks."""
    stop, threads = threading.Event(), []

    def start(*sinks: Sink) -> None:
        for sink in sinks:
            threads.append(threading.Thread(target=run, args=(sink, stop)))
            threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join()


def message(pipeline: Pipeline, **fields: Any) -> Message:
    message_id = new_message_id()
    values = {"id": message_id, "pipeline_id": str(pipeline.pk), "version": 1, "key": message_id.encode()}
    values |= {"body": b"{}", "content_type": "application/json", "received_at": utc_now(), "slip": ()}
    return Message(**values | fields)


def billed(sent: Message, output: str) -> Record:
    return billing_event(sent, workspace_id=str(uuid.uuid4()), output=output)


def letter(sent: Message, output: str) -> Record:
    return dead_letter(sent, stage="syndicating", reason="http_500", error="No.", output=output)


def deliveries_of(pipeline: Pipeline) -> int:
    return sum(UsageMinute.objects.filter(pipeline_id=pipeline.pk).values_list("deliveries", flat=True))


@pytest.fixture
def pipeline(db: None) -> Pipeline:
    workspace = factories.make_workspace()
    connector = factories.make_connector(workspace)
    outputs = [factories.output(connector, name) for name in ("a", "b")]
    return factories.make_pipeline(workspace, outputs=outputs)


def checked() -> Any:
    now = datetime.now(UTC)
    return reconcile(now - timedelta(hours=1), now + timedelta(minutes=1))


def test_each_delivery_is_billed_once_however_late_its_copies_come(
    lane: Lane, working: Callable[..., None], pipeline: Pipeline
) -> None:
    working(UsageSink(), UsageSink())
    sent = [message(pipeline) for _ in range(50)]
    odd = message(pipeline, id="no UUID")
    child = replace(sent[0], id=child_message_id(sent[0].id, 1))
    everything = [*sent, odd, child]
    for received_at in ("2020-02-03T04:05:06.789Z", utc_now(), "later"):  # an input that is read again has a new time
        copies = [replace(one, received_at=received_at) for one in everything]
        lane.commit(*(billed(one, output) for one in copies for output in ("a", "b")))
        wait_until(lambda: deliveries_of(pipeline) >= 2 * len(everything))
    marker = message(pipeline)
    lane.commit(billed(replace(marker, key=sent[0].key), "a"), billed(marker, "b"))
    wait_until(lambda: deliveries_of(pipeline) >= 2 * len(everything) + 2)
    reconciliation._wait_for(UsageSink, positions := reconciliation.Positions(platform_settings().kafka))
    positions.close()
    assert deliveries_of(pipeline) == 2 * len(everything) + 2


def test_a_billed_delivery_is_removed_once_no_copy_can_come(
    lane: Lane, working: Callable[..., None], pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billed_module, "_REMOVED_AT_ONCE", 2)
    working(UsageSink())
    sent = [message(pipeline) for _ in range(7)]
    lane.commit(*(billed(one, "a") for one in sent))
    wait_until(lambda: deliveries_of(pipeline) == 7)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE usage_billed SET at = at - interval '46 days' WHERE message_id <> %s", [sent[0].id])
    assert billed_module.billed_remove(keep=timedelta(days=45)) == 6
    assert {one.message_id for one in billed_among([Delivery.of(one.id, str(pipeline.pk), "a") for one in sent])} == {
        sent[0].id
    }


def test_it_agrees_when_every_message_is_billed_or_an_open_dead_letter(
    lane: Lane, working: Callable[..., None], pipeline: Pipeline
) -> None:
    sent = [message(pipeline) for _ in range(30)]
    lane.read(*sent)
    lane.commit(*(billed(one, "a") for one in sent), *(billed(one, "b") for one in sent[1:]), letter(sent[0], "b"))
    lane.read(message(pipeline))  # not committed yet
    working(UsageSink(), DeadLetterSink())
    result = checked()
    assert (result.messages, result.deliveries, result.unbilled, result.agrees) == (30, 60, [], True)
    wait_until(lambda: deliveries_of(pipeline) == 59)
    assert (checked().billed, checked().usage) == (59, 59)
    call_command("usage_reconcile", "--until", (datetime.now(UTC) + timedelta(minutes=1)).isoformat())


def test_a_missing_event_is_found_to_the_message(lane: Lane, working: Callable[..., None], pipeline: Pipeline) -> None:
    sent = [message(pipeline) for _ in range(30)]
    lane.read(*sent)
    lane.commit(*(billed(one, "a") for one in sent), *(billed(one, "b") for one in sent if one is not sent[13]))
    working(UsageSink(), DeadLetterSink())
    result = checked()
    assert (result.unbilled_total, result.agrees) == (1, False)
    [missing] = result.unbilled
    assert (missing.output, missing.message_id) == ("b", sent[13].id)
    assert missing.position.startswith(lane.adapted)
    with pytest.raises(CommandError, match="differ"):
        call_command("usage_reconcile", "--until", (datetime.now(UTC) + timedelta(minutes=1)).isoformat())


def test_a_redelivery_that_was_not_billed_is_found(
    lane: Lane, working: Callable[..., None], pipeline: Pipeline
) -> None:
    sent = message(pipeline)
    lane.read(sent)
    lane.commit(billed(sent, "a"), letter(sent, "b"))
    working(UsageSink(), DeadLetterSink())
    assert checked().agrees
    dead = str(DeadLetter.objects.get(message_id=sent.id).pk)
    lane.read(replace(sent, extra={REDELIVERY: dead, REDELIVERY_OUTPUT: "b"}))
    lane.commit(resolved(sent, dead))
    # A dead letter that is still open settles the message.
    wait_until(lambda: DeadLetter.objects.get(pk=dead).state == DeadLetter.State.DELIVERED)
    assert {(one.output, one.message_id) for one in checked().unbilled} == {("b", sent.id)}
    lane.commit(billed(sent, "b"))
    assert checked().agrees


def test_a_delivery_that_no_message_accounts_for_is_found(
    lane: Lane, working: Callable[..., None], pipeline: Pipeline
) -> None:
    sent = [message(pipeline) for _ in range(30)]
    lane.read(*sent)
    never_read, no_such_output = message(pipeline), (sent[3], "c")
    every = [(one, output) for one in sent for output in ("a", "b")]
    lane.commit(*(billed(*one) for one in [*every, (never_read, "a"), no_such_output]))
    working(UsageSink(), DeadLetterSink())
    wait_until(lambda: deliveries_of(pipeline) == 62)
    result = checked()
    assert (result.unbilled_total, result.overbilled_total, result.agrees) == (0, 2, False)
    assert {(str(one.message_id), one.output) for one in result.overbilled} == {(never_read.id, "a"), (sent[3].id, "c")}
    with pytest.raises(CommandError, match="differ"):
        call_command("usage_reconcile", "--until", (datetime.now(UTC) + timedelta(minutes=1)).isoformat())


def test_a_message_accounts_for_its_delivery_however_long_it_waited(
    lane: Lane, working: Callable[..., None], pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [message(pipeline) for _ in range(12)]
    for one, minutes in zip(sent, (4000, 500, 200, 90, 61, 60, 40, 25, 10, 3, 1, -0.5), strict=True):
        lane.read(one, ago=timedelta(minutes=minutes))
    lane.commit(*(billed(one, output) for one in sent for output in ("a", "b")))
    working(UsageSink(), DeadLetterSink())
    wait_until(lambda: deliveries_of(pipeline) == 24)
    for length in (47, 600):
        monkeypatch.setattr(reconciliation, "_SLICE", timedelta(minutes=length))
        assert checked().agrees
    monkeypatch.setattr(reconciliation, "_SKEW", timedelta())
    assert checked().agrees, "a minute ahead is in the range"


def test_what_a_deleted_version_was_billed_for_is_not_judged(
    lane: Lane, working: Callable[..., None], pipeline: Pipeline
) -> None:
    sent = [message(pipeline, version=7) for _ in range(3)]
    lane.read(*sent)
    lane.commit(*(billed(one, "a") for one in sent))
    working(UsageSink(), DeadLetterSink())
    wait_until(lambda: deliveries_of(pipeline) == 3)
    result = checked()
    assert (result.unknown, result.overbilled_total, result.agrees) == (3, 0, True)


def test_sums_that_differ_from_the_billed_deliveries_are_found(
    lane: Lane, working: Callable[..., None], pipeline: Pipeline
) -> None:
    sent = message(pipeline)
    working(UsageSink(), DeadLetterSink())
    lane.commit(billed(sent, "a"))
    wait_until(lambda: deliveries_of(pipeline) == 1)
    UsageMinute.objects.filter(pipeline_id=pipeline.pk).update(deliveries=3)
    mine = [different for different in checked().differences if different[0] == str(pipeline.pk)]
    assert [(output, billed, stored) for _, output, _, billed, stored in mine] == [("a", 1, 3)]


def test_without_its_workers_it_does_not_judge(lane: Lane, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "_SECONDS", 1.0)
    sent = message(pipeline)
    lane.read(sent)
    lane.commit(billed(sent, "a"), billed(sent, "b"))
    with pytest.raises(WorkersBehindError, match="repeat this later"):
        checked()
