"""A misspelt field of a request is reported, not ignored."""

from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from backend.apps.jobs.services import job_ensure_default
from backend.apps.workspaces.models import Role, User, Workspace
from backend.apps.workspaces.services import api_key_create
from backend.domain.errors import UNKNOWN_FIELD
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def objects(workspace: Workspace, client: APIClient, settings: Any) -> dict[str, str]:
    """One of each kind, by the part of the path that names it."""
    settings.CONSOLE = settings.CONSOLE.model_copy(update={"embedded": True})
    connector = factories.make_connector(workspace)
    pipeline = factories.make_pipeline(workspace, connector)
    rule = {"name": "Down", "kind": "job_down", "threshold": 0}
    key, _ = api_key_create(workspace=workspace, actor=factories.admin_of(workspace), name="k", scopes=["ingest"])
    member = factories.add_member(workspace, Role.VIEWER).membership_set.get()
    # Jobs belong to the installation, and so to its administrators.
    User.objects.filter(pk=factories.admin_of(workspace).pk).update(is_superuser=True)
    return {
        "connectors/{id}": f"connectors/{connector.pk}",
        "pipelines/{id}": f"pipelines/{pipeline.pk}",
        "pipelines/{pipeline}/outputs/{name}": f"pipelines/{pipeline.pk}/outputs/out",
        "alert-rules/{id}": f"alert-rules/{client.post('/api/v1/alert-rules/', rule, format='json').json()['id']}",
        "api-keys/{id}": f"api-keys/{key.pk}",
        "members/{id}": f"members/{member.pk}",
        "jobs/{name}": f"jobs/{job_ensure_default().name}",
        "{message_id}": "0198a7e5-0000-7000-8000-000000000000",
    }


def test_every_endpoint_refuses_an_unknown_field(client: APIClient, objects: dict[str, str]) -> None:
    paths = SchemaGenerator().get_schema(public=True)["paths"]
    bodies = [
        (path, method) for path, methods in paths.items() for method in methods if "requestBody" in methods[method]
    ]
    assert len(bodies) > 15
    for template, method in bodies:
        path = template
        for part, there in objects.items():
            path = path.replace(f"/{part}/", f"/{there}/")
        answer = client.generic(method.upper(), path, '{"nmae": 1}', content_type="application/json")
        assert answer.status_code == 400, (method, path, answer.content)
        assert answer["content-type"] == "application/problem+json"
        assert answer.json()["errors"]["nmae"] == [UNKNOWN_FIELD], (method, path)


@pytest.mark.parametrize("kind", ["connectors", "pipelines", "alert-rules"])
def test_what_was_read_may_be_sent_back(client: APIClient, objects: dict[str, str], kind: str) -> None:
    url = f"/api/v1/{objects[f'{kind}/{{id}}']}/"
    shown = client.get(url).json()
    answer = client.put(url, shown | {"name": "Changed"}, format="json")
    assert (answer.status_code, answer.json()["name"]) == (200, "Changed")
    refused = client.put(url, shown | {"name": "Other", "nmae": "Other"}, format="json")
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["nmae"])
    assert client.get(url).json()["name"] == "Changed"


def test_a_member_and_a_connection_to_test_may_be_sent_whole(client: APIClient, objects: dict[str, str]) -> None:
    member = next(
        m for m in client.get("/api/v1/members/").json()["results"] if objects["members/{id}"].endswith(str(m["id"]))
    )
    answer = client.patch(f"/api/v1/{objects['members/{id}']}/", member | {"role": "editor"}, format="json")
    assert (answer.status_code, answer.json()["role"]) == (200, "editor")
    connector = client.get(f"/api/v1/{objects['connectors/{id}']}/").json()
    answer = client.post(f"/api/v1/{objects['connectors/{id}']}/test/", connector, format="json")
    assert "connection" in str(answer.json()["errors"])  # it was checked, and nobody answers
