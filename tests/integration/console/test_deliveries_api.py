import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from backend.apps.deliveries import retention
from backend.apps.deliveries.models import Attempt, DeadLetter
from backend.apps.deliveries.partitions import partitions_ensure
from backend.apps.pipelines.models import Pipeline
from backend.apps.usage.models import UsageMinute
from backend.apps.workspaces.models import Role, User, Workspace
from backend.domain.message import new_message_id
from tests import factories
from tests.factories import make_letter


@pytest.fixture
def pipeline(workspace: Workspace) -> Pipeline:
    return factories.make_pipeline(workspace)


def test_dead_letters_are_found_by_filter_and_text_and_show_their_payload(
    client: APIClient, pipeline: Pipeline
) -> None:
    one = make_letter(pipeline)
    make_letter(pipeline, reason="http_422", error="No such order.", body=b"\xff\x00")
    make_letter(pipeline, state="delivered")

    def count(query: str) -> int:
        return len(client.get(f"/api/v1/dead-letters/?{query}").json()["results"])

    assert count("state=waiting") == 2
    assert count(f"search={one.message_id}") == 1
    assert count("search=no such") == 1
    assert count(f"pipeline={pipeline.pk}&output=out&reason=http_422") == 1
    assert count(f"pipeline={uuid.uuid4()}") == 0
    shown = client.get(f"/api/v1/dead-letters/{one.pk}/").json()
    assert (shown["body"], shown["body_is_base64"]) == ('{"a": 1}', False)
    binary = DeadLetter.objects.get(reason="http_422")
    assert client.get(f"/api/v1/dead-letters/{binary.pk}/").json()["body"] == "/wA="


def test_the_preview_counts_what_the_redrive_then_reaches(client: APIClient, pipeline: Pipeline) -> None:
    for reason in ("http_500", "http_500", "timeout"):
        make_letter(pipeline, reason=reason)
    make_letter(pipeline, state="discarded")
    make_letter(pipeline, output="other")
    selection = {"filter": {"pipeline": str(pipeline.pk), "output": "out"}}
    preview = client.post("/api/v1/dead-letters/count/", selection, format="json").json()
    assert (preview["count"], preview["outputs"]) == (3, 1)
    assert {(group["reason"], group["count"]) for group in preview["groups"]} == {("http_500", 2), ("timeout", 1)}
    answer = client.post("/api/v1/dead-letters/redrive/", {**selection, "version": "current"}, format="json")
    assert answer.json() == {"count": 3}
    due = DeadLetter.objects.filter(due_at__lte=datetime.now(UTC), use_current_version=True)
    assert due.count() == 3


def test_a_discard_needs_a_reason_and_says_who_and_why(
    client: APIClient, pipeline: Pipeline, workspace: Workspace
) -> None:
    letter = make_letter(pipeline)
    chosen = {"filter": {"ids": str(letter.pk)}}
    refused = client.post("/api/v1/dead-letters/discard/", chosen, format="json")
    assert refused.status_code == 400
    assert "reason" in refused.json()["errors"]
    done = client.post("/api/v1/dead-letters/discard/", {**chosen, "reason": "A test."}, format="json")
    assert done.json() == {"count": 1}
    letter.refresh_from_db()
    assert (letter.state, letter.closed_by, letter.closed_why) == (
        "discarded",
        factories.admin_of(workspace).username,
        "A test.",
    )


def test_a_misspelt_filter_is_refused_and_never_reaches_everything(client: APIClient, pipeline: Pipeline) -> None:
    letter = make_letter(pipeline)
    for wrong in ({"pipelin": str(pipeline.pk)}, {"pipeline": "nonsense"}):
        answer = client.post("/api/v1/dead-letters/redrive/", {"filter": wrong}, format="json")
        assert answer.status_code == 400, wrong
    letter.refresh_from_db()
    assert letter.due_at is None


def test_other_workspaces_do_not_exist_and_viewers_only_look(
    client: APIClient, client_of: Callable[[User], APIClient], pipeline: Pipeline, workspace: Workspace
) -> None:
    letter = make_letter(pipeline)
    stranger = client_of(factories.admin_of(factories.make_workspace()))
    assert stranger.get(f"/api/v1/dead-letters/{letter.pk}/").status_code == 404
    assert stranger.get(f"/api/v1/pipelines/{pipeline.pk}/outputs/").status_code == 404
    assert stranger.post("/api/v1/dead-letters/redrive/", {"filter": {}}, format="json").json() == {"count": 0}
    viewer = client_of(factories.add_member(workspace, Role.VIEWER))
    assert viewer.post("/api/v1/dead-letters/count/", {"filter": {}}, format="json").json()["count"] == 1
    for action in ("redrive", "discard"):
        answer = viewer.post(f"/api/v1/dead-letters/{action}/", {"filter": {}, "reason": "x"}, format="json")
        assert answer.status_code == 403
    breaker = f"/api/v1/pipelines/{pipeline.pk}/outputs/out/breaker/"
    assert viewer.post(breaker, {"open": True}, format="json").status_code == 403


def test_an_operator_opens_and_closes_a_breaker(client: APIClient, pipeline: Pipeline) -> None:
    held = make_letter(pipeline, reason="breaker_open", due_at=datetime.now(UTC) + timedelta(minutes=15))
    address = f"/api/v1/pipelines/{pipeline.pk}/outputs/"
    opened = client.post(f"{address}out/breaker/", {"open": True, "seconds": 60}, format="json").json()
    assert opened["breaker"]["state"] == "open"
    assert "Opened by" in opened["breaker"]["cause"]
    until = datetime.fromisoformat(opened["breaker"]["until"])
    assert until == pytest.approx(datetime.now(UTC) + timedelta(seconds=60), abs=timedelta(seconds=5))
    [shown] = client.get(address).json()
    assert (shown["breaker"]["state"], shown["dead_letters"]) == ("open", 1)
    assert client.post(f"{address}out/breaker/", {"open": False}, format="json").json()["breaker"]["state"] == "closed"
    held.refresh_from_db()
    assert held.due_at is not None
    assert held.due_at <= datetime.now(UTC)
    assert client.post(f"{address}unknown/breaker/", {"open": False}, format="json").status_code == 404


def test_attempts_are_found_by_message_and_outcome(client: APIClient, pipeline: Pipeline) -> None:
    partitions_ensure()
    message = new_message_id()
    for number, reason in ((1, "http_500"), (2, "")):
        Attempt.objects.create(
            id=uuid.uuid4(), workspace_id=pipeline.workspace_id, pipeline_id=pipeline.pk, output="out",
            message_id=message, version=1, at=datetime.now(UTC), number=number, milliseconds=1.5, reason=reason,
        )  # fmt: skip
    assert len(client.get(f"/api/v1/attempts/?message_id={message}").json()["results"]) == 2
    [failed] = client.get(f"/api/v1/attempts/?message_id={message}&failed=true").json()["results"]
    assert failed["reason"] == "http_500"


def test_usage_by_step_and_as_csv(client: APIClient, pipeline: Pipeline) -> None:
    now = datetime.now(UTC).replace(minute=30, second=0, microsecond=0)
    for minutes, deliveries in ((0, 5), (1, 7), (60, 11)):
        UsageMinute.objects.create(
            workspace_id=pipeline.workspace_id, pipeline_id=pipeline.pk, output="out",
            minute=now - timedelta(minutes=minutes), deliveries=deliveries, bytes=deliveries * 10,
        )  # fmt: skip
    UsageMinute.objects.create(
        workspace_id=uuid.uuid4(), pipeline_id=uuid.uuid4(), output="out", minute=now, deliveries=100, bytes=1
    )
    query = (
        f"since={(now - timedelta(hours=2)):%Y-%m-%dT%H:%M:%SZ}&until={(now + timedelta(hours=1)):%Y-%m-%dT%H:%M:%SZ}"
    )
    rows = client.get(f"/api/v1/usage/?step=hour&{query}").json()
    assert [(row["deliveries"], row["bytes"], row["pipeline_name"]) for row in rows] == [
        (11, 110, pipeline.name),
        (12, 120, pipeline.name),
    ]
    exported = client.get(f"/api/v1/usage/export/?step=minute&{query}")
    assert exported["Content-Type"].startswith("text/csv")
    lines = exported.content.decode().splitlines()
    assert lines[0] == "period,pipeline,pipeline_name,output,deliveries,bytes"
    assert len(lines) == 4
    refused = client.get("/api/v1/usage/?step=minute&since=2020-01-01T00:00:00Z")
    assert refused.status_code == 400
    assert "step" in refused.json()["errors"]


def test_what_is_too_old_or_too_much_loses_its_body_but_is_not_forgotten(pipeline: Pipeline) -> None:
    now = datetime.now(UTC)
    old = make_letter(pipeline, first_at=now - timedelta(days=31))
    kept = [
        make_letter(pipeline, first_at=now - timedelta(minutes=n), body=b"x" * 100, body_bytes=100) for n in range(4)
    ]
    assert retention.dead_letters_expire(keep=timedelta(days=30), most_bytes=250) == 3
    states = [DeadLetter.objects.get(pk=letter.pk).state for letter in (old, *kept)]
    assert states == ["expired", "waiting", "waiting", "expired", "expired"]
    old.refresh_from_db()
    assert bytes(old.body) == b""
    assert "30 days" in old.closed_why


def test_metrics_are_there_for_who_has_the_token(
    client: APIClient, pipeline: Pipeline, settings: Any, kafka: object
) -> None:
    assert client.get("/metrics").status_code == 404
    settings.CONSOLE = settings.CONSOLE.model_copy(update={"embedded": True})
    make_letter(pipeline)
    text = client.get("/metrics").content.decode()
    assert f'headrace_dead_letters{{output="out",pipeline="{pipeline.pk}"}} 1.0' in text
    assert "process_cpu_seconds_total" in text
