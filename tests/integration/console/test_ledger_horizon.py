"""The delivered ledger's horizon moves only past what can have no copies left."""

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from django.utils import timezone

from backend.apps.deliveries import ledger
from backend.apps.deliveries.ledger import UnrecordedReads
from backend.apps.manager.leases import batch_complete, leases_claim, leases_renew
from backend.apps.manager.models import InputLease
from backend.domain import routing
from backend.domain.capabilities import Reading
from backend.domain.stages import ADAPTING, ADAPTING_SLOW, ADAPTING_TRANSFORMER, FILTERING, SYNDICATING, Stage
from backend.kafka.client.ends import first_offsets
from backend.kafka.client.positions import Part, Positions
from backend.manager_api.jobs import Loss
from backend.resilience.scripts import LEDGER_HORIZON
from backend.settings import platform_settings
from spark_jobs.jobs.adapting import Observer, Position
from tests import factories
from tests.infra import KAFKA, REDIS_URL, Server
from tests.integration.kafka_ends import end_offset
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

_STAGES = (ADAPTING, ADAPTING_TRANSFORMER, ADAPTING_SLOW, FILTERING, SYNDICATING)
_MOST_WAITS = 5


@pytest.fixture
def store(redis_server: Server) -> Iterator["redis.Redis"]:
    client = redis.from_url(REDIS_URL)
    client.delete(LEDGER_HORIZON)
    yield client
    client.delete(LEDGER_HORIZON)


@pytest.fixture
def positions(pipeline_topics: None) -> Iterator[Positions]:
    made = Positions(platform_settings().kafka)
    yield made
    made.close()


class PatienceEnds(threading.Event):
    """Is set once it has been waited for so often that what is waited for does not come."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self._waits += 1
        if self._waits == _MOST_WAITS:
            self.set()
        return super().wait(timeout)


@pytest.fixture
def advance(store: "redis.Redis", positions: Positions, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Tries to move the horizon, and tells whether it moved."""
    monkeypatch.setattr(ledger, "_POLL_SECONDS", 0.05)

    def attempt() -> bool:
        before = store.get(LEDGER_HORIZON)
        ledger.horizon_advance(store, positions, PatienceEnds())
        return bool(store.get(LEDGER_HORIZON) != before)

    return attempt


def commit(stage: Stage, back: int = 0) -> None:
    """The stage has handled everything in its topic, but the last ``back`` offsets."""
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": stage.group})
    assert stage.topic
    offset = max(0, end_offset(stage.topic) - back)
    consumer.commit(offsets=[TopicPartition(stage.topic, 0, offset)], asynchronous=False)
    consumer.close()


def put(topic: str, *, transactional: bool = False) -> None:
    config: dict[str, Any] = {"bootstrap.servers": KAFKA}
    producer = Producer(config | {"transactional.id": str(uuid.uuid4())} if transactional else config)
    if transactional:
        producer.init_transactions(20)
        producer.begin_transaction()
    producer.produce(topic, b"{}", b"k")
    if transactional:
        producer.commit_transaction(20)
    assert producer.flush(10) == 0


@pytest.mark.parametrize("stage", _STAGES, ids=lambda stage: stage.name)
def test_it_waits_for_every_stage(advance: Callable[[], bool], store: "redis.Redis", stage: Stage) -> None:
    for one in _STAGES:
        commit(one)
    now: Any = store.time()
    assert advance()
    assert now[0] <= float(store.get(LEDGER_HORIZON) or 0) <= now[0] + 10  # type: ignore[arg-type]
    assert stage.topic
    put(stage.topic)
    assert not advance()
    commit(stage)
    assert advance()


def test_where_nothing_is_added_end_offsets_are_requested_four_times(
    advance: Callable[[], bool], positions: Positions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each of the first and the last stage, and twice for those between, which a message may pass again."""
    for one in _STAGES:
        commit(one)
    requests: list[list[str]] = []
    ends = positions.ends

    def counted(topics: Iterable[str]) -> dict[Part, int]:
        requests.append(list(topics))
        return ends(requests[-1])

    monkeypatch.setattr(positions, "ends", counted)
    assert advance()
    assert len(requests) == 4, requests


@pytest.fixture
def leased(db: None) -> InputLease:
    """An input that a reader is reading."""
    pipeline = factories.make_pipeline(factories.make_workspace())
    pipeline.published = pipeline.versions.first()
    pipeline.save()
    InputLease.objects.create(pipeline=pipeline, reading=Reading.BATCHING, input={})
    return claimed()


def claimed() -> InputLease:
    InputLease.objects.update(visible_at=timezone.now())
    [lease] = leases_claim(reading=Reading.BATCHING, holder="reader", limit=1)
    return lease


def completed(lease: InputLease, failure: str = "", rows: int = 0) -> None:
    assert lease.token is not None
    batch_complete(pipeline_id=lease.pipeline_id, token=lease.token, breakpoint=b"9", failure=failure, rows=rows)


def test_it_waits_for_what_an_input_may_read_again(advance: Callable[[], bool], leased: InputLease) -> None:
    for one in _STAGES:
        commit(one)
    assert not advance()
    completed(leased, failure="The database has gone.", rows=1)  # the batch is read again
    assert not advance()
    again = claimed()
    assert not advance()
    completed(again)
    assert advance()
    completed(claimed(), failure="The password is wrong.")  # nothing was read
    assert advance()


def test_a_reader_that_records_its_progress_holds_nothing_up_and_its_successor_does(leased: InputLease) -> None:
    reads = UnrecordedReads()
    for position, remain in (("1", True), ("1", True), ("2", False)):
        InputLease.objects.update(breakpoint=position)
        assert reads.remain() is remain
    reads = UnrecordedReads()
    InputLease.objects.update(locked_until=timezone.now())  # it dies
    assert reads.remain()
    successor = claimed()
    for position in "3456":
        InputLease.objects.update(breakpoint=position)
        assert reads.remain()
    completed(successor)
    assert not reads.remain()


def test_a_stream_whose_reader_is_alive_holds_nothing_up(leased: InputLease) -> None:
    InputLease.objects.update(reading=Reading.STREAMING)
    reads = UnrecordedReads()
    assert leased.token is not None
    for remain in (True, False):
        leases_renew([(leased.pipeline_id, leased.token)])
        assert reads.remain() is remain


def test_an_input_that_never_comes_to_an_end_does_not_hold_it_for_ever(
    advance: Callable[[], bool], leased: InputLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in _STAGES:
        commit(one)
    monkeypatch.setattr(ledger, "_LONGEST_HOLD_SECONDS", 0.1)
    assert advance()


def test_the_end_of_a_transaction_holds_nothing_up(advance: Callable[[], bool]) -> None:
    put(routing.ADAPTED, transactional=True)
    for one in _STAGES:
        commit(one)
    commit(SYNDICATING, back=1)  # a reader never gets past the mark that ends a transaction
    assert advance()
    commit(SYNDICATING, back=2)
    assert not advance()
    commit(SYNDICATING)


def test_a_query_whose_checkpoint_was_lost_goes_on_where_it_was(positions: Positions) -> None:
    lost: list[Loss] = []
    put(routing.INPUT)
    part = (routing.INPUT, 0)
    end = end_offset(routing.INPUT)
    progress = {"batchId": 7, "sources": [{"endOffset": json.dumps({routing.INPUT: {"0": end}})}]}
    Position(platform_settings().kafka).keep(SimpleNamespace(lastProgress=None))  # type: ignore[arg-type]
    position = Position(platform_settings().kafka)
    position.keep(SimpleNamespace(lastProgress=progress))  # type: ignore[arg-type]
    wait_until(lambda: positions.committed(ADAPTING.group, [part]) == {part: end})
    assert Observer(platform_settings().kafka, 5, lost.append).starts(Position(platform_settings().kafka).kept()) == {
        0: end
    }
    progress = {"batchId": 8, "sources": [{"endOffset": json.dumps({routing.INPUT: {"0": end + 1000}})}]}
    position.keep(SimpleNamespace(lastProgress=progress))  # type: ignore[arg-type]
    wait_until(lambda: positions.committed(ADAPTING.group, [part]) == {part: end + 1000})
    # Nothing is there: from the first.
    first = first_offsets(AdminClient({"bootstrap.servers": KAFKA}), {routing.INPUT})[part]
    assert Observer(platform_settings().kafka, 5, lost.append).starts(Position(platform_settings().kafka).kept()) == {
        0: first
    }
    assert not lost
    commit(ADAPTING)
