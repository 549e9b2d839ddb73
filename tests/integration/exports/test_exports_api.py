"""Exports by REST."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_update
from backend.apps.connectors.signals import HEARD_AFTER
from backend.apps.exports.forming import empty_files_form
from backend.apps.exports.models import Export, StagedPart
from backend.apps.exports.services import (
    export_claim,
    export_complete,
    export_fail,
    export_record_manifest,
    export_record_upload,
    upload_forget,
    uploads_left,
    uploads_unknown,
)
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import Role, User, Workspace
from tests import factories
from tests.integration.exports.stores import storing_pipeline

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server", "secret_keys")]


@pytest.fixture
def pipeline_id(workspace: Workspace, tmp_path: Path) -> str:
    """A pipeline with twelve staged messages and files of five."""
    pipeline = storing_pipeline(tmp_path, workspace, rows=5, name="{number}")
    StagedPart.objects.create(
        workspace_id=workspace.pk, pipeline_id=pipeline.pk, output="files", version=1, path="a", rows=12, bytes=120
    )
    return str(pipeline.pk)


def stored() -> Export:
    """The next file, after its writer has stored it."""
    export = export_claim(holder="test")
    assert export is not None
    assert export.token is not None
    held = {"export_id": export.pk, "token": export.token}
    preview = {"columns": ["a"], "rows": [["1"]]}
    export_record_manifest(**held, manifest={"rows": export.rows, "bytes": 77}, preview=preview)
    export_complete(**held)
    return export


def test_files_are_listed_with_what_waits_for_the_next(client: APIClient, pipeline_id: str) -> None:
    stored()
    listed = client.get("/api/v1/exports/", {"pipeline": pipeline_id}).json()["results"]
    assert [(file["path"], file["state"], file["rows"], file["file_bytes"]) for file in listed] == [
        ("00000002.jsonl", "staged", 5, None),
        ("00000001.jsonl", "committed", 5, 77),
    ]
    assert client.get("/api/v1/exports/", {"state": "committed", "search": "0001"}).json()["results"] == listed[1:]
    [waiting] = client.get("/api/v1/exports/waiting/").json()
    assert (waiting["pipeline"], waiting["messages"], waiting["bytes"]) == (pipeline_id, 2, 20)
    assert waiting["due_at"] > waiting["oldest"]


def test_uploads_that_no_export_goes_on_with_are_known(pipeline_id: str) -> None:
    writing = export_claim(holder="test")
    assert writing is not None
    assert writing.token is not None
    held = {"export_id": writing.pk, "token": writing.token}
    handle = {"name": "a", "id": "1", "number": "2"}
    export_record_upload(**held, upload=handle)
    assert writing.connector_id is not None
    found = [{"name": "a", "id": "1"}, {"name": "a", "id": "3"}]
    assert uploads_unknown(found) == found[1:]
    assert uploads_left(writing.connector_id) == []
    export_fail(**held, reason="connection", error="It is down.", retryable=True)
    assert uploads_unknown(found) == found[1:]
    assert uploads_left(writing.connector_id) == []
    Export.objects.filter(pk=writing.pk).update(due_at=None)  # given up
    assert uploads_unknown(found) == found
    assert uploads_left(writing.connector_id) == [(writing.pk, handle)]
    assert uploads_left(uuid4()) == []
    upload_forget(writing.pk, {"name": "a", "id": "another"})
    assert uploads_left(writing.connector_id) == [(writing.pk, handle)]
    upload_forget(writing.pk, handle)
    assert uploads_left(writing.connector_id) == []


def test_one_file_has_its_manifest_and_first_rows(client: APIClient, pipeline_id: str) -> None:
    shown = client.get(f"/api/v1/exports/{stored().pk}/").json()
    assert shown["manifest"] == {"rows": 5, "bytes": 77}
    assert shown["preview"] == {"columns": ["a"], "rows": [["1"]]}


def test_a_failed_file_without_messages_is_shown_as_one_that_can_be_retried(
    client: APIClient, workspace: Workspace, tmp_path: Path
) -> None:
    storing_pipeline(tmp_path, workspace, schedule="0 0 1 1 *", empty_files=True)
    Pipeline.objects.update(published_at=timezone.now() - timedelta(days=400))
    [export] = empty_files_form()
    claimed = export_claim(holder="test")
    assert claimed is not None
    assert claimed.token is not None
    failure = {"reason": "forbidden", "error": "The store refuses the file.", "retryable": False}
    export_fail(export_id=export.pk, token=claimed.token, **failure)
    [shown] = client.get("/api/v1/exports/").json()["results"]
    assert (shown["state"], shown["rows"], shown["can_retry"]) == ("failed", 0, True)
    retried = client.post(f"/api/v1/exports/{export.pk}/retry/", {"version": "original"}, format="json")
    assert retried.json()["state"] == "staged"


def test_a_file_can_be_made_of_what_there_is(client: APIClient, pipeline_id: str) -> None:
    made = client.post("/api/v1/exports/close/", {"pipeline": pipeline_id, "output": "files"}, format="json")
    assert [file["rows"] for file in made.json()] == [5, 5, 2]
    assert client.get("/api/v1/exports/waiting/").json() == []


def test_a_failed_file_is_aborted_and_retried(client: APIClient, pipeline_id: str) -> None:
    export = export_claim(holder="test")
    assert export is not None
    assert export.token is not None
    failure = {"reason": "forbidden", "error": "The store refuses the file.", "retryable": False}
    export_fail(export_id=export.pk, token=export.token, **failure)
    place = f"/api/v1/exports/{export.pk}"
    shown = client.get(f"{place}/").json()
    assert (shown["state"], shown["reason"], shown["due_at"], shown["can_retry"]) == ("failed", "forbidden", None, True)
    assert client.post(f"{place}/abort/").json()["state"] == "aborted"
    assert client.post(f"{place}/abort/").status_code == 409
    assert client.post(f"{place}/retry/", {"version": "original"}, format="json").json()["state"] == "staged"
    assert client.post(f"{place}/retry/", {"version": "none"}, format="json").status_code == 400


def test_a_file_that_waits_for_another_attempt_is_written_soon_once_its_connector_was_saved(pipeline_id: str) -> None:
    export = export_claim(holder="test")
    assert export is not None
    assert export.token is not None
    Export.objects.filter(pk=export.pk).update(failures=20)
    export_fail(export_id=export.pk, token=export.token, reason="login", error="The password is wrong.", retryable=True)
    waits = Export.objects.get(pk=export.pk)
    assert waits.due_at is not None
    assert waits.due_at > timezone.now() + 10 * HEARD_AFTER
    connector = Connector.objects.get(pk=export.connector_id)
    actor = factories.admin_of(connector.workspace)
    connector_update(connector=connector, actor=actor, name="Renamed", connection=connector.connection)
    waits.refresh_from_db()
    assert waits.due_at is not None
    assert waits.due_at <= timezone.now() + HEARD_AFTER


def test_others_see_and_change_nothing(
    client_of: Callable[[User], APIClient], workspace: Workspace, pipeline_id: str
) -> None:
    place = f"/api/v1/exports/{stored().pk}"
    stranger = client_of(factories.admin_of(factories.make_workspace()))
    assert stranger.get("/api/v1/exports/").json()["results"] == []
    assert stranger.get("/api/v1/exports/waiting/").json() == []
    close = {"pipeline": pipeline_id, "output": "files"}
    assert stranger.post("/api/v1/exports/close/", close, format="json").status_code == 404
    assert stranger.post(f"{place}/abort/").status_code == 404
    viewer = client_of(factories.add_member(workspace, Role.VIEWER))
    assert viewer.get(f"{place}/").status_code == 200
    assert viewer.post(f"{place}/abort/").status_code == 403
