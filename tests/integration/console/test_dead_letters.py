"""Dead letters from Kafka into PostgreSQL and back."""

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from backend.apps.deliveries import retention
from backend.apps.deliveries.models import Attempt, DeadLetter
from backend.apps.deliveries.partitions import partitions_drop, partitions_ensure
from backend.apps.deliveries.redelivery import Redelivery
from backend.apps.deliveries.services import dead_letters_discard, dead_letters_redrive
from backend.apps.deliveries.sinks import AttemptSink, DeadLetterSink
from backend.apps.kafka_sink.models import SinkOffset
from backend.apps.kafka_sink.sink import Sink, run
from backend.apps.pipelines.models import Pipeline
from backend.apps.usage.billed import Billing, Delivery, bill
from backend.apps.usage.models import UsageMinute
from backend.apps.usage.sinks import UsageSink
from backend.domain import limits, routing
from backend.domain.message import INDEX, Message, new_message_id, utc_now
from backend.domain.pipeline import PipelineConfig
from backend.domain.records import Attempt as Try
from backend.domain.records import Record, attempt_record, billing_event, dead_letter, malformed_dead_letter, resolved
from backend.resilience.scripts import OutputKey
from tests import factories
from tests.infra import KAFKA, REDIS_URL, Server
from tests.integration.kafka_ends import end_offset
from tests.topics import records_of
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

PARTITIONS = 2


@pytest.fixture
def topics(kafka: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sink], str]:
    """Gives a sink a topic of its own."""

    def make(sink: Sink) -> str:
        topic = f"{sink.name}-{uuid.uuid4()}"
        admin = AdminClient({"bootstrap.servers": KAFKA})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
        monkeypatch.setattr(type(sink), "topic", topic)
        monkeypatch.setattr(type(sink), "name", topic[:50])
        return topic

    return make


class Running:
    """A sink at work in a thread."""

    def __init__(self, sink: Sink) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run, args=(sink, self._stop))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def running() -> Iterator[Callable[[Sink], Running]]:
    started: list[Running] = []

    def start(sink: Sink) -> Running:
        started.append(Running(sink))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def produce(topic: str, *records: Record) -> None:
    producer = Producer({"bootstrap.servers": KAFKA})
    for record in records:
        producer.produce(topic, record.value, record.key, headers=list(record.headers))
    assert producer.flush(LIMIT_SECONDS) == 0


def message(pipeline_id: str) -> Message:
    message_id = new_message_id()
    return Message(message_id, pipeline_id, 1, message_id.encode(), b'{"a":1}', "application/json", utc_now(), ())


def failed(sent: Message, reason: str = "http_500", output: str = "out", **fields: object) -> Record:
    return dead_letter(
        sent, stage="syndicating", reason=reason, error="It failed.", output=output, attempts=4, **fields
    )  # type: ignore[arg-type]


def test_a_dead_letter_is_one_row_whatever_its_history(topics, running) -> None:  # type: ignore[no-untyped-def]
    pipeline = factories.make_pipeline(factories.make_workspace())
    sink = DeadLetterSink()
    topic = topics(sink)
    sent, other = message(str(pipeline.pk)), message(str(pipeline.pk))
    due = datetime.now(UTC) + timedelta(minutes=15)
    worker = running(sink)
    produce(topic, failed(sent, retryable=True), failed(other, "breaker_open", due=due.timestamp()))
    wait_until(lambda: DeadLetter.objects.count() == 2)
    row = DeadLetter.objects.get(message_id=sent.id)
    assert (row.workspace_id, row.output, row.reason, row.attempts) == (pipeline.workspace_id, "out", "http_500", 4)
    assert (bytes(row.body), bytes(row.key)) == (sent.body, sent.key)
    assert row.due_at is not None
    assert row.due_at - row.first_at == timedelta(minutes=1)
    assert DeadLetter.objects.get(message_id=other.id).due_at == pytest.approx(due, abs=timedelta(seconds=1))

    DeadLetter.objects.update(state=DeadLetter.State.REDELIVERING)
    worker.stop()
    produce(topic, failed(sent, "http_422"), resolved(other, str(DeadLetter.objects.get(message_id=other.id).pk)))
    running(sink)
    wait_until(lambda: DeadLetter.objects.filter(reason="http_422").exists())
    wait_until(lambda: DeadLetter.objects.filter(state=DeadLetter.State.DELIVERED).exists())
    row.refresh_from_db()
    assert (row.state, row.attempts, row.redeliveries, row.due_at) == ("waiting", 8, 1, None)
    assert DeadLetter.objects.count() == 2


def test_what_is_no_message_is_kept_too(topics, running) -> None:  # type: ignore[no-untyped-def]
    sink = DeadLetterSink()
    topic = topics(sink)
    record = malformed_dead_letter(key=None, value=b"\x00\xff", headers=[("x", b"\xff\x00")], stage="s", error="No.")
    produce(topic, record, record)
    running(sink)
    wait_until(lambda: DeadLetter.objects.count() == 2)
    assert {bytes(row.body) for row in DeadLetter.objects.all()} == {b"\x00\xff"}


def test_each_record_is_written_once_through_restarts_of_worker_and_database(  # type: ignore[no-untyped-def]
    topics, running, postgresql: Server
) -> None:
    sink = UsageSink()
    topic = topics(sink)
    workspace, pipeline = str(uuid.uuid4()), str(uuid.uuid4())

    def send(count: int) -> None:
        made = (message(pipeline) for _ in range(count))
        produce(topic, *(billing_event(sent, workspace_id=workspace, output="out") for sent in made))

    def counted() -> int:
        return sum(UsageMinute.objects.filter(pipeline_id=pipeline).values_list("deliveries", flat=True))

    send(5000)
    worker = running(sink)
    wait_until(lambda: counted() > 0)
    worker.stop()
    running(sink)
    running(sink)  # a second one takes a share
    send(3000)
    wait_until(lambda: counted() >= 8000)
    assert counted() == 8000
    assert sum(SinkOffset.objects.filter(sink=sink.name).values_list("next_offset", flat=True)) == 8000
    assert sum(UsageMinute.objects.filter(pipeline_id=pipeline).values_list("bytes", flat=True)) == 8000 * 7


def test_attempts_go_to_the_partition_of_their_day_and_leave_with_it(topics, running) -> None:  # type: ignore[no-untyped-def]
    partitions_ensure()
    sink = AttemptSink()
    topic = topics(sink)
    sent = message(str(uuid.uuid4()))
    attempts = [
        Try(utc_now(), 1, 12.5, "500", "http_500", "It answered\x00 500.", "oops"),
        Try("2020-01-01T00:00:00.000Z", 2, 3.0, "200"),
    ]
    produce(topic, *(attempt_record(sent, one, workspace_id=str(uuid.uuid4()), output="out") for one in attempts))
    running(sink)
    wait_until(lambda: Attempt.objects.filter(message_id=sent.id).count() == 2)
    first = Attempt.objects.get(message_id=sent.id, number=1)
    assert (first.status, first.error, first.response) == ("500", "It answered 500.", "oops")
    partitions_drop(keep_days=7)
    assert Attempt.objects.filter(message_id=sent.id).count() == 1


def test_attempts_of_a_day_without_a_partition_move_to_it_once_it_is_made(db: None) -> None:
    partitions_ensure()
    at = datetime.now(UTC) + timedelta(days=1)
    day = f"deliveries_attempt_{at:%Y%m%d}"
    attempt = Attempt(
        id=uuid.uuid4(), workspace_id=uuid.uuid4(), pipeline_id=uuid.uuid4(), version=1, at=at, number=1, milliseconds=1
    )
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {day}")
        attempt.save(force_insert=True)
        cursor.execute("SELECT count(*) FROM deliveries_attempt_default WHERE id = %s", [attempt.id])
        assert cursor.fetchone() == (1,)
        partitions_ensure()
        cursor.execute(f"SELECT count(*) FROM {day} WHERE id = %s", [attempt.id])
        assert cursor.fetchone() == (1,)
    assert Attempt.objects.filter(id=attempt.id).count() == 1


@pytest.fixture
def adapted(pipeline_topics: None) -> int:
    """Where in its topic begins what redelivery puts back."""
    return end_offset(routing.ADAPTED)


def put_back(pipeline_id: str, offset: int, topic: str = routing.ADAPTED) -> list[Message]:
    """What came back for the pipeline from this offset on. A round of redelivery ends after Kafka's acknowledgement."""
    messages = [
        Message.from_kafka(key=record.key(), value=record.value(), headers=record.headers() or [])  # type: ignore[arg-type]
        for record in records_of(topic, offset)
    ]
    return [message for message in messages if message.pipeline_id == pipeline_id]


def waiting(pipeline_id: uuid.UUID, count: int, **fields: object) -> list[DeadLetter]:
    now = datetime.now(UTC)
    return DeadLetter.objects.bulk_create(
        DeadLetter(
            **{
                "pipeline_id": pipeline_id,
                "output": "out",
                "stage": "syndicating",
                "message_id": new_message_id(),
                "version": 1,
                "reason": "http_500",
                "key": b"k",
                "body": b"{}",
                "body_bytes": 2,
                "first_at": now - timedelta(seconds=count - number),
                "last_at": now,
                "due_at": now,
                "headers": {"routing-slip": "", "traceparent": "t"},
            }
            | fields  # type: ignore[arg-type]
        )
        for number in range(count)
    )


def waits_for_locks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
        row: tuple[int] = cursor.fetchone()  # type: ignore[assignment]
        return row[0]


def redrive(pipeline: Pipeline) -> None:
    letters, actor = DeadLetter.objects.filter(pipeline_id=pipeline.pk), factories.admin_of(pipeline.workspace)
    dead_letters_redrive(
        letters=letters, workspace=pipeline.workspace, actor=actor, filter={}, use_current_version=False
    )


def discard(pipeline: Pipeline) -> None:
    letters, actor = DeadLetter.objects.filter(pipeline_id=pipeline.pk), factories.admin_of(pipeline.workspace)
    dead_letters_discard(letters=letters, workspace=pipeline.workspace, actor=actor, filter={}, reason="No.")


def expire(_: Pipeline) -> None:
    retention.dead_letters_expire(keep=timedelta(days=1), most_bytes=10**9)


def take_up_again(_: Pipeline) -> None:
    Redelivery().round()


@pytest.mark.parametrize("change", [redrive, discard, expire, take_up_again])
def test_whoever_changes_dead_letters_never_deadlocks_with_the_sink(  # type: ignore[no-untyped-def]
    topics, running, redis_server: Server, caplog: pytest.LogCaptureFixture, change: Callable[[Pipeline], None]
) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    long_ago = datetime.now(UTC) - timedelta(days=2)
    claimed = {"state": "redelivering", "claimed_at": long_ago} if change is take_up_again else {}
    rows = waiting(pipeline.pk, 5, first_at=long_ago, due_at=None, **claimed)
    sink = DeadLetterSink()
    again = [replace(message(str(pipeline.pk)), id=row.message_id, key=b"one partition") for row in reversed(rows)]
    produce(topics(sink), *(failed(sent, "http_503") for sent in again))
    with ThreadPoolExecutor(1) as executor:
        # Each of the two locks the letters before this one, in its own order, and waits.
        with transaction.atomic():
            DeadLetter.objects.select_for_update().get(pk=rows[2].pk)
            running(sink)
            wait_until(lambda: waits_for_locks() == 1)
            changed = executor.submit(in_own_connection, change, pipeline)
            wait_until(lambda: waits_for_locks() == 2)
        changed.result()
    wait_until(lambda: DeadLetter.objects.filter(pipeline_id=pipeline.pk, reason="http_503").count() == len(rows))
    assert "deadlock" not in caplog.text


def in_own_connection(change: Callable[[Pipeline], None], pipeline: Pipeline) -> None:
    try:
        change(pipeline)
    finally:
        connection.close()


def test_a_round_never_reads_through_all_dead_letters(redis_server: Server) -> None:
    for state in (DeadLetter.State.DISCARDED, DeadLetter.State.WAITING):
        for _ in range(2):
            later = datetime.now(UTC) + timedelta(hours=1)
            [one] = waiting(uuid.uuid4(), 1, state=state, reason="rate_limited", due_at=later)
            factories.copies(
                one, 5_000, message_id="gen_random_uuid()::text", first_at="original.first_at - n * '1 s'::interval"
            )
    with connection.cursor() as cursor, CaptureQueriesContext(connection) as captured:
        cursor.execute("ANALYZE deliveries_deadletter")
        Redelivery().round()
    queries = [one["sql"] for one in captured if re.match(r"\s*(SELECT|UPDATE|WITH)", one["sql"])]
    assert len(queries) >= 3
    with connection.cursor() as cursor:
        for query in queries:
            cursor.execute(f"EXPLAIN ANALYZE {query}")
            plan = "\n".join(row[0] for row in cursor.fetchall())
            assert "Seq Scan" not in plan
            assert all(float(rows) < 10 for rows in re.findall(r"actual time.* rows=([\d.]+)", plan)), plan


def test_due_dead_letters_go_back_oldest_first_for_their_output_only(adapted: int, redis_server: Server) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    rows = waiting(pipeline.pk, 3)
    waiting(pipeline.pk, 1, due_at=datetime.now(UTC) + timedelta(hours=1))
    waiting(pipeline.pk, 1, due_at=None)
    waiting(pipeline.pk, 1, stage="adapting", output="")  # not redeliverable
    assert Redelivery().round() == 3
    redelivered = put_back(str(pipeline.pk), adapted)
    assert [one.id for one in redelivered] == [row.message_id for row in rows]
    once, redelivery = redelivered[0].split_redelivery()
    assert redelivery is not None
    assert (redelivery.dead_letter, redelivery.output) == (str(rows[0].pk), "out")
    assert once.extra == {"traceparent": "t"}
    assert Redelivery().round() == 0
    assert {row.state for row in DeadLetter.objects.filter(pk__in=[row.pk for row in rows])} == {"redelivering"}


def test_an_open_breaker_lets_nothing_through_and_its_end_one(adapted: int, redis_server: Server) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    waiting(pipeline.pk, 3)
    key = OutputKey(str(pipeline.pk), "out")
    client = redis.from_url(REDIS_URL)
    now = datetime.now(UTC).timestamp()
    client.hset(key.breaker, mapping={"state": "open", "until": now + 3600})
    other = factories.make_pipeline(pipeline.workspace)
    waiting(other.pk, 1)
    assert Redelivery().round() == 1  # the other pipeline's
    client.hset(key.breaker, "until", now - 1)
    assert Redelivery().round() == 1
    assert Redelivery().round() == 0  # one probe is enough
    client.hset(key.breaker, "state", "closed")
    assert Redelivery().round() == 2


def test_a_rate_limit_lets_as_many_through_as_it_has_tokens(adapted: int, redis_server: Server) -> None:
    workspace = factories.make_workspace()
    limited = factories.output(factories.make_connector(workspace), rate_limit={"messages": 5, "period_seconds": 1})
    pipeline = factories.make_pipeline(workspace, outputs=[limited])
    pipeline.published = pipeline.versions.first()
    pipeline.save()
    waiting(pipeline.pk, 20, reason="rate_limited")
    assert Redelivery().round() == 5
    assert Redelivery().round() == 0
    assert redis.from_url(REDIS_URL).exists(OutputKey(str(pipeline.pk), "out").backlog)


def test_the_rate_limit_of_a_version_that_an_earlier_release_stored_holds(
    adapted: int, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    publish(pipeline)
    version = pipeline.published
    assert version is not None
    version.config["outputs"][0]["limit_of_a_second"] = 5
    version.save()

    def upgrade(data: dict[str, Any], _: int) -> dict[str, Any]:
        output = dict(data["outputs"][0])
        limit = {"messages": output.pop("limit_of_a_second"), "period_seconds": 1}
        return data | {"outputs": [output | {"rate_limit": limit}]}

    monkeypatch.setattr(PipelineConfig, "schema_version", PipelineConfig.schema_version + 1)
    monkeypatch.setattr(PipelineConfig, "upgrade", upgrade)
    waiting(pipeline.pk, 20, reason="rate_limited")
    assert Redelivery().round() == 5


def test_neighbours_9_a_hold_keeps_back_what_is_redelivered(adapted: int, redis_server: Server) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    rows = waiting(pipeline.pk, 3)  # due now, as a person's redelivery makes them
    other = factories.make_pipeline(pipeline.workspace)
    waiting(other.pk, 1)
    until = time.time() + 600
    client, key = redis.from_url(REDIS_URL), OutputKey(str(pipeline.pk), "out")
    client.set(key.hold, until)
    assert Redelivery().round() == 4  # three are put off
    assert Redelivery().round() == 0
    for row in rows:
        row.refresh_from_db()
        assert (row.state, row.reason, row.redeliveries) == ("waiting", "rate_limited", 0)
        assert row.due_at is not None
        assert row.due_at.timestamp() == pytest.approx(until, abs=0.01)
        assert "asked to be left alone until" in row.error
    assert len(put_back(str(other.pk), adapted)) == 1
    client.delete(key.hold)
    DeadLetter.objects.filter(pipeline_id=pipeline.pk).update(due_at=datetime.now(UTC))
    assert Redelivery().round() == 3


def test_neighbours_7_an_output_gets_as_many_back_as_it_takes(adapted: int, redis_server: Server) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    waiting(pipeline.pk, 1000)
    letters, redelivery = DeadLetter.objects.filter(pipeline_id=pipeline.pk), Redelivery()

    def rounds(outcome: str) -> list[int]:
        """How many go in each of six rounds that end so."""
        gone = []
        for _ in range(6):
            gone.append(redelivery.round())
            assert redelivery.round() == 0  # until some have ended
            letters.filter(state="redelivering").update(state=outcome, claimed_at=None)
        return gone

    assert rounds("waiting") == [8] * 6
    assert rounds("delivered") == [8, 16, 32, 64, 128, 256]
    assert rounds("waiting") == [496, 334, 223, 149, 99, 66]
    assert redelivery.round() == 44


def test_neighbours_7_a_limit_on_the_rate_is_no_failure(adapted: int, redis_server: Server) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    waiting(pipeline.pk, 100)
    letters, redelivery = DeadLetter.objects.filter(pipeline_id=pipeline.pk), Redelivery()
    assert redelivery.round() == 8
    letters.filter(state="redelivering").update(state="delivered", claimed_at=None)
    assert redelivery.round() == 16
    letters.filter(state="redelivering").update(state="waiting", claimed_at=None, reason="rate_limited")
    assert redelivery.round() == 16


def test_a_claim_that_nobody_finished_is_taken_up_again(adapted: int, redis_server: Server) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    [row] = waiting(pipeline.pk, 1, state="redelivering", claimed_at=long_ago)
    assert Redelivery().round() == 1
    row.refresh_from_db()
    assert row.claimed_at is not None
    assert row.claimed_at > long_ago


def test_it_goes_out_under_the_version_then_or_the_current_one(adapted: int, redis_server: Server) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    pipeline.published = pipeline.versions.create(
        number=2,
        config=pipeline.versions.first().config,  # type: ignore[union-attr]
        schema_version=PipelineConfig.schema_version,
        author=factories.make_user(),
    )
    pipeline.save()
    waiting(pipeline.pk, 1)
    waiting(pipeline.pk, 1, use_current_version=True)
    Redelivery().round()
    assert sorted(one.version for one in put_back(str(pipeline.pk), adapted)) == [1, 2]


def publish(pipeline: Pipeline, **config: object) -> None:
    pipeline.published = pipeline.versions.create(
        number=2,
        config=PipelineConfig.model_validate(pipeline.versions.first().config | config).model_dump(mode="json"),  # type: ignore[union-attr]
        schema_version=PipelineConfig.schema_version,
        author=factories.make_user(),
    )
    pipeline.save()


INDEX_COUNTRY = [{"name": "country", "path": "country", "type": "string"}]
SET_ONE = [{"type": "set", "path": "one", "value": 1}]


@pytest.mark.usefixtures("pipeline_topics", "redis_server")
@pytest.mark.parametrize(
    ("stage", "slip", "config", "expected"),
    [
        # It never got through the transforms: a stage that was added lies ahead of it, one that was removed does not.
        ("adapting_transformer", "firehose_adapted", {"transforms": SET_ONE, "index": INDEX_COUNTRY},
         (routing.TRANSFORMER, (routing.FILTER, routing.ADAPTED), None)),
        ("adapting_transformer", "firehose_filter,firehose_adapted", {}, (routing.INPUT, (routing.ADAPTED,), None)),
        ("adapting_transformer", "firehose_adapted", {"index": INDEX_COUNTRY},
         (routing.INPUT, (routing.FILTER, routing.ADAPTED), '{"country":"BR"}')),
        # It has been transformed already.
        ("filtering", "firehose_adapted", {"transforms": SET_ONE, "index": INDEX_COUNTRY},
         (routing.FILTER, (routing.ADAPTED,), '{"country":"BR"}')),
        ("filtering", "firehose_adapted", {"transforms": SET_ONE}, (routing.ADAPTED, (), None)),
        ("syndicating", "", {"transforms": SET_ONE, "index": INDEX_COUNTRY}, (routing.ADAPTED, (), None)),
    ],
)  # fmt: skip
def test_with_the_current_version_it_passes_that_versions_stages(  # type: ignore[no-untyped-def]
    stage, slip, config, expected
) -> None:
    topic, new_slip, index = expected
    pipeline = factories.make_pipeline(factories.make_workspace())
    publish(pipeline, **config)
    fields = {"stage": stage, "output": "out" if stage == "syndicating" else "", "content_type": "application/json"}
    headers = {"routing-slip": slip, "traceparent": "t"}
    [letter] = waiting(pipeline.pk, 1, body=b'{"country":"BR"}', headers=headers, use_current_version=True, **fields)
    offset = end_offset(topic)
    assert Redelivery().round() == 1
    [sent] = put_back(str(pipeline.pk), offset, topic)
    plain, redelivery = sent.split_redelivery()
    assert (redelivery.dead_letter, redelivery.output) == (str(letter.pk), letter.output)  # type: ignore[union-attr]
    assert (plain.id, plain.version, plain.key, plain.slip) == (letter.message_id, 2, b"k", new_slip)
    assert plain.extra == {"traceparent": "t"} | ({} if index is None else {INDEX: index})


def test_an_expired_one_that_is_met_again_waits_with_its_body(topics, running) -> None:  # type: ignore[no-untyped-def]
    pipeline = factories.make_pipeline(factories.make_workspace())
    sink = DeadLetterSink()
    topic = topics(sink)
    sent = message(str(pipeline.pk))
    running(sink)
    produce(topic, failed(sent, retryable=True))
    wait_until(DeadLetter.objects.exists)
    DeadLetter.objects.update(first_at=datetime.now(UTC) - timedelta(days=40))
    assert retention.dead_letters_expire(keep=timedelta(days=30), most_bytes=10**9) == 1
    produce(topic, failed(sent, "http_503", retryable=True))
    wait_until(lambda: DeadLetter.objects.filter(reason="http_503").exists())
    row = DeadLetter.objects.get()
    assert (row.state, bytes(row.body), row.body_bytes) == ("waiting", sent.body, len(sent.body))
    assert (row.closed_at, row.closed_why) == (None, "")
    assert row.due_at is not None
    assert retention.dead_letters_expire(keep=timedelta(days=30), most_bytes=10**9) == 0


def test_a_message_that_fails_at_a_later_stage_is_another_dead_letter(topics, running) -> None:  # type: ignore[no-untyped-def]
    pipeline = factories.make_pipeline(factories.make_workspace())
    sink = DeadLetterSink()
    topic = topics(sink)
    sent = message(str(pipeline.pk))
    transformed = replace(sent, body=b'{"transformed":1}')
    running(sink)
    produce(topic, dead_letter(sent, stage="adapting_transformer", reason="call_failed", error="No."))
    wait_until(DeadLetter.objects.exists)
    first = DeadLetter.objects.get()
    produce(
        topic,
        resolved(sent, str(first.pk)),
        dead_letter(transformed, stage="filtering", reason="unknown_pipeline", error="No."),
    )
    wait_until(lambda: DeadLetter.objects.filter(stage="filtering").exists())
    wait_until(lambda: DeadLetter.objects.get(pk=first.pk).state == "delivered")
    later = DeadLetter.objects.get(stage="filtering")
    assert (later.state, bytes(later.body)) == ("waiting", transformed.body)


def test_what_only_waited_for_its_turn_leaves_nothing_behind(topics, running) -> None:  # type: ignore[no-untyped-def]
    pipeline = factories.make_pipeline(factories.make_workspace())
    sink = DeadLetterSink()
    topic = topics(sink)
    held, broken = message(str(pipeline.pk)), message(str(pipeline.pk))
    running(sink)
    limited = dead_letter(held, stage="syndicating", reason="rate_limited", error="Later.", output="out", due=1.0)
    produce(topic, limited, failed(broken))
    wait_until(lambda: DeadLetter.objects.count() == 2)
    produce(topic, *(resolved(row, str(DeadLetter.objects.get(message_id=row.id).pk)) for row in (held, broken)))
    wait_until(lambda: DeadLetter.objects.filter(state="delivered").exists())
    assert [row.message_id for row in DeadLetter.objects.all()] == [broken.id]


def test_what_is_done_with_is_removed_after_a_while(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_BATCH", 7)
    pipeline, now = uuid.uuid4(), datetime.now(UTC)
    for state in DeadLetter.State:
        waiting(pipeline, 10, state=state, closed_at=now - timedelta(days=15))
        waiting(pipeline, 1, state=state, closed_at=now - timedelta(days=13))
    waiting(pipeline, 10, state="expired", closed_at=now - timedelta(days=31))
    assert retention.dead_letters_remove(closed=timedelta(days=14), expired=timedelta(days=30)) == 30
    counts = {state: DeadLetter.objects.filter(state=state).count() for state in DeadLetter.State}
    assert counts == {"waiting": 11, "redelivering": 11, "delivered": 1, "discarded": 1, "expired": 11}


def test_a_workspace_loses_no_bodies_to_another_that_needs_more_room(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_BATCH", 7)
    pipeline, now = uuid.uuid4(), datetime.now(UTC)
    modest, flooding, malformed = uuid.uuid4(), uuid.uuid4(), None
    hundred: dict[str, object] = {"body": b"x" * 100, "body_bytes": 100}
    old = {"first_at": now - timedelta(days=3)}
    waiting(pipeline, 4, workspace_id=modest, **old, **hundred)
    waiting(pipeline, 4, workspace_id=malformed, **old, **hundred)
    flood = waiting(pipeline, 50, workspace_id=flooding, **hundred)
    assert retention.dead_letters_expire(keep=timedelta(days=30), most_bytes=2000) == 38
    left = DeadLetter.objects.filter(state="waiting")
    assert left.filter(workspace_id=modest).count() == left.filter(workspace_id=malformed).count() == 4
    newest = sorted(flood, key=lambda letter: letter.first_at)[-12:]
    assert set(left.filter(workspace_id=flooding)) == set(newest)
    assert not DeadLetter.objects.filter(state="expired").exclude(body=b"").exists()
    assert retention.dead_letters_expire(keep=timedelta(days=30), most_bytes=2000) == 0
    # Two that need more than their share lose as much of it each.
    assert retention.dead_letters_expire(keep=timedelta(days=30), most_bytes=900) == 11
    counts = [left.filter(workspace_id=one).count() for one in (modest, flooding, malformed)]
    assert counts == [3, 3, 3]
    # What is too old leaves no matter how much room there is.
    assert retention.dead_letters_expire(keep=timedelta(days=2), most_bytes=2000) == 6


def test_a_copy_of_what_was_billed_is_not_sent_again(adapted: int, redis_server: Server) -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    copy, other = waiting(pipeline.pk, 2)
    delivery = Delivery.of(copy.message_id, str(pipeline.pk), "out")
    with transaction.atomic():
        bill([Billing(delivery, str(pipeline.workspace_id), datetime.now(UTC), 2)])
    Redelivery().round()
    assert [one.id for one in put_back(str(pipeline.pk), adapted)] == [other.message_id]
    copy.refresh_from_db()
    assert (copy.state, copy.closed_why) == ("delivered", "It is a copy of a message that was delivered before.")


@pytest.mark.usefixtures("pipeline_topics", "redis_server")
@pytest.mark.parametrize("stage", ["filtering", "adapting_transformer"])
def test_neighbours_2_one_that_the_current_version_makes_too_large_waits_for_a_user_and_the_others_go(
    stage: str,
) -> None:
    fields = [{"name": f"f{number}", "path": "text", "type": "string"} for number in range(3)]
    pipeline = factories.make_pipeline(factories.make_workspace())
    publish(pipeline, index=fields)
    common = {
        "stage": stage, "output": "", "content_type": "application/json", "use_current_version": True,
        "headers": {"routing-slip": "firehose_adapted"},
    }  # fmt: skip
    body = b'{"text":"%s"}' % (b"x" * 30_000)
    [large] = waiting(pipeline.pk, 1, body=body, reason="unknown_pipeline", **common)
    [small] = waiting(pipeline.pk, 1, body=b'{"text":"x"}', **common)
    assert Redelivery().round() == 2
    large.refresh_from_db()
    small.refresh_from_db()
    assert (large.state, large.reason, large.due_at, large.claimed_at) == ("waiting", "too_large", None, None)
    assert "65,536 bytes" in large.error
    assert (small.state, small.sent_at is not None) == ("redelivering", True)
    assert Redelivery().round() == 0


@pytest.mark.usefixtures("pipeline_topics", "redis_server")
def test_one_that_kafka_refuses_waits_for_a_user_and_the_others_go() -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    [large] = waiting(pipeline.pk, 1, body=b"x" * limits.TOPIC_BYTES)
    [small] = waiting(pipeline.pk, 1)
    assert Redelivery().round() == 2
    large.refresh_from_db()
    small.refresh_from_db()
    assert (large.state, large.reason, large.due_at) == ("waiting", "refused_by_kafka", None)
    assert (small.state, small.sent_at is not None) == ("redelivering", True)


@pytest.mark.usefixtures("pipeline_topics", "redis_server")
def test_a_rate_limit_that_cannot_be_read_stops_no_other_output() -> None:
    pipeline = factories.make_pipeline(factories.make_workspace())
    publish(pipeline)
    version = pipeline.published
    assert version is not None
    version.config["outputs"][0]["rate_limit"] = {"messages": "many"}
    version.save()
    other = factories.make_pipeline(pipeline.workspace)
    waiting(pipeline.pk, 1)
    waiting(other.pk, 1)
    assert Redelivery().round() == 2
