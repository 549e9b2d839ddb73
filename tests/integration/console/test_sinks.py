"""What the sinks do with records that can never be written: these are set aside, and the others go on."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.apps.deliveries import events
from backend.apps.deliveries.models import Attempt, DeadLetter, OutputEvent
from backend.apps.deliveries.sinks import AttemptSink, DeadLetterSink
from backend.apps.kafka_sink.models import QuarantinedRecord, SinkOffset
from backend.apps.kafka_sink.sink import Sink, run
from backend.apps.monitoring import history
from backend.apps.monitoring.models import CountMinute
from backend.apps.monitoring.prometheus import exposition
from backend.apps.usage.models import UsageMinute
from backend.apps.usage.sinks import UsageSink
from backend.apps.workspaces.models import Workspace
from backend.domain import json, routing
from backend.domain.message import DEAD_DUE, Message, new_message_id, utc_now
from backend.domain.records import Attempt as Try
from backend.domain.records import Record, attempt_record, billing_event, dead_letter
from backend.kafka.client.topics import Topic, topic_create
from backend.resilience.scripts import EVENTS, OutputKey
from backend.runtime.positions import positions_reconcile
from backend.telemetry import keys
from tests import factories
from tests.infra import KAFKA, REDIS_URL, Server
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def in_thread() -> Iterator[Callable[..., None]]:
    """Runs a worker until the test ends."""
    stop, threads = threading.Event(), []

    def start(worker: Callable[..., None], *arguments: Any) -> None:
        threads.append(threading.Thread(target=worker, args=(*arguments, stop)))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join()


@pytest.fixture
def written(
    kafka: Server, monkeypatch: pytest.MonkeyPatch, in_thread: Callable[..., None]
) -> Callable[[Sink, list[Record]], str]:
    """Starts a sink on a topic of its own, which has these records, and returns the topic."""

    def start(sink: Sink, records: list[Record]) -> str:
        topic = f"{sink.name}-{uuid.uuid4()}"
        admin = AdminClient({"bootstrap.servers": KAFKA})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        monkeypatch.setattr(type(sink), "topic", topic)
        monkeypatch.setattr(type(sink), "name", topic[:50])
        producer = Producer({"bootstrap.servers": KAFKA})
        for record in records:
            producer.produce(topic, record.value, record.key, headers=list(record.headers))
        assert producer.flush(LIMIT_SECONDS) == 0
        in_thread(run, sink)
        return topic

    return start


def message(**fields: Any) -> Message:
    message_id = new_message_id()
    values = {"id": message_id, "pipeline_id": str(uuid.uuid4()), "version": 1, "key": message_id.encode()}
    values |= {"body": b"{}", "content_type": "application/json", "received_at": utc_now(), "slip": ()}
    return Message(**values | fields)


def attempt(workspace: str, **fields: Any) -> Record:
    tried = Try(**{"at": utc_now(), "number": 1, "milliseconds": 1.0, "status": "200"} | fields)
    return attempt_record(message(), tried, workspace_id=workspace, output="out")


def quarantined(topic: str) -> list[QuarantinedRecord]:
    return list(QuarantinedRecord.objects.filter(position__startswith=topic).order_by("pk"))


def test_attempts_that_cannot_be_written_stop_nobody(written: Callable[..., str]) -> None:
    workspace = str(uuid.uuid4())
    good = [attempt(workspace) for _ in range(40)]
    faulty = [
        attempt(workspace, number=100_000),  # more than the column holds
        Record("", None, b"no JSON", [("trace", b"\xff")]),
        Record("", None, b'{"message_id": "no more than that"}', []),
    ]
    topic = written(AttemptSink(), [*good[:20], *faulty, *good[20:]])
    wait_until(lambda: Attempt.objects.filter(workspace_id=workspace).count() == len(good))
    wait_until(lambda: len(quarantined(topic)) == len(faulty))
    kept = quarantined(topic)
    assert [record.position for record in kept] == [f"{topic}[0]@{offset}" for offset in (20, 21, 22)]
    assert [bytes(record.value) for record in kept] == [record.value for record in faulty]
    assert [record.reason for record in kept] == ["DataError", "DecodeError", "ValidationError"]
    assert kept[1].headers == [["trace", "/w=="]]


def test_a_receivers_words_are_cut_to_their_columns(written: Callable[..., str]) -> None:
    workspace = str(uuid.uuid4())
    topic = written(AttemptSink(), [attempt(workspace, status="4" * 500, reason="long " * 100)])
    wait_until(lambda: Attempt.objects.filter(workspace_id=workspace).exists())
    stored = Attempt.objects.get(workspace_id=workspace)
    assert (len(stored.status), len(stored.reason)) == (200, 100)
    assert not quarantined(topic)


def test_usage_goes_on_behind_an_event_that_cannot_be_written(written: Callable[..., str]) -> None:
    pipeline = str(uuid.uuid4())
    good = [billing_event(message(pipeline_id=pipeline), workspace_id=str(uuid.uuid4()), output="out") for _ in "1234"]
    huge = json.loads(good[0].value) | {"bytes": 2**80, "message_id": new_message_id()}
    long = json.loads(good[0].value) | {"output": "x" * 64, "message_id": new_message_id()}
    stray = json.loads(good[0].value) | {"workspace_id": "none", "message_id": new_message_id()}
    faulty = [Record("", None, json.dumps(event), []) for event in (huge, long, stray)]
    topic = written(UsageSink(), [*good[:2], *faulty, *good[2:]])
    wait_until(lambda: sum(UsageMinute.objects.filter(pipeline_id=pipeline).values_list("deliveries", flat=True)) == 4)
    wait_until(lambda: len(quarantined(topic)) == 3)


def test_dead_letters_go_on_behind_one_that_cannot_be_written(written: Callable[..., str]) -> None:
    good = [dead_letter(message(), stage="syndicating", reason="http_500", error="No.", output="out") for _ in "1234"]
    dues = [b"1e300", b"1e17", b"-1e12", b"nan", b"tomorrow"]
    faulty = [Record("", b"k", b"{}", [*good[0].headers, (DEAD_DUE, due)]) for due in dues]
    odd = dead_letter(
        message(version=2**40), stage="a\x00b", reason="\x00", error="\x00", output="\x00", attempts=2**40
    )
    topic = written(DeadLetterSink(), [good[0], *faulty, odd, *good[1:]])
    wait_until(lambda: DeadLetter.objects.count() == 5)
    wait_until(lambda: len(quarantined(topic)) == len(dues))


def test_breaker_events_go_on_behind_one_that_cannot_be_written(
    redis_server: Server, in_thread: Callable[..., None]
) -> None:
    client = redis.from_url(REDIS_URL)
    client.delete(EVENTS)
    call = OutputKey(str(uuid.uuid4()), f"API-{'x' * 63}")  # the longest name of an external call
    good = {"output": call.name(), "state": "open", "until": "5.0", "cause": "It failed.\x00"}
    client.xadd(EVENTS, good)
    entries = [{"output": "no JSON"}, {"cause": b"\xff"}, good | {"state": "x" * 50}, good | {"until": "1e300"}]
    bad = [client.xadd(EVENTS, entry) for entry in entries]
    client.xadd(EVENTS, good | {"state": "closed"})
    in_thread(events.run)
    wait_until(lambda: OutputEvent.objects.count() == 2)
    assert [event.cause for event in OutputEvent.objects.all()] == ["It failed."] * 2
    assert [record.position for record in quarantined(EVENTS)] == [f"{EVENTS}@{entry.decode()}" for entry in bad]
    client.delete(EVENTS)


def test_neighbours_3_counts_go_on_behind_a_minute_that_cannot_be_written(
    workspace: Workspace, redis_server: Server
) -> None:
    client = redis.from_url(REDIS_URL)
    pipeline = str(factories.make_pipeline(workspace).pk)
    minute = int(time.time()) // 60 - 5
    bad = [{"a\x00b|0": 1}, {b"\xff|0": 1}, {"input.accepted|0": "many"}, {"input.accepted|0": "9" * 5000}]
    for number, counts in enumerate([{"input.accepted|0": 1}, *bad, {"input.accepted|0": 2}]):
        client.hset(keys.by_second(pipeline, minute - number), mapping=counts)
    for _ in range(2):
        history.fold(minute - len(bad) - 1, minute)
    rows = CountMinute.objects.filter(pipeline_id=pipeline).order_by("minute")
    assert [row.counts for row in rows] == [{"input.accepted": 2}, {"input.accepted": 1}]
    assert [record.sink for record in quarantined(f"headrace:counts:second:{pipeline}")] == ["count_history"] * len(bad)


def test_what_is_set_aside_is_counted_and_shown(written: Callable[..., str], redis_server: Server) -> None:
    topic = written(AttemptSink(), [Record("", None, b"no JSON", [])])
    wait_until(lambda: len(quarantined(topic)) == 1)
    line = f'headrace_quarantined_records{{reason="DecodeError",sink="{topic[:50]}"}} 1.0'
    assert line in exposition().decode()


def test_a_topic_that_was_created_again_is_read_from_its_first_record(
    kafka: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the loss of Kafka's data: the position in the database is one in the former topic."""
    topic = f"again-{uuid.uuid4()}"
    monkeypatch.setattr(AttemptSink, "topic", topic)
    monkeypatch.setattr(AttemptSink, "name", topic[:50])
    monkeypatch.setattr(routing, "TOPICS", (topic,))
    named = []
    for count in (3, 5):
        # Clients of this round only: librdkafka 2.9 ends the process when it destroys one that knows two topics of the
        # same name (a segmentation fault in rd_kafka_metadata_cache_purge).
        admin, producer = AdminClient({"bootstrap.servers": KAFKA}), Producer({"bootstrap.servers": KAFKA})
        topic_create(admin, Topic(topic, 1, 1))
        named.append(positions_reconcile(admin))
        workspace, stop = str(uuid.uuid4()), threading.Event()
        for record in [attempt(workspace) for _ in range(count)]:
            producer.produce(topic, record.value, record.key, headers=list(record.headers))
        assert producer.flush(LIMIT_SECONDS) == 0
        sink = threading.Thread(target=run, args=(AttemptSink(), stop))
        sink.start()
        try:
            wait_until(
                lambda workspace=workspace, count=count: Attempt.objects.filter(workspace_id=workspace).count() == count
            )
        finally:
            stop.set()
            sink.join()
        admin.delete_topics([topic])[topic].result()
        wait_until(lambda admin=admin: topic not in admin.list_topics(timeout=LIMIT_SECONDS).topics)
    assert named == [[], [f"The topic {topic} was created again: it is read from its first record."]]
    assert SinkOffset.objects.get(sink=topic[:50]).next_offset == 5
