"""How far the adapting query is behind, which it only tells when a batch ends."""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from django.conf import settings

from backend.apps.jobs.lag import stage_lags
from backend.apps.jobs.models import SparkJob
from backend.domain import routing
from backend.domain.stages import COLLECTIONS
from backend.kafka.client.ends import end_offsets
from backend.telemetry import keys
from tests.infra import KAFKA, REDIS_URL, Server
from tests.integration.kafka_ends import end_offset
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.django_db

JOB = "lag"


@pytest.fixture
def store(redis_server: Server) -> Iterator["redis.Redis"]:
    client = redis.from_url(REDIS_URL)
    SparkJob.objects.exclude(name=JOB).delete()
    SparkJob.objects.create(name=JOB, stages=["adapting"])
    yield client
    client.delete(keys.job_heartbeat(JOB))


@pytest.fixture
def came_since(pipeline_topics: None) -> dict[str, int]:
    """Three messages; where the topic ended before them."""
    ends = end_offsets(AdminClient({"bootstrap.servers": KAFKA}), {routing.INPUT})
    producer = Producer({"bootstrap.servers": KAFKA})
    for _ in range(3):
        producer.produce(routing.INPUT, b"{}", headers=[("message-id", b"-")])
    assert producer.flush(LIMIT_SECONDS) == 0
    return {str(partition): end for (_, partition), end in ends.items()}


def beat(store: "redis.Redis", **stage: Any) -> None:
    store.set(keys.job_heartbeat(JOB), json.dumps({"at": time.time(), "stages": {"adapting": stage}}))


def test_before_the_first_end_nothing_is_known(store: "redis.Redis", pipeline_topics: None) -> None:
    beat(store, state="running")
    assert "adapting" not in stage_lags()


def test_while_a_batch_may_be_under_way_what_it_was_behind_at_the_last_end_counts(
    store: "redis.Redis", came_since: dict[str, int]
) -> None:
    beat(store, offsets=came_since, behind=7, ended_at=time.time() - 20)
    assert stage_lags()["adapting"] == 7


def test_once_the_batch_is_overdue_all_that_came_since_waits(store: "redis.Redis", came_since: dict[str, int]) -> None:
    overdue = time.time() - settings.CONSOLE.adapting_batch_seconds - 60
    beat(store, offsets=came_since, behind=7, ended_at=overdue)
    assert stage_lags()["adapting"] == 3


def in_transaction(count: int, *, commit: bool = True) -> None:
    """Returns once its marker is there, which the broker writes a little later."""
    before = end_offset(routing.COLLECTION)
    producer = Producer({"bootstrap.servers": KAFKA, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(LIMIT_SECONDS)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(routing.COLLECTION, b"{}", partition=0)
    assert producer.flush(LIMIT_SECONDS) == 0
    producer.commit_transaction(LIMIT_SECONDS) if commit else producer.abort_transaction(LIMIT_SECONDS)
    wait_until(lambda: end_offset(routing.COLLECTION) == before + count + 1)


def test_markers_of_transactions_and_what_was_aborted_do_not_wait(store: "redis.Redis", pipeline_topics: None) -> None:
    in_transaction(2)
    reader = Consumer({"bootstrap.servers": KAFKA, "group.id": COLLECTIONS.group})
    read = TopicPartition(routing.COLLECTION, 0, end_offset(routing.COLLECTION) - 1)  # behind the last record
    reader.commit(offsets=[read], asynchronous=False)
    assert stage_lags()["collections"] == 0
    in_transaction(3, commit=False)
    assert stage_lags()["collections"] == 0
    in_transaction(4)
    assert stage_lags()["collections"] == 4
    assert stage_lags()["collections"] == 4  # as it is known by now
    in_transaction(50)
    assert stage_lags()["collections"] > 50
    reader.close()
