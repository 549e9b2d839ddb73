import csv
import io
import json
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.deliveries.models import DeadLetter
from backend.apps.workspaces.models import Role, Workspace
from tests import factories

pytestmark = pytest.mark.django_db

CONNECTION = {"url": "https://erp.example.com/", "authentication": {"type": "bearer", "token": "t0p-secret"}}


def entries(client: APIClient, query: str = "") -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = client.get(f"/api/v1/audit/?{query}").json()["results"]
    return results


def test_a_changed_secret_is_told_without_its_value(client: APIClient) -> None:
    made = client.post(
        "/api/v1/connectors/", {"name": "ERP", "type": "http", "connection": CONNECTION}, format="json"
    ).json()
    changed = {**CONNECTION, "authentication": {"type": "bearer", "token": "an0ther"}}
    client.put(
        f"/api/v1/connectors/{made['id']}/", {"name": "SAP", "type": "http", "connection": changed}, format="json"
    )
    updated, created = entries(client, f"object_id={made['id']}")
    assert [created["action"], updated["action"]] == ["connector.create", "connector.update"]
    assert updated["changes"] == [
        {"path": "name", "before": "ERP", "after": "SAP"},
        {"path": "connection.authentication.token", "before": None, "after": "CHANGED"},
    ]
    assert "t0p-secret" not in json.dumps([created, updated])
    assert "an0ther" not in json.dumps([created, updated])


def test_a_pipelines_life_is_in_the_log(client: APIClient, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace)
    url = f"/api/v1/pipelines/{pipeline.pk}/"
    config = client.get(url).json()["config"]
    config["outputs"][0]["concurrency"] = 2
    assert client.put(url, {"name": pipeline.name, "config": config}, format="json").status_code == 200
    assert client.post(f"{url}publish/").status_code == 200
    assert client.post(f"{url}pause/").status_code == 200
    assert client.post(f"{url}versions/1/restore/").status_code == 200
    assert client.delete(url).status_code == 204
    recorded = entries(client, f"object_id={pipeline.pk}")
    assert [entry["action"] for entry in reversed(recorded)] == [
        f"pipeline.{action}" for action in ("create", "update", "publish", "pause", "update", "delete")
    ]
    [change] = recorded[-2]["changes"]
    assert change == {"path": "config.outputs.out.concurrency", "before": 64, "after": 2}
    assert {entry["actor"] for entry in recorded} == {factories.admin_of(workspace).username}


def test_nothing_is_logged_of_what_was_refused(client: APIClient, workspace: Workspace) -> None:
    before = AuditEntry.objects.count()
    assert client.post("/api/v1/pipelines/", {"name": "P", "config": {}}, format="json").status_code == 400
    assert AuditEntry.objects.count() == before


def test_sign_ins_keys_dead_letters_breakers_and_alert_rules(client: APIClient, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace)
    user = factories.admin_of(workspace)
    stranger = APIClient()
    for password in ("wrong", "a-good-password"):
        stranger.post("/api/v1/session/", {"username": user.username, "password": password}, format="json")
    key = client.post("/api/v1/api-keys/", {"name": "CI", "scopes": ["read"]}, format="json").json()
    client.delete(f"/api/v1/api-keys/{key['id']}/")
    client.post("/api/v1/dead-letters/discard/", {"filter": {"output": "out"}, "reason": "old"}, format="json")
    client.post(f"/api/v1/pipelines/{pipeline.pk}/outputs/out/breaker/", {"open": True}, format="json")
    rule = {"name": "Down", "kind": "job_down", "email": "ops@example.com"}
    assert client.post("/api/v1/alert-rules/", rule, format="json").status_code == 201
    recorded = entries(client)
    assert {
        "session.refused",
        "session.sign_in",
        "api_key.create",
        "api_key.revoke",
        "dead_letters.discard",
        "breaker.set",
        "alert_rule.create",
    } <= {entry["action"] for entry in recorded}
    assert key["key"] not in json.dumps(recorded)
    assert not DeadLetter.objects.exists()


def test_it_is_searched_filtered_and_exported(client: APIClient, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace)
    assert {entry["action"] for entry in entries(client, "action=connector")} == {"connector.create"}
    assert entries(client, f"search={pipeline.name}")[0]["object_name"] == pipeline.name
    assert entries(client, "since=2100-01-01T00:00:00Z") == []
    answer = client.get("/api/v1/audit/export/?action=pipeline.create")
    [row] = csv.DictReader(io.StringIO(answer.content.decode()))
    assert row["object_id"] == str(pipeline.pk)
    assert json.loads(row["changes"])[0]["after"] == pipeline.name


def test_admins_see_their_own_workspaces_log_only(client: APIClient, workspace: Workspace, client_of: Any) -> None:
    other = factories.make_pipeline(factories.make_workspace())
    assert entries(client, f"object_id={other.pk}") == []
    editor = client_of(factories.add_member(workspace, Role.EDITOR))
    assert editor.get("/api/v1/audit/").status_code == 403


def test_the_database_refuses_to_change_the_log(workspace: Workspace) -> None:
    for change in (lambda: AuditEntry.objects.update(actor="nobody"), lambda: AuditEntry.objects.all().delete()):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            change()
