import asyncio
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from aiohttp import web
from django.core import mail
from django.db import connections
from rest_framework.test import APIClient

from backend.apps.deliveries.models import DeadLetter
from backend.apps.exports.models import Export
from backend.apps.jobs.models import LostMessages, SparkJob
from backend.apps.monitoring import alerts, history, notifications
from backend.apps.monitoring.alerts import alerts_evaluate
from backend.apps.monitoring.models import Alert, AlertRule, CountMinute
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_publish
from backend.apps.workspaces.models import Workspace
from backend.domain.message import new_message_id
from backend.resilience.scripts import OutputKey
from backend.telemetry import keys
from tests import factories
from tests.infra import REDIS_URL
from tests.integration.console.test_statuses import fail_export
from tests.receiver import receiver_in_thread
from tests.waiting import LIMIT_SECONDS

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
        sent = [json.loads(body) for body in inbox.bodies]
    assert [one["state"] for one in sent] == ["firing", "resolved"]
    assert pipeline.name in sent[0]["message"]
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


def test_files_that_could_not_be_stored_for_long(workspace: Workspace, pipeline: Pipeline) -> None:
    make_rule(workspace, "export_unstored", threshold=60)
    of_another = factories.make_pipeline(factories.make_workspace())
    for number, failing in enumerate((pipeline, pipeline, pipeline, of_another), 1):
        fail_export(failing, number)
    long_ago = datetime.now(UTC) - timedelta(minutes=61)
    fail_export(pipeline, 5, state="staged", failures=0)  # it waits for its turn
    Export.objects.filter(number__gte=3).update(created_at=long_ago)
    Export.objects.filter(number=2).update(created_at=long_ago, state="writing", error="Still no bucket.")
    alerts_evaluate()
    told = (
        f"{pipeline.name}: 2 files of the output archive could not be stored for more than 60 minutes; the oldest is "
        f"of {long_ago:%Y-%m-%d %H:%M} UTC. No bucket."
    )
    assert opened() == [told]
    assert [(message.subject, message.body) for message in mail.outbox] == [
        ("[Headrace] export_unstored: firing", told)
    ]
    Export.objects.filter(number__in=(2, 3)).update(state="committed")
    alerts_evaluate()
    assert opened() == []
    assert mail.outbox[-1].subject == "[Headrace] export_unstored: resolved"


def test_a_job_that_is_down(workspace: Workspace) -> None:
    AlertRule.objects.all().delete()
    job = SparkJob.objects.create(name="plane", stages=["adapting"], status="failed", last_error="No memory.")
    make_rule(workspace, "job_down")
    alerts_evaluate()
    assert opened() == ["The Spark application plane is failed, will be started again."]
    job.delete()


def test_a_job_that_starts_is_not_down(workspace: Workspace) -> None:
    AlertRule.objects.all().delete()
    job = SparkJob.objects.create(name="plane", stages=["adapting"], status="starting")
    make_rule(workspace, "job_down")
    alerts_evaluate()
    assert opened() == []
    SparkJob.objects.filter(pk=job.pk).update(failures=2)
    alerts_evaluate()
    assert opened() == ["The Spark application plane is starting."]
    job.delete()


def test_a_stage_that_makes_no_progress_and_lost_messages(workspace: Workspace) -> None:
    SparkJob.objects.all().delete()
    assert workspace.alert_rules.filter(kind="job_down").exists()  # by default
    job = SparkJob.objects.create(name="plane", status="running", problem="syndicating[0] is hung.")
    LostMessages.objects.create(job=job, stage="adapting", partition=1, first_offset=500, count=2000)
    alerts_evaluate()
    hung, lost = [message for message in opened() if "Spark application" in message or "retention" in message]
    assert "2,000 messages of partition 1" in hung + lost
    assert "syndicating[0] is hung." in hung + lost
    SparkJob.objects.update(problem="")
    alerts_evaluate()
    assert "is hung" not in "".join(opened())
    job.delete()


def test_rounds_do_not_overlap(workspace: Workspace, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SEND_SECONDS", "_ALL_SECONDS"):
        monkeypatch.setattr(notifications, name, LIMIT_SECONDS)
    entered, leave = threading.Event(), threading.Event()

    async def slow(_: web.Request) -> web.Response:
        entered.set()
        await asyncio.to_thread(leave.wait, LIMIT_SECONDS)
        return web.Response()

    with receiver_in_thread(slow) as inbox:
        make_rule(workspace, "breaker_open", connector=factories.make_connector(workspace, url=inbox.url))
        redis.from_url(REDIS_URL).hset(OutputKey(str(pipeline.pk), "out").breaker, "state", "open")

        def first_round() -> None:
            alerts_evaluate()
            connections.close_all()

        first = threading.Thread(target=first_round)
        first.start()
        assert entered.wait(LIMIT_SECONDS)
        alerts_evaluate()
        assert first.is_alive()  # it did not wait for the first round, which still waits for its receiver
        leave.set()
        first.join()
    assert len(opened()) == 1


def test_receivers_that_hang_delay_no_other_workspaces_notification(workspace: Workspace, pipeline: Pipeline) -> None:
    arrived, leave = threading.Event(), threading.Event()

    async def hang(_: web.Request) -> web.Response:
        await asyncio.to_thread(leave.wait, 120)
        return web.Response()

    async def take(_: web.Request) -> web.Response:
        arrived.set()
        return web.Response()

    def a_round() -> None:
        alerts_evaluate()
        connections.close_all()

    other = factories.make_pipeline(factories.make_workspace())
    other.published = other.versions.first()
    other.save()
    AlertRule.objects.all().delete()
    for one in (pipeline, other):
        redis.from_url(REDIS_URL).hset(OutputKey(str(one.pk), "out").breaker, "state", "open")
    with receiver_in_thread(hang) as hanging, receiver_in_thread(take) as prompt:
        connector = factories.make_connector(workspace, url=hanging.url)
        for _ in range(30):
            make_rule(workspace, "breaker_open", connector=connector, email="")
        receiver = factories.make_connector(other.workspace, url=prompt.url)
        make_rule(other.workspace, "breaker_open", connector=receiver, email="")
        rounds = threading.Thread(target=a_round)
        rounds.start()
        assert arrived.wait(LIMIT_SECONDS)
        rounds.join(120)  # it is limited as a whole, not only for each notification
        assert not rounds.is_alive()
        leave.set()
    notified = Alert.objects.filter(rule__workspace=other.workspace)
    assert [alert.notification for alert in notified] == [""]
    missed = list(Alert.objects.filter(rule__workspace=workspace).values_list("notification", flat=True))
    assert len(missed) == 30
    assert all(text.startswith(f"{connector.name}: ") for text in missed)


def test_a_rule_or_notification_that_fails_unexpectedly_stops_no_other(
    workspace: Workspace, pipeline: Pipeline
) -> None:
    redis.from_url(REDIS_URL).hset(OutputKey(str(pipeline.pk), "out").breaker, "state", "open")
    AlertRule.objects.create(workspace=workspace, name="of a later release", kind="unheard_of")
    AlertRule.objects.create(workspace=workspace, name="two\nlines", kind="breaker_open", email="ops@example.com")
    broken = factories.make_connector(workspace)
    broken.type = "unheard_of"
    broken.save()
    make_rule(workspace, "breaker_open", connector=broken, email="")
    make_rule(workspace, "breaker_open")
    alerts_evaluate()
    assert len(opened()) == 3
    assert sorted(message.subject for message in mail.outbox) == [
        "[Headrace] breaker_open: firing",
        "[Headrace] two lines: firing",
    ]
    [told] = Alert.objects.exclude(notification="")
    assert broken.name in told.notification


def test_a_notification_that_fails_is_kept_on_the_alert(workspace: Workspace, pipeline: Pipeline) -> None:
    make_rule(workspace, "breaker_open", connector=factories.make_connector(workspace), email="")
    redis.from_url(REDIS_URL).hset(OutputKey(str(pipeline.pk), "out").breaker, "state", "open")
    alerts_evaluate()
    assert "127.0.0.1:1" in Alert.objects.get(ended_at=None).notification


def test_a_notification_that_failed_is_sent_again_and_only_to_the_receiver_that_misses_it(
    workspace: Workspace, pipeline: Pipeline
) -> None:
    is_repaired = threading.Event()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=200 if is_repaired.is_set() else 503)

    breaker = OutputKey(str(pipeline.pk), "out").breaker
    client = redis.from_url(REDIS_URL)
    with receiver_in_thread(answer) as inbox:
        make_rule(workspace, "breaker_open", connector=factories.make_connector(workspace, url=inbox.url))
        client.hset(breaker, "state", "open")
        alerts_evaluate()
        alerts_evaluate()  # it pauses before it tries again
        assert len(inbox.bodies) == 1
        alert = Alert.objects.get()
        assert "503" in alert.notification
        assert alert.send_at is not None
        assert alert.send_at > datetime.now(UTC) + timedelta(seconds=5)
        client.hset(breaker, "state", "closed")
        is_repaired.set()
        for _ in range(3):
            alerts_evaluate()
        states = [json.loads(body)["state"] for body in inbox.bodies]
        ids = [headers["Headrace-Message-Id"] for headers in inbox.headers]
    assert states == ["firing", "firing", "resolved"]
    assert ids[0] == ids[1] != ids[2]
    assert len(mail.outbox) == 2
    sent = Alert.objects.get()
    assert (sent.notification, sent.unsent, sent.send_at) == ("", [], None)


def test_a_crash_before_a_notification_is_sent_loses_none(
    workspace: Workspace, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take(_: web.Request) -> web.Response:
        return web.Response()

    def crash() -> None:
        raise SystemExit

    with receiver_in_thread(take) as inbox:
        make_rule(workspace, "breaker_open", connector=factories.make_connector(workspace, url=inbox.url), email="")
        redis.from_url(REDIS_URL).hset(OutputKey(str(pipeline.pk), "out").breaker, "state", "open")
        with monkeypatch.context() as patched:
            patched.setattr(alerts, "notifications_send", crash)
            with pytest.raises(SystemExit):
                alerts_evaluate()
        assert inbox.bodies == []
        for _ in range(2):
            alerts_evaluate()
        assert [json.loads(body)["state"] for body in inbox.bodies] == ["firing"]


def test_retries_of_a_notification_end_after_a_day(workspace: Workspace, pipeline: Pipeline) -> None:
    make_rule(workspace, "breaker_open", connector=factories.make_connector(workspace), email="")
    redis.from_url(REDIS_URL).hset(OutputKey(str(pipeline.pk), "out").breaker, "state", "open")
    alerts_evaluate()
    pauses = []
    for _ in range(12):
        Alert.objects.update(send_at=datetime.now(UTC))
        began = datetime.now(UTC)
        alerts_evaluate()
        send_at = Alert.objects.get().send_at
        assert send_at is not None
        pauses.append((send_at - began).total_seconds())
    expected = [min(20 * 2**number, 3600) for number in range(12)]
    assert all(least <= pause < least + 60 for least, pause in zip(expected, pauses, strict=True)), pauses
    Alert.objects.update(send_at=datetime.now(UTC), started_at=datetime.now(UTC) - timedelta(days=1))
    alerts_evaluate()
    alert = Alert.objects.get()
    assert (alert.unsent, alert.send_at) == ([], None)
    assert "127.0.0.1:1" in alert.notification


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
    assert step == {"at": minute * 60, "seconds": 60, "counts": {"input.accepted": 1770}, "waiting": 0}
    [step] = client.get(f"/api/v1/pipelines/{pipeline.pk}/history/?hours=720").json()
    assert step["seconds"] == 7200
    assert step["counts"] == {"input.accepted": 1770}


def test_a_minute_has_what_waited_when_it_was_written_and_keeps_it(client: APIClient, workspace: Workspace) -> None:
    made = factories.make_pipeline(workspace, outputs=[factories.output(factories.make_connector(workspace), "out")])
    pipeline = str(pipeline_publish(pipeline=made, actor=factories.admin_of(workspace)).pk)
    minute = int(time.time()) // 60 - 3
    broker = redis.from_url(REDIS_URL)
    hour = keys.by_hour(pipeline, int(time.time()) // 3600)
    broker.hset(hour, mapping={"input.accepted": 70, "adapting.dropped": 20, "output.out.delivered": 8})
    broker.hset(keys.by_second(pipeline, minute - 1), f"input.accepted|{minute * 60 - 1}", 70)
    history.fold(minute - 1, minute)  # nothing happened in the last one, but messages wait
    broker.hset(hour, "output.out.delivered", 50)
    history.fold(minute - 1, minute + 1)  # nothing waits any more
    rows = CountMinute.objects.filter(pipeline_id=pipeline).order_by("minute")
    assert [(row.counts, row.waiting) for row in rows] == [({"input.accepted": 70}, None), ({}, 42)]
    steps = client.get(f"/api/v1/pipelines/{pipeline}/history/?hours=1").json()
    assert [(step["at"] // 60, step["waiting"]) for step in steps] == [(minute - 1, None), (minute, 42)]
    # A minute that is written again, when what waited then is not known any more, keeps what is known.
    broker.hset(keys.by_second(pipeline, minute), f"input.accepted|{minute * 60}", 3)
    history.fold(minute - 1, minute + 2)
    again = rows.get(minute=datetime.fromtimestamp(minute * 60, UTC))
    assert (again.counts, again.waiting) == ({"input.accepted": 3}, 42)


def test_a_new_workspace_is_watched(client: APIClient, workspace: Workspace) -> None:
    kinds = {rule["kind"] for rule in client.get("/api/v1/alert-rules/").json()["results"]}
    assert kinds == {"breaker_open", "job_down", "dead_letters_expire", "export_unstored", "registration"}


def test_the_pages_of_rules_say_how_many_match(client: APIClient, workspace: Workspace) -> None:
    AlertRule.objects.filter(workspace=workspace).delete()
    for name in ("Orders fail", "Invoices fail", "Orders wait"):
        AlertRule.objects.create(workspace=workspace, name=name, kind="failure_rate")
    url = "/api/v1/alert-rules/"
    first = client.get(url, {"page_size": 2}).json()
    second = client.get(first["next"]).json()
    assert [(page["count"], len(page["results"])) for page in (first, second)] == [(3, 2), (3, 1)]
    found = client.get(url, {"search": "orders"}).json()
    assert (found["count"], {rule["name"] for rule in found["results"]}) == (2, {"Orders fail", "Orders wait"})
