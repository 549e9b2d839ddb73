"""What the console's first page asks for, and messages sent from it."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.deliveries.services import breaker_set
from backend.apps.monitoring import selectors
from backend.apps.monitoring.models import CountMinute
from backend.apps.pipelines import sending
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_pause, pipeline_publish
from backend.apps.usage.billed import Billing, Delivery, bill
from backend.apps.workspaces.models import Role, Workspace
from backend.domain import routing
from backend.domain.message import MESSAGE_ID, Message, new_message_id
from backend.kafka.client.tail import tail
from backend.network.redis_client import redis_client
from backend.settings import platform_settings
from backend.telemetry import events, keys
from tests import factories
from tests.factories import make_letter
from tests.receiver import receiver_in_thread

pytestmark = pytest.mark.django_db


@pytest.fixture
def pipeline(workspace: Workspace) -> Pipeline:
    return pipeline_publish(pipeline=factories.make_pipeline(workspace), actor=factories.admin_of(workspace))


def conditions(client: APIClient) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/conditions/")
    assert answer.status_code == 200
    shown: list[dict[str, Any]] = answer.json()
    return shown


def test_a_healthy_pipeline_needs_nobody(client: APIClient, pipeline: Pipeline) -> None:
    make_letter(pipeline, state="delivered")
    assert conditions(client) == []


def test_dead_letters_and_open_breakers_are_named_by_pipeline(client: APIClient, pipeline: Pipeline) -> None:
    for reason in ("breaker_open", "http_500", "breaker_open"):
        make_letter(pipeline, reason=reason)
    elsewhere = factories.make_pipeline(factories.make_workspace())
    make_letter(elsewhere)
    actor = factories.admin_of(pipeline.workspace)
    breaker_set(pipeline=pipeline, output="out", to_open=True, seconds=600, actor=actor)
    [condition] = conditions(client)
    assert (condition["pipeline"], condition["dead_letters"]) == (str(pipeline.pk), 3)
    assert condition["reasons"] == [{"reason": "breaker_open", "count": 2}, {"reason": "http_500", "count": 1}]
    [opened] = condition["breakers"]
    assert (opened["output"], opened["breaker"]["state"]) == ("out", "open")
    assert condition["status"]["state"] == "blocked"
    assert datetime.fromisoformat(opened["breaker"]["until"]) > datetime.now(UTC)


def test_the_throughput_sums_the_pipelines_of_the_workspace(client: APIClient, pipeline: Pipeline) -> None:
    minute = datetime.fromtimestamp(int(time.time()) // 60 * 60 - 120, UTC)
    second = factories.make_pipeline(pipeline.workspace)
    elsewhere = factories.make_pipeline(factories.make_workspace())
    for one in (pipeline, second, elsewhere):
        CountMinute.objects.create(pipeline_id=one.pk, minute=minute, counts={"input.accepted": 2, "latency.out.3": 2})
    [step] = client.get("/api/v1/throughput/?hours=1").json()
    assert step == {"at": int(minute.timestamp()), "seconds": 60, "counts": {"input.accepted": 4}, "waiting": None}


def test_what_waits_is_summed_over_the_workspace_at_the_last_minute(client: APIClient, pipeline: Pipeline) -> None:
    second, elsewhere = factories.make_pipeline(pipeline.workspace), factories.make_pipeline(factories.make_workspace())
    newest = datetime.fromtimestamp(int(time.time()) // 60 * 60 - 120, UTC)
    for one, back, waiting in (
        (pipeline, 1, 900),
        (pipeline, 0, 5),
        (second, 0, 37),
        (second, 2, None),
        (elsewhere, 0, 1000),
    ):
        minute = newest - timedelta(minutes=back)
        CountMinute.objects.create(pipeline_id=one.pk, minute=minute, counts={}, waiting=waiting)
    steps = client.get("/api/v1/throughput/?hours=1").json()
    assert [step["waiting"] for step in steps] == [None, 900, 42]
    assert selectors.newest_waiting(pipeline.workspace) == {
        "at": int(newest.timestamp()),
        "messages": 42,
        "pipelines": {str(pipeline.pk): 5, str(second.pk): 37},
    }
    assert selectors.newest_waiting(factories.make_workspace()) is None


def test_the_last_day_of_pipelines_is_shown_by_hour_with_their_latest_error(
    client: APIClient, pipeline: Pipeline
) -> None:
    elsewhere = factories.make_pipeline(factories.make_workspace())
    hour = int(time.time()) // 3600
    for back, counts in ((0, {"output.out.delivered": 5, "output.b.delivered": 1}), (3, {"output.out.dead": 2})):
        redis_client().hset(keys.by_hour(str(pipeline.pk), hour - back), mapping=counts | {"latency.out.5": 9})
    error = {
        "at": "2026-01-01T00:00:00Z",
        "stage": "syndicating",
        "reason": "http_500",
        "message": "m",
        "message_id": "1",
    }
    redis_client().lpush(keys.errors(str(pipeline.pk)), json.dumps(error))
    [shown] = client.get(f"/api/v1/activity/?pipelines={pipeline.pk},{elsewhere.pk}").json()
    assert shown["pipeline"] == str(pipeline.pk)
    assert shown["delivered"] == [0] * 23 + [6]
    assert shown["failed"] == [0] * 20 + [2, 0, 0, 0]
    assert shown["last_error"]["message"] == "m"
    refused = client.get("/api/v1/activity/?pipelines=nonsense")
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["pipelines"])


def test_what_waits_is_told_by_the_output_that_lags_most(client: APIClient, workspace: Workspace) -> None:
    connector = factories.make_connector(workspace)
    outputs = [factories.output(connector, name) for name in ("erp", "crm")]
    actor = factories.admin_of(workspace)
    slow, fast, silent = (
        pipeline_publish(pipeline=factories.make_pipeline(workspace, outputs=outputs), actor=actor) for _ in range(3)
    )
    draft = factories.make_pipeline(workspace, outputs=outputs)
    hour = int(time.time()) // 3600
    came_in = {"input.accepted": 90, "filtering.matched": 10, "adapting.dropped": 4, "adapting.dead": 1}
    by_pipeline = {
        slow: {hour - 1: came_in, hour: {"output.erp.delivered": 95, "output.crm.delivered": 20, "output.crm.dead": 5}},
        fast: {hour: came_in | {"output.erp.delivered": 95, "output.crm.delivered": 96}},
        silent: {hour - 30: came_in, hour: {"input.accepted": 7, "output.erp.delivered": 7}},
    }
    for one, hours in by_pipeline.items():
        for at, counts in hours.items():
            redis_client().hset(keys.by_hour(str(one.pk), at), mapping=counts)
    ids = ",".join(str(one.pk) for one in (slow, fast, silent, draft))
    shown = {one["pipeline"]: one["backlog"] for one in client.get(f"/api/v1/activity/?pipelines={ids}").json()}
    assert [shown[str(one.pk)] for one in (slow, fast, silent, draft)] == [70, 0, 7, None]


def test_connectors_are_shown_with_their_pipelines_and_last_error(client: APIClient, workspace: Workspace) -> None:
    erp, crm, unused = (factories.make_connector(workspace) for _ in range(3))
    actor = factories.admin_of(workspace)
    outputs = [factories.output(erp, "erp"), factories.output(crm, "crm")]
    both, one = (
        pipeline_publish(pipeline=factories.make_pipeline(workspace, outputs=used), actor=actor)
        for used in (outputs, outputs[:1])
    )
    factories.make_pipeline(workspace, outputs=outputs[:1])  # a draft uses it too
    factories.make_pipeline(elsewhere := factories.make_workspace())

    def note(pipeline: Pipeline, minute: int, stage: str) -> None:
        at = f"2026-01-01T00:{minute:02}:00Z"
        error = {"at": at, "stage": stage, "reason": "http_500", "message": f"At {minute}.", "message_id": "1"}
        redis_client().lpush(keys.errors(str(pipeline.pk)), json.dumps(error))

    note(both, 1, "output crm")
    note(both, 2, "output erp")
    note(one, 3, "output erp")
    note(both, 4, "adapting")
    shown = {activity["connector"]: activity for activity in client.get("/api/v1/connector-activity/").json()}
    assert {connector: activity["pipelines"] for connector, activity in shown.items()} == {
        str(erp.pk): 3,
        str(crm.pk): 1,
    }
    assert shown[str(erp.pk)]["last_error"]["message"] == "At 3."
    assert shown[str(crm.pk)]["last_error"]["message"] == "At 1."
    assert str(unused.pk) not in shown
    note(both, 5, "export crm")
    shown = {activity["connector"]: activity for activity in client.get("/api/v1/connector-activity/").json()}
    assert shown[str(crm.pk)]["last_error"]["message"] == "At 5."
    [foreign] = selectors.connector_activity(elsewhere)
    assert (foreign["pipelines"], foreign["last_error"]) == (1, None)


def test_the_rates_of_many_pipelines_are_those_of_their_complete_seconds(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    minute = 30_000_000
    now = minute * 60 + 3.7  # so that the three seconds lie in two minutes
    monkeypatch.setattr(selectors, "time", SimpleNamespace(time=lambda: now))
    second = factories.make_pipeline(pipeline.workspace)
    accepted, delivered, dead = "input.accepted", "output.out.delivered", "output.out.dead"
    counts = {-2: accepted, -1: accepted, 0: delivered, 1: dead, 2: dead}
    for one in (pipeline, second):
        for at, event in counts.items():
            key = keys.by_second(str(one.pk), minute + at // 60)
            redis_client().hset(key, f"{event}|{minute * 60 + at}", 6)
        redis_client().hset(keys.by_second(str(one.pk), minute), f"filtering.matched|{minute * 60}", 3)
        redis_client().hset(keys.by_second(str(one.pk), minute), f"latency.out.5|{minute * 60}", 99)
    outputs = {str(one.pk): ["out"] for one in (pipeline, second)}
    assert selectors.rates_of(outputs) == {"accepted": 6.0, "delivered": 4.0, "failed": 4.0}
    assert selectors.rates_of({}) == {"accepted": 0.0, "delivered": 0.0, "failed": 0.0}


def test_the_billed_deliveries_of_a_message_are_those_of_the_workspace(client: APIClient, pipeline: Pipeline) -> None:
    elsewhere = factories.make_pipeline(factories.make_workspace())
    sent, other, at = new_message_id(), new_message_id(), datetime(2026, 3, 1, 12, tzinfo=UTC)
    bill(
        Billing(Delivery.of(message_id, str(one.pk), "out"), str(one.workspace_id), at, size)
        for message_id, one, size in (
            (sent, pipeline, 7),
            (sent, pipeline, 7),
            (sent, elsewhere, 8),
            (other, pipeline, 9),
        )
    )
    shown = client.get("/api/v1/usage/deliveries/", {"message_id": sent})
    assert shown.json() == [{"pipeline": str(pipeline.pk), "output": "out", "at": "2026-03-01T12:00:00Z", "bytes": 7}]
    assert client.get("/api/v1/usage/deliveries/", {"message_id": "unknown"}).json() == []
    assert list(client.get("/api/v1/usage/deliveries/").json()["errors"]) == ["message_id"]


def send(client: APIClient, pipeline: Pipeline, body: str) -> Any:
    return client.post(f"/api/v1/pipelines/{pipeline.pk}/send-message/", {"body": body}, format="json")


@pytest.mark.usefixtures("pipeline_topics")
def test_a_message_of_the_console_enters_as_one_that_is_posted(client: APIClient, pipeline: Pipeline) -> None:
    answer = send(client, pipeline, '{"order": 1}')
    assert answer.status_code == 202, answer.json()
    message_id = answer.json()["message_id"]
    # Other tests leave records there that are no messages.
    mine = [
        record
        for record in tail(platform_settings().kafka, routing.INPUT, 100)
        if (MESSAGE_ID, message_id.encode()) in (record.headers() or [])
    ]
    sent = [Message.from_kafka(key=one.key(), value=one.value(), headers=one.headers()) for one in mine]  # type: ignore[arg-type]
    assert [(m.pipeline_id, m.version, m.body) for m in sent] == [(str(pipeline.pk), 1, b'{"order": 1}')]
    counted: Any = redis_client().hget(keys.totals(str(pipeline.pk)), events.ACCEPTED)
    assert int(counted) == 1
    assert json.dumps(message_id) in json.dumps(AuditEntry.objects.get(action="pipeline.send").changes)


def test_what_cannot_be_sent_says_why(client: APIClient, pipeline: Pipeline) -> None:
    broken = send(client, pipeline, "{")
    assert broken.status_code == 400
    assert broken.json()["errors"]["body"][0].startswith("The message is not JSON")
    draft = factories.make_pipeline(pipeline.workspace)
    assert "not published" in send(client, draft, "{}").json()["detail"]
    pipeline_pause(pipeline=pipeline, actor=factories.admin_of(pipeline.workspace))
    paused = send(client, pipeline, "{}")
    assert (paused.status_code, "paused" in paused.json()["detail"]) == (409, True)


def test_a_message_that_kafka_does_not_store_is_not_said_to_be_sent(
    client: APIClient, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = platform_settings().kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    away = platform_settings().model_copy(update={"kafka": nowhere})
    monkeypatch.setattr(sending, "platform_settings", lambda: away)
    monkeypatch.setattr(sending, "_ACKNOWLEDGED_MS", 1500)
    answer = send(client, pipeline, "{}")
    assert answer.status_code == 503
    assert "Kafka did not store the message" in answer.json()["detail"]
    assert not AuditEntry.objects.filter(action="pipeline.send").exists()


def test_a_viewer_sends_nothing(workspace: Workspace, pipeline: Pipeline, client_of: Any) -> None:
    viewer = client_of(factories.add_member(workspace, Role.VIEWER))
    assert send(viewer, pipeline, "{}").status_code == 403
    assert viewer.get("/api/v1/conditions/").status_code == 200


@pytest.mark.parametrize(("status", "doubtful"), [(204, False), (404, True), (405, False), (500, True)])
def test_a_connection_test_is_not_sure_of_an_answer_that_may_be_a_mistake(
    client: APIClient, status: int, doubtful: bool
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status)

    with receiver_in_thread(answer) as server:
        connection = {"type": "http", "connection": {"url": server.url}}
        result = client.post("/api/v1/connectors/test/", connection, format="json").json()
    assert result["doubtful"] is doubtful
    assert str(status) in result["detail"]


def test_totals_and_the_counts_of_seconds_are_of_one_moment(client: APIClient, pipeline: Pipeline) -> None:
    pipeline_id, ended = str(pipeline.pk), threading.Event()

    def write() -> None:
        """As the data plane does: the counts of a moment together."""
        while not ended.is_set():
            second = int(time.time())
            with redis_client().pipeline(transaction=True) as batch:
                for event in (events.ACCEPTED, events.delivered("out")):
                    batch.hincrby(keys.by_hour(pipeline_id, second // 3600), event, 1)
                    batch.hincrby(keys.by_second(pipeline_id, second // 60), f"{event}|{second}", 1)
                batch.execute()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        readings = [client.get(f"/api/v1/pipelines/{pipeline_id}/metrics/").json() for _ in range(100)]
    finally:
        ended.set()
        writer.join()
    for reading in readings:
        totals, seconds = reading["last_24_hours"], reading["by_second"]
        accepted = sum(counts.get(events.ACCEPTED, 0) for counts in seconds.values())
        assert totals.get(events.ACCEPTED, 0) == totals.get(events.delivered("out"), 0) == accepted
        assert all(int(second) >= reading["since"] for second in seconds)
    assert readings[-1]["last_24_hours"][events.ACCEPTED] > readings[0]["last_24_hours"].get(events.ACCEPTED, 0)
