"""From a message that is to be delivered to its file and its bill, whatever dies between any two steps."""

import json
import signal
import uuid
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from django.db import connection
from django.db.models import Sum
from django.utils import timezone
from psycopg.conninfo import make_conninfo

from backend.apps.exports import services
from backend.apps.exports.models import Export
from backend.apps.kafka_sink.models import SinkOffset
from backend.apps.pipelines.models import Pipeline
from backend.apps.usage.models import UsageMinute
from backend.apps.usage.sinks import UsageSink
from backend.domain import routing
from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import SYNDICATING
from backend.kafka.client.ends import end_offsets
from tests.infra import FILES_ROOT, KAFKA
from tests.integration.conftest import RunningManager
from tests.integration.delivery_jobs import BILLING
from tests.integration.exports.stores import message_of, stage_from_here, storing_pipeline, visible
from tests.integration.exports.test_exporter import STEPS
from tests.integration.task_process import TaskProcess
from tests.waiting import LIMIT_SECONDS, wait_until_async

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server", "pipeline_topics", "secret_keys"),
]

DELIVERY_STEPS = ("begun", "results_sent", "offsets_sent", "delivered")
BILLING_STEPS = ("billing_read", "billed", "billing_committed")
MESSAGES = 400
"""That are handed over before each kill of the delivery, so that no message sees many of them: a message that seems to
end its workers is set aside."""
ROWS = 1000


@contextmanager
def task(stage: str, **environment: str) -> Iterator[TaskProcess]:
    started = TaskProcess(stage, **environment)
    try:
        yield started
    finally:
        started.close()


def database_url() -> str:
    settings = connection.settings_dict
    return make_conninfo(
        host=settings["HOST"],
        port=settings["PORT"],
        dbname=settings["NAME"],
        user=settings["USER"],
        password=settings["PASSWORD"],
    )


@sync_to_async
def begin_here() -> None:
    """Earlier tests' records in the topics are not this test's."""
    stage_from_here()
    ends = end_offsets(AdminClient({"bootstrap.servers": KAFKA}), {routing.ADAPTED, routing.BILLING})
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": SYNDICATING.group})
    offsets = [TopicPartition(topic, part, end) for (topic, part), end in ends.items() if topic == routing.ADAPTED]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    for (topic, partition), end in ends.items():
        if topic == routing.BILLING:
            SinkOffset.objects.create(sink=UsageSink.name, partition=partition, next_offset=end)


@sync_to_async
def to_be_delivered(messages: list[Message]) -> None:
    producer = Producer({"bootstrap.servers": KAFKA})
    for message in messages:
        record = Record.of(routing.ADAPTED, message)
        producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
    assert producer.flush(LIMIT_SECONDS) == 0


@sync_to_async
def stored_messages(pipeline: Pipeline) -> int:
    """Messages in files that are committed."""
    committed = Export.objects.filter(pipeline_id=pipeline.pk, state=Export.State.COMMITTED)
    return committed.aggregate(rows=Sum("rows"))["rows"] or 0


@sync_to_async
def billed(pipeline: Pipeline) -> int:
    usage = UsageMinute.objects.filter(pipeline_id=pipeline.pk)
    return usage.aggregate(deliveries=Sum("deliveries"))["deliveries"] or 0


async def reaches(count: Awaitable[int], wanted: int) -> bool:
    return await count >= wanted


@pytest.mark.long
async def test_every_message_is_in_one_file_and_billed_once_whatever_dies_on_the_way(
    running: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "LOCK", timedelta(seconds=5))
    folder = FILES_ROOT / str(uuid.uuid4())
    folder.mkdir(parents=True)
    await begin_here()
    pipeline = await sync_to_async(storing_pipeline)(
        folder, type="local_files", rows=ROWS, minutes=0.1, manifest_file=True, marker="{stem}.done", name="{number}"
    )
    ids: list[str] = []

    async def handed_over() -> None:
        messages = [message_of(pipeline, {"number": len(ids) + n}) for n in range(MESSAGES)]
        await to_be_delivered(messages)
        ids.extend(message.id for message in messages)

    with (
        task(SYNDICATING.name) as delivery,
        task("exporter") as exporter,
        task(BILLING, HEADRACE_DATABASE_URL=database_url()) as billing,
    ):
        for step in DELIVERY_STEPS:
            await handed_over()
            assert await delivery.killed_after(step) == -signal.SIGKILL, step
        await handed_over()
        async with delivery.running():
            for step in STEPS:
                assert await exporter.killed_after(step) == -signal.SIGKILL, step
                await Export.objects.filter(locked_until__isnull=False).aupdate(locked_until=timezone.now())
        for step in BILLING_STEPS:
            assert await billing.killed_after(step) == -signal.SIGKILL, step
            await handed_over()
        async with delivery.running(), exporter.running(), billing.running():
            await wait_until_async(lambda: reaches(stored_messages(pipeline), len(ids)))
            await wait_until_async(lambda: reaches(billed(pipeline), len(ids)))

    stored = Counter(
        json.loads(line)["_message_id"] for path in visible(folder) for line in path.read_text().splitlines()
    )
    assert stored == Counter(ids)
    assert await billed(pipeline) == len(ids)
    assert {path.suffix for path in visible(folder)} == {".jsonl"}
    assert all(path.with_suffix(".done").exists() for path in visible(folder))
