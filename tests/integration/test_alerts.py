import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from aiohttp import web
from django.core import mail
from rest_framework.test import APIClient

from backend.apps.deliveries.models import DeadLetter
from backend.apps.jobs.models import SparkJob
from backend.apps.monitoring import history
from backend.apps.monitoring.alerts import alerts_evaluate
from backend.apps.monitoring.models import Alert, AlertRule, CountMinute
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import Workspace
from backend.domain.message import new_message_id
from backend.resilience.scripts import OutputKey
from backend.telemetry import keys
from tests import factories
from tests.infra import REDIS_URL
from tests.receiver import receiver_in_thread

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pipeline(workspace: Workspace) -> Pipeline:
    """Published; its workspace has no rules but those that a test makes."""
    AlertRule.objects.all().delete()
    made = factories.make_pipeline(workspace)
    made.published = made.versions.first()
    made.save()
    return made


def make_rule(workspace: Workspace, kind: str, **fields: Any) -> AlertRule:
    return AlertRule.objects.create(workspace=workspace, name=kind, kind=kind, **{"email": "ops@example.com"} | fields)


def opened() -> list[str]:
    return sorted(alert.message for alert in Alert.objects.filter(ended_at=None))


def count(pipeline: Pipeline, seconds_ago: int = 0, **events: int) -> None:
    second = int(time.time()) - seconds_ago
    key = keys.by_second(str(pipeline.pk), second // 60)
    names = {f"{name.replace('_', '.')}|{second}": n for name, n in events.items()}
    redis.from_url(REDIS_URL).hset(key, mapping=names)  # type: ignore[arg-type]


def test_an_open_breaker_is_told_once_and_again_when_it_closes(workspace: Workspace, pipeline: Pipeline) -> None:
    async def take(_: web.Request) -> web.Response:
        return web.Response()

    with receiver_in_thread(take) as inbox:
        connector = factories.make_connector(workspace, url=inbox.url)
        make_rule(workspace, "breaker_open", connector=connector)
        breaker = OutputKey(str(pipeline.pk), "out").breaker
        client = redis.from_url(REDIS_URL)
        client.hset(breaker, mapping={"state": "open", "until": time.time() + 60})
        alerts_evaluate()
        alerts_evaluate()
        assert len(opened()) == 1
        client.hset(breaker, "state", "closed")
        alerts_evaluate()
        assert opened() == []
        notifications = [json.loads(body) for body in inbox.bodies]
    assert [one["state"] for one in notifications] == ["firing", "resolved"]
    assert pipeline.name in notifications[0]["message"]
    assert [message.subject for message in mail.outbox] == [
        "[Headrace] breaker_open: firing",
        "[Headrace] breaker_open: resolved",
    ]


def test_a_failure_rate_over_its_time(workspace: Workspace, pipeline: Pipeline) -> None:
    make_rule(workspace, "failure_rate", threshold=10, minutes=5)
    count(pipeline, output_out_delivered=90, output_out_dead=10)
    alerts_evaluate()
    assert opened() == []  # 10 % is not more than 10 %
    count(pipeline, 60, output_out_dead=20)
    alerts_evaluate()
    assert opened() == [f"{pipeline.name}: 25 % of 120 deliveries failed in the last 5 minutes."]


def test_dead_letters_that_wait_or_expire(workspace: Workspace, pipeline: Pipeline) -> None:
    now = datetime.now(UTC)
    DeadLetter.objects.create(
        workspace_id=workspace.pk, pipeline_id=pipeline.pk, output="out", message_id=new_message_id(), key=b"",
        body=b"", body_bytes=0, first_at=now - timedelta(days=29), last_at=now,
    )  # fmt: skip
    make_rule(workspace, "dead_letter_age", threshold=60 * 24 * 30)
    make_rule(workspace, "dead_letters_expire", threshold=48)
    alerts_evaluate()
    [message] = opened()
    assert "1 dead letters lose their bodies within 48 hours" in message


def test_a_job_that_is_down(workspace: Workspace) -> None:
    AlertRule.objects.all().delete()
    job = SparkJob.objects.create(name="plane", stages=["adapting"], status="failed", last_error="No memory.")
    make_rule(workspace, "job_down")
    alerts_evaluate()
    assert opened() == ["The Spark application plane is failed, will be started again. No memory."]
    job.delete()


def test_a_notification_that_fails_is_kept_on_the_alert(workspace: Workspace, pipeline: Pipeline) -> None:
    make_rule(workspace, "breaker_open", connector=factories.make_connector(workspace), email="")
    redis.from_url(REDIS_URL).hset(OutputKey(str(pipeline.pk), "out").breaker, "state", "open")
    alerts_evaluate()
    assert "127.0.0.1:1" in Alert.objects.get(ended_at=None).notification


def test_rules_by_rest(client: APIClient, workspace: Workspace, pipeline: Pipeline) -> None:
    rule = {"name": "Breakers", "kind": "breaker_open"}
    foreign = factories.make_connector(factories.make_workspace())
    assert client.post("/api/v1/alert-rules/", {**rule, "connector": foreign.pk}, format="json").status_code == 400
    connector = factories.make_connector(workspace)
    made = client.post("/api/v1/alert-rules/", {**rule, "connector": connector.pk}, format="json")
    assert made.status_code == 201, made.json()
    in_use = client.delete(f"/api/v1/connectors/{connector.pk}/")
    assert in_use.status_code == 409
    assert "Breakers" in in_use.json()["detail"]
    assert client.get("/api/v1/alerts/?ended_at__isnull=true").json()["results"] == []


def test_history_is_folded_by_the_minute_and_may_be_folded_again(client: APIClient, pipeline: Pipeline) -> None:
    minute = int(time.time()) // 60 - 2
    redis.from_url(REDIS_URL).hset(
        keys.by_second(str(pipeline.pk), minute),
        mapping={f"input.accepted|{minute * 60 + second}": second for second in range(60)},
    )
    for _ in range(2):
        history.fold(minute - 5, minute)
    [row] = CountMinute.objects.filter(pipeline_id=pipeline.pk)
    assert row.counts == {"input.accepted": 1770}
    assert row.minute == datetime.fromtimestamp(minute * 60, UTC)
    [step] = client.get(f"/api/v1/pipelines/{pipeline.pk}/history/?hours=1").json()
    assert step == {"at": minute * 60, "seconds": 60, "counts": {"input.accepted": 1770}}
    [step] = client.get(f"/api/v1/pipelines/{pipeline.pk}/history/?hours=720").json()
    assert step["seconds"] == 7200
    assert step["counts"] == {"input.accepted": 1770}


def test_a_new_workspace_is_watched(client: APIClient, workspace: Workspace) -> None:
    kinds = {rule["kind"] for rule in client.get("/api/v1/alert-rules/").json()["results"]}
    assert kinds == {"breaker_open", "job_down", "dead_letters_expire"}
