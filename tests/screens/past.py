"""What an installation that has run for a month would have in its tables, for pictures with charts and long lists.

Run by ``manage.py shell`` within the installation.
"""

import hashlib
import json
import math
import random
from datetime import UTC, datetime, timedelta

from uuid_utils.compat import uuid7

from backend.apps.collections.models import WrittenCollection
from backend.apps.collections.selectors import collection_store
from backend.apps.connectors.models import Connector
from backend.apps.deliveries.models import Attempt, DeadLetter, OutputEvent
from backend.apps.deliveries.partitions import partitions_ensure
from backend.apps.exports.models import Export, StagedPart
from backend.apps.monitoring.models import CountMinute
from backend.apps.pipelines.models import Pipeline
from backend.apps.usage.models import UsageMinute
from backend.apps.workspaces.models import User, Workspace
from backend.apps.workspaces.services import workspace_create
from backend.collections.writer import CollectionWriter, NewDocument
from backend.network.redis_client import redis_client
from backend.telemetry import keys
from tests.screens.data import EMPTY

_LETTERS = [
    ("http_503", 90, "The receiver answered 503."),
    ("http_422", 31, "The receiver answered 422: unknown customer."),
    ("timeout", 12, "The receiver did not answer within 10 s."),
    ("breaker_open", 140, "Not sent: the circuit breaker was open."),
]


def write(healthy: str, failing: str) -> None:
    """For these two pipelines, which were published now; and a workspace without anything."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    Pipeline.objects.filter(pk__in=[healthy, failing]).update(created_at=now - timedelta(days=31))
    for pipeline, outputs, share in ((healthy, ("erp", "archive"), 0.0), (failing, ("crm", "erp"), 0.1)):
        _counts(pipeline, outputs, share, now)
        _usage(Pipeline.objects.get(pk=pipeline), outputs, now)
    _failures(Pipeline.objects.get(pk=failing), now)
    _exports(Pipeline.objects.get(pk=failing), now)
    if not Workspace.objects.filter(slug=EMPTY).exists():
        admin = User.objects.filter(is_superuser=True).earliest("pk")
        workspace_create(slug=EMPTY, name="Nothing yet", admin=admin)


def keep(full: str, lost: str) -> None:
    """Documents in one collection, and another whose files have vanished."""
    collection = Connector.objects.get(pk=full)
    table = collection_store().table(str(collection.workspace_id), full, partitions=3)
    writer = CollectionWriter(table, "screens")
    headers = (("message-id", str(uuid7()).encode()), ("content-type", b"application/json"))
    for first in range(0, 4500, 500):
        documents = []
        for number in range(first, first + 500):
            order = f"A-{number % 900}"
            value = json.dumps({"order": order, "amount": 3.5 + number % 40}).encode()
            documents.append(NewDocument(number, number % 3, order.encode(), value, headers, number % 17 == 0))
        writer.append(documents, first + 500)
    WrittenCollection.objects.create(collection_id=lost)


def _rate(minute: datetime) -> int:
    """Messages in a minute: few at night, and never quite the same."""
    hours = minute.hour + minute.minute / 60
    return int(900 + 700 * math.sin((hours - 8) / 24 * 2 * math.pi) + random.randint(-80, 80))


def _counts(pipeline: str, outputs: tuple[str, str], failing: float, now: datetime) -> None:
    rows, hours = [], {}
    for back in range(1, 31 * 24 * 60, 1):
        minute = now - timedelta(minutes=back)
        if back > 24 * 60 and back % 10:
            continue
        accepted = _rate(minute)
        dead = int(accepted * failing) if back < 90 else 0
        counts = {"input.accepted": accepted, "adapting.transformed": accepted, "adapting.dropped": accepted // 20}
        for number, output in enumerate(outputs):
            lost = dead if number == 0 else 0
            counts |= {f"output.{output}.delivered": accepted - accepted // 20 - lost}
            if lost:
                counts |= {f"output.{output}.dead": lost, f"output.{output}.retried": 2 * lost}
        waiting = dead * 3 + random.randint(0, 12)
        rows.append(CountMinute(pipeline_id=pipeline, minute=minute, counts=counts, waiting=waiting))
        if back < 24 * 60:
            hour = hours.setdefault(int(minute.timestamp()) // 3600, {})
            for event, n in counts.items():
                hour[event] = hour.get(event, 0) + n
    CountMinute.objects.bulk_create(rows, ignore_conflicts=True, batch_size=5000)
    client = redis_client()
    for number, counts in hours.items():
        client.hset(keys.by_hour(pipeline, number), mapping=counts)


def _usage(pipeline: Pipeline, outputs: tuple[str, str], now: datetime) -> None:
    UsageMinute.objects.bulk_create(
        [
            UsageMinute(
                workspace_id=pipeline.workspace_id,
                pipeline_id=pipeline.pk,
                output=output,
                minute=now - timedelta(hours=back),
                deliveries=(n := 55 * _rate(now - timedelta(hours=back))),
                bytes=412 * n,
            )
            for output in outputs
            for back in range(30 * 24)
        ],
        ignore_conflicts=True,
    )


def _failures(pipeline: Pipeline, now: datetime) -> None:
    partitions_ensure()
    letters, attempts = [], []
    for reason, count, error in _LETTERS:
        for number in range(count):
            at = now - timedelta(seconds=20 * number + random.randint(0, 19))
            letter = DeadLetter(
                workspace_id=pipeline.workspace_id,
                pipeline_id=pipeline.pk,
                output="crm",
                stage="syndicating",
                message_id=str(uuid7()),
                version=1,
                reason=reason,
                error=error,
                attempts=0 if reason == "breaker_open" else 4,
                due_at=now + timedelta(minutes=55) if reason == "breaker_open" else None,
                key=b"",
                body=json.dumps({"order": f"A-{number}", "amount": number}).encode(),
                body_bytes=30,
                content_type="application/json",
                first_at=at,
                last_at=at,
            )
            letters.append(letter)
            attempts += [
                Attempt(
                    id=uuid7(),
                    workspace_id=pipeline.workspace_id,
                    pipeline_id=pipeline.pk,
                    output="crm",
                    message_id=letter.message_id,
                    version=1,
                    at=at + timedelta(seconds=2**attempt),
                    number=attempt,
                    milliseconds=40 + random.random() * 300,
                    status=reason.removeprefix("http_") if reason.startswith("http_") else "",
                    reason=reason,
                    error=error,
                    response='{"detail": "maintenance until 18:00"}',
                )
                for attempt in range(1, letter.attempts + 1)
            ]
    DeadLetter.objects.bulk_create(letters)
    Attempt.objects.bulk_create(attempts)
    states = [("open", "20 deliveries failed within 60 s. The newest: The receiver answered 503."), ("closed", "")]
    OutputEvent.objects.bulk_create(
        OutputEvent(
            workspace_id=pipeline.workspace_id,
            pipeline_id=pipeline.pk,
            output="crm",
            at=now - timedelta(hours=number),
            state=states[number % 2][0],
            cause=states[number % 2][1],
            stream_id=f"screens-{number}",
        )
        for number in range(8)
    )
    error = {"stage": "syndicating", "reason": "http_503", "message": "crm: The receiver answered 503."}
    for number in range(12):
        at = (now - timedelta(minutes=number)).isoformat().replace("+00:00", "Z")
        redis_client().rpush(keys.errors(str(pipeline.pk)), json.dumps(error | {"at": at, "message_id": str(uuid7())}))


def _exports(pipeline: Pipeline, now: datetime) -> None:
    """Of the output ``erp``: files that were stored, one that is written, one that waits and one that fails; and
    messages that are in no file yet."""
    state = Export.State
    common = {"workspace_id": pipeline.workspace_id, "pipeline_id": pipeline.pk, "output": "erp", "version": 1}
    StagedPart.objects.create(**common, path=f"{pipeline.pk}/1.parquet", rows=1834, bytes=1834 * 412)
    unlike = {
        0: {"state": state.STAGED},
        1: {"state": state.WRITING, "written_rows": 31_200},
        2: {
            "state": state.FAILED,
            "reason": "unreachable",
            "error": "The server files.example.com cannot be reached: connection refused.",
            "failures": 5,
            "due_at": now + timedelta(minutes=20),
        },
    }
    columns = ["order", "amount", "customer"]
    shown = [[f'"A-{number}"', str(3.5 + number), '"Ana"'] for number in range(5)]
    for back in reversed(range(30)):
        made = now - timedelta(hours=back)
        number, rows = 30 - back, 30 * _rate(made)
        stored = {
            "state": state.COMMITTED,
            "written_rows": rows,
            "committed_at": made + timedelta(seconds=41),
            "closed_at": made + timedelta(seconds=41),
            "manifest": {
                "format": "csv",
                "compression": "gzip",
                "rows": rows,
                "bytes": 96 * rows,
                "sha256": hashlib.sha256(b"%d" % number).hexdigest(),
                "schema": [{"name": name, "type": "text"} for name in columns],
                "first_message_id": str(uuid7()),
                "last_message_id": str(uuid7()),
            },
            "preview": {"columns": columns, "rows": shown},
        }
        export = Export.objects.create(
            **common,
            number=number,
            path=f"customers/{made:%Y/%m/%d}/customers-{number:05}.csv.gz",
            rows=rows,
            bytes=412 * rows,
            slices=[],
            **unlike.get(back, stored),
        )
        Export.objects.filter(pk=export.pk).update(created_at=made)
