"""Who may change the Spark applications, which belong to no workspace."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.jobs import spark
from backend.apps.jobs.models import SparkJob
from backend.apps.pipelines.services import pipeline_publish
from backend.apps.workspaces.models import User, Workspace
from backend.apps.workspaces.services import api_key_create
from backend.network.redis_client import redis_client
from backend.telemetry import keys
from tests import factories
from tests.infra import Server

pytestmark = pytest.mark.django_db

JOB = "permissions"
URL = f"/api/v1/jobs/{JOB}/"


@pytest.fixture(autouse=True)
def job() -> SparkJob:
    return SparkJob.objects.create(name=JOB, last_error="Another workspace's message: secret")


@pytest.fixture
def installation_admin(client_of: Callable[[User], APIClient]) -> APIClient:
    superuser = factories.make_user(is_superuser=True)
    factories.make_workspace(superuser)
    return client_of(superuser)


@pytest.mark.parametrize(("method", "action"), [("post", "stop"), ("post", "start"), ("get", "log")])
def test_neighbours_1_a_workspaces_admin_is_refused(client: APIClient, job: SparkJob, method: str, action: str) -> None:
    answer = getattr(client, method)(f"{URL}{action}/")
    assert (answer.status_code, answer["content-type"]) == (403, "application/problem+json")
    assert "administrators of the installation" in answer.json()["detail"]
    job.refresh_from_db()
    assert job.desired == SparkJob.Desired.RUNNING


def test_neighbours_1_a_workspaces_members_see_the_state_and_no_line_of_the_log(client: APIClient) -> None:
    [listed] = [one for one in client.get("/api/v1/jobs/").json() if one["name"] == JOB]
    assert (listed["status"], listed["last_error"]) == ("stopped", "")
    assert client.get("/api/v1/me/").json()["installation_admin"] is False


def test_a_key_is_refused_even_if_its_creator_may(workspace: Workspace) -> None:
    creator = factories.admin_of(workspace)
    User.objects.filter(pk=creator.pk).update(is_superuser=True)
    _, text = api_key_create(workspace=workspace, actor=creator, name="k", scopes=["read", "write"])
    program = APIClient(headers={"authorization": f"Bearer {text}"})
    assert program.get("/api/v1/jobs/").status_code == 200
    assert program.post(f"{URL}stop/").status_code == 403
    assert program.get(f"{URL}log/").status_code == 403


def test_neighbours_1_an_administrator_of_the_installation_may(
    installation_admin: APIClient, job: SparkJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "log_tail", lambda name, lines: [f"{name} {lines}"])
    assert installation_admin.get("/api/v1/me/").json()["installation_admin"] is True
    assert installation_admin.get(f"{URL}log/").json() == {"lines": [f"{JOB} 200"]}
    for action, desired in (("stop", "stopped"), ("start", "running")):
        answer = installation_admin.post(f"{URL}{action}/")
        assert (answer.status_code, answer.json()["desired"]) == (202, desired)
        assert answer.json()["last_error"] == job.last_error
    assert [entry.workspace_id for entry in AuditEntry.objects.filter(object_name=JOB)] == [None, None]


def test_an_administrator_gives_the_application_other_resources(installation_admin: APIClient, job: SparkJob) -> None:
    wanted = {"master": "spark://master:7077", "slots": 2, "executor_memory": 2048, "executor_cores": 4}
    answer = installation_admin.patch(f"{URL}resources/", wanted, format="json")
    assert answer.status_code == 202, answer.json()
    assert {name: answer.json()[name] for name in wanted} == wanted
    assert AuditEntry.objects.get(object_name=JOB).action == "job.change"


@pytest.mark.parametrize("master", ["", "local", "local[16,4]", "local[*]"])
def test_local_mode_may_have_a_number_of_slots_or_none(installation_admin: APIClient, master: str) -> None:
    answer = installation_admin.patch(f"{URL}resources/", {"master": master}, format="json")
    assert (answer.status_code, answer.json()["master"]) == (202, master)


def test_each_stage_says_what_it_does_and_why(client: APIClient, workspace: Workspace, redis_server: Server) -> None:
    SparkJob.objects.filter(name=JOB).update(status=SparkJob.Status.RUNNING, stages=["filtering", "exporter"])
    pipeline = factories.make_pipeline(workspace, index=[{"name": "country", "path": "country"}])
    pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))
    beat = {"stages": {"filtering": {"state": "running", "demand": "pipelines", "slots": 1}}}
    redis_client().set(keys.job_heartbeat(JOB), json.dumps(beat), ex=keys.HEARTBEAT_KEPT_SECONDS)
    [listed] = [one for one in client.get("/api/v1/jobs/").json() if one["name"] == JOB]
    filtering, exporter = listed["stages"]
    assert (filtering["state"], filtering["demand"], filtering["pipelines"]) == ("running", "pipelines", 1)
    assert (exporter["state"], exporter["pipelines"], exporter["slots"]) == ("stopped", 0, 0)


@pytest.mark.parametrize(
    ("wanted", "field", "said"),
    [
        ({"master": "yarn"}, "master", "Enter local"),
        ({"master": "local[]"}, "master", "Enter local"),
        ({"slots": 0}, "slots", "1"),
        ({"executor_memory": 1024}, "executor_memory", "has no executors"),
        ({"driver_memory": 16}, "driver_memory", "256"),
    ],
)
def test_resources_are_validated(installation_admin: APIClient, wanted: dict[str, Any], field: str, said: str) -> None:
    answer = installation_admin.patch(f"{URL}resources/", wanted, format="json")
    assert answer.status_code == 400
    assert said in answer.json()["errors"][field][0]


def test_a_workspaces_admin_changes_no_resources(client: APIClient) -> None:
    assert client.patch(f"{URL}resources/", {"slots": 2}, format="json").status_code == 403
