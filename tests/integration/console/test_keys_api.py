import pytest
import redis
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.workspaces.models import ApiKey, Workspace
from backend.apps.workspaces.services import key_hash
from backend.manager_api import snapshot as stored
from tests import factories
from tests.infra import REDIS_URL

URL = "/api/v1/api-keys/"

pytestmark = pytest.mark.django_db


def test_a_key_is_shown_once_stored_hashed_and_known_to_the_data_plane(client: APIClient, on_commit) -> None:  # type: ignore[no-untyped-def]
    with on_commit():
        created = client.post(URL, {"name": "shop", "scopes": ["ingest", "read"]}, format="json").json()
    text = created["key"]
    assert "key" not in client.get(URL).json()["results"][0]
    assert text not in str(ApiKey.objects.values())
    snapshot = redis.from_url(REDIS_URL)
    assert snapshot.hexists(stored.INGEST_KEYS, key_hash(text))
    program = APIClient(headers={"Authorization": f"Bearer {text}"})
    assert program.get("/api/v1/pipelines/").status_code == 200
    assert program.post("/api/v1/pipelines/", {}, format="json").status_code == 403
    with on_commit():
        assert client.delete(f"{URL}{created['id']}/").status_code == 204
    assert not snapshot.hexists(stored.INGEST_KEYS, key_hash(text))
    assert program.get("/api/v1/pipelines/").status_code == 401


def test_a_key_reaches_its_own_workspace_only(client: APIClient) -> None:
    created = client.post(URL, {"name": "shop", "scopes": ["write"]}, format="json").json()
    foreign = factories.make_pipeline(factories.make_workspace())
    program = APIClient(headers={"Authorization": f"Bearer {created['key']}"})
    assert program.get(f"/api/v1/pipelines/{foreign.pk}/").status_code == 404


def test_signing_in(workspace: Workspace) -> None:
    client = APIClient(enforce_csrf_checks=True)
    name = factories.admin_of(workspace).username
    client.get("/login")
    token = client.cookies["csrftoken"].value
    wrong = client.post(
        "/api/v1/session/", {"username": name, "password": "no"}, format="json", headers={"X-CSRFToken": token}
    )
    assert wrong.status_code == 400
    assert "password" in wrong.json()["errors"]
    without_token = client.post("/api/v1/session/", {"username": name, "password": "a-good-password"}, format="json")
    assert without_token.status_code == 403
    right = client.post(
        "/api/v1/session/",
        {"username": name, "password": "a-good-password"},
        format="json",
        headers={"X-CSRFToken": token},
    )
    assert right.status_code == 204
    assert client.get("/api/v1/me/").json()["workspaces"][0]["slug"] == workspace.slug


def test_what_a_key_does_is_told_with_its_name(client: APIClient, workspace: Workspace) -> None:
    created = client.post(URL, {"name": "deploy", "scopes": ["write"]}, format="json").json()
    program = APIClient(headers={"Authorization": f"Bearer {created['key']}"})
    body = {"name": "ERP", "type": "http", "connection": {"url": "http://127.0.0.1:1/"}}
    assert program.post("/api/v1/connectors/", body, format="json").status_code == 201
    admin = factories.admin_of(workspace).username
    assert AuditEntry.objects.get(action="connector.create").actor == f"{admin} (API key deploy)"


def test_the_pages_say_how_many_keys_match(client: APIClient) -> None:
    made = [
        client.post(URL, {"name": name, "scopes": ["read"]}, format="json").json() for name in ("shop", "erp", "crm")
    ]
    first = client.get(URL, {"page_size": 2}).json()
    second = client.get(first["next"]).json()
    assert [(page["count"], len(page["results"])) for page in (first, second)] == [(3, 2), (3, 1)]
    assert {key["id"] for page in (first, second) for key in page["results"]} == {key["id"] for key in made}
    for search in ("erp", made[1]["prefix"]):
        found = client.get(URL, {"search": search}).json()
        assert (found["count"], found["results"][0]["name"]) == (1, "erp")
