"""How pipelines are: the same on lists, pages, in conditions and by the live socket."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from backend.apps.deliveries.services import breaker_set
from backend.apps.exports.models import Export, StagedPart
from backend.apps.jobs import selectors as job_selectors
from backend.apps.jobs.models import SparkJob
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import version_failures
from backend.apps.pipelines.services import pipeline_pause, pipeline_publish
from backend.apps.pipelines.statuses import statuses_of
from backend.apps.workspaces.models import Workspace
from backend.domain.pipeline import PipelineConfig
from backend.network.redis_client import redis_client
from backend.telemetry import events, keys
from tests import factories
from tests.factories import make_letter
from tests.infra import Server
from tests.integration.console.test_redis_outage import hung
from tests.integration.exports.stores import storing_pipeline

pytestmark = pytest.mark.django_db


@pytest.fixture
def pipeline(workspace: Workspace) -> Pipeline:
    return pipeline_publish(pipeline=factories.make_pipeline(workspace), actor=factories.admin_of(workspace))


def status(client: APIClient, pipeline: Pipeline) -> dict[str, Any]:
    """As the page, the list and the conditions have it, which agree."""
    page: dict[str, Any] = client.get(f"/api/v1/pipelines/{pipeline.pk}/").json()["status"]
    listed = client.get("/api/v1/pipelines/").json()["results"]
    assert page == next(one["status"] for one in listed if one["id"] == str(pipeline.pk))
    known = {one["pipeline"]: one["status"] for one in client.get("/api/v1/conditions/").json()}
    is_quiet = page["reason"] == "No message was delivered within the last two minutes."
    assert page == known.get(str(pipeline.pk), page if is_quiet else None)
    return page


def count(pipeline: Pipeline, event: str, n: int = 1) -> None:
    now = int(time.time())
    redis_client().hset(keys.by_second(str(pipeline.pk), now // 60), f"{event}|{now}", n)


def fail_input(pipeline: Pipeline) -> None:
    now = datetime.now(UTC)
    InputLease.objects.create(
        pipeline=pipeline, reading="batching", input={}, failure="The table orders is gone.", failing_since=now
    )


def fail_export(pipeline: Pipeline, number: int, **fields: Any) -> None:
    values = {
        "version": 1,
        "rows": 1,
        "bytes": 1,
        "slices": [],
        "state": "failed",
        "failures": 1,
        "error": "No bucket.",
    }
    Export.objects.create(
        workspace_id=pipeline.workspace_id,
        pipeline_id=pipeline.pk,
        output="archive",
        number=number,
        path=f"{number}.csv",
        **values | fields,
    )


def test_a_pipeline_is_idle_until_it_delivers(client: APIClient, pipeline: Pipeline) -> None:
    assert (status(client, pipeline)["state"], status(client, pipeline)["more"]) == ("idle", [])
    count(pipeline, events.delivered("out"))
    assert status(client, pipeline)["state"] == "delivering"


def test_an_input_that_cannot_be_read_is_told_with_its_error(client: APIClient, pipeline: Pipeline) -> None:
    fail_input(pipeline)
    shown = status(client, pipeline)
    assert (shown["state"], shown["action"], shown["error"]) == (
        "input_failing",
        "open_input",
        "The table orders is gone.",
    )
    assert shown["since"] is not None
    pipeline_pause(pipeline=pipeline, actor=factories.admin_of(pipeline.workspace))
    assert (status(client, pipeline)["state"], status(client, pipeline)["action"]) == ("paused", "resume")


def test_files_that_could_not_be_stored_are_told_by_output(client: APIClient, pipeline: Pipeline) -> None:
    fail_export(pipeline, 1)
    fail_export(pipeline, 2, state="writing", error="Still no bucket.")
    fail_export(pipeline, 3, state="committed")
    fail_export(pipeline, 4, state="staged", failures=0)
    shown = status(client, pipeline)
    assert (shown["state"], shown["action"], shown["place"]) == ("degraded", "open_exports", "archive")
    assert shown["reason"] == "Files of the output archive that could not be stored: 2."
    assert shown["error"] == "Still no bucket."


def test_messages_that_are_gathered_for_a_file_are_told(
    client: APIClient, workspace: Workspace, tmp_path: Path
) -> None:
    pipeline = storing_pipeline(tmp_path, workspace, minutes=30)
    assert status(client, pipeline)["reason"] == "No message was delivered within the last two minutes."
    parts = [
        StagedPart.objects.create(
            workspace_id=workspace.pk,
            pipeline_id=pipeline.pk,
            output="files",
            version=1,
            path=path,
            rows=5,
            bytes=50,
            taken=taken,
        )
        for path, taken in (("a", 0), ("b", 3), ("c", 5))
    ]
    shown = status(client, pipeline)
    assert (shown["state"], shown["action"]) == ("idle", "open_exports")
    assert shown["reason"] == "Messages wait for their file: 7."
    assert datetime.fromisoformat(shown["until"]) == parts[0].staged_at + timedelta(minutes=30)
    count(pipeline, events.delivered("files"))  # which staging counts
    assert status(client, pipeline)["state"] == "delivering"


def test_dead_letters_name_the_error_behind_them(client: APIClient, pipeline: Pipeline) -> None:
    for reason in ("breaker_open", "breaker_open", "http_500", "rate_limited"):
        make_letter(pipeline, reason=reason)
    for reason in ("http_500", "breaker_open"):
        error = {"at": "2026-01-01T00:00:00Z", "stage": "syndicating", "reason": reason, "message": f"{reason}!"}
        redis_client().lpush(keys.errors(str(pipeline.pk)), json.dumps(error | {"message_id": "1"}))
    count(pipeline, events.delivered("out"))
    shown = status(client, pipeline)
    assert (shown["state"], shown["error"]) == ("degraded", "http_500!")
    assert shown["reason"].endswith(": 3.")


def test_nothing_but_dead_letters_is_a_failure(client: APIClient, pipeline: Pipeline) -> None:
    make_letter(pipeline)
    count(pipeline, events.dead("out"))
    assert status(client, pipeline)["state"] == "failing"


def test_an_open_breaker_blocks_and_what_else_is_true_follows(client: APIClient, pipeline: Pipeline) -> None:
    actor = factories.admin_of(pipeline.workspace)
    breaker_set(pipeline=pipeline, output="out", to_open=True, seconds=600, actor=actor)
    fail_input(pipeline)
    shown = status(client, pipeline)
    assert (shown["state"], shown["place"], shown["action"]) == ("blocked", "out", "close_breaker")
    assert datetime.fromisoformat(shown["until"]) > datetime.now(UTC)
    assert [one["state"] for one in shown["more"]] == ["input_failing"]


def test_versions_that_are_not_published_are_told(client: APIClient, pipeline: Pipeline) -> None:
    draft = factories.make_pipeline(pipeline.workspace)
    assert (status(client, draft)["state"], status(client, draft)["action"]) == ("draft", "publish")
    url = f"/api/v1/pipelines/{pipeline.pk}/"
    read = client.get(url).json()
    changed = read["config"] | {"transforms": [{"type": "set", "path": "a", "value": 1}]}
    saved = client.put(url, read | {"config": changed}, format="json")
    assert saved.status_code == 200, saved.json()
    assert saved.json()["status"]["state"] == "unpublished"
    assert status(client, pipeline)["reason"] == "Version 2 is not published; version 1 runs."


def test_a_draft_that_cannot_be_read_is_told_and_loaded_once(client: APIClient, pipeline: Pipeline) -> None:
    assert pipeline.published is not None
    newest = pipeline.versions.create(
        number=2,
        config={"transforms": [{"type": "of_a_plugin"}]},
        schema_version=PipelineConfig.schema_version,
        author=pipeline.published.author,
    )
    shown = status(client, pipeline)
    assert (shown["state"], shown["action"]) == ("degraded", "edit")
    assert shown["reason"].startswith("Version 2, which is not published, cannot be read")
    assert "transforms.0" in shown["error"]
    with CaptureQueriesContext(connection) as asked:
        assert version_failures([newest.pk]) == {newest.pk: shown["error"]}
    assert not asked.captured_queries
    count(pipeline, events.delivered("out"))  # the published version runs
    assert status(client, pipeline)["state"] == "degraded"


def test_a_stage_that_it_needs_and_that_does_not_work_is_told(client: APIClient, pipeline: Pipeline) -> None:
    SparkJob.objects.create(name="plane", stages=["syndicating", "exporter"], desired="stopped")
    shown = status(client, pipeline)
    assert (shown["state"], shown["place"], shown["action"]) == ("failing", "syndicating", "open_jobs")
    assert shown["error"] == "The Spark application plane is stopped; messages wait in Kafka until it is started."
    assert shown["more"] == []


def test_a_stage_that_starts_is_no_failure(client: APIClient, pipeline: Pipeline) -> None:
    soon = timezone.now() + timedelta(seconds=30)
    SparkJob.objects.create(name="plane", stages=["syndicating"], status="starting", lease_until=soon)
    shown = status(client, pipeline)
    assert (shown["state"], shown["place"], shown["action"]) == ("starting", "syndicating", None)
    assert shown["reason"] == "The stage syndicating starts; its messages wait."


def test_nothing_fails_before_the_first_round_after_the_start(
    client: APIClient, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_selectors, "_BEGAN", time.monotonic())
    before = timezone.now() + timedelta(seconds=20)  # a lease of the round ten seconds ago
    job = SparkJob.objects.create(name="plane", stages=["syndicating"], status="running", lease_until=before)
    shown = status(client, pipeline)
    assert (shown["state"], shown["place"], shown["action"]) == ("starting", "syndicating", None)
    assert shown["reason"].startswith("The console has just started")
    SparkJob.objects.filter(pk=job.pk).update(lease_until=timezone.now() + timedelta(minutes=1))
    assert status(client, pipeline)["state"] == "failing"  # looked after, and silent


def test_a_user_learns_nothing_of_other_workspaces(client: APIClient, workspace: Workspace) -> None:
    elsewhere = factories.make_pipeline(factories.make_workspace())
    make_letter(elsewhere)
    assert client.get("/api/v1/conditions/").json() == []


def test_many_pipelines_are_asked_about_as_one_is(workspace: Workspace, pipeline: Pipeline) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            statuses_of(Pipeline.objects.filter(workspace=workspace))
        return len(asked)

    make_letter(pipeline)
    one = queries()
    actor = factories.admin_of(workspace)
    for _ in range(3):
        another = pipeline_publish(pipeline=factories.make_pipeline(workspace), actor=actor)
        fail_input(another)
        make_letter(another)
    assert queries() == one


def test_without_redis_the_list_says_what_is_known(client: APIClient, pipeline: Pipeline, redis_server: Server) -> None:
    draft = factories.make_pipeline(pipeline.workspace)
    with hung(redis_server):
        listed = client.get("/api/v1/pipelines/").json()["results"]
    states = {one["id"]: one["status"]["state"] for one in listed}
    assert states == {str(pipeline.pk): "unknown", str(draft.pk): "draft"}
