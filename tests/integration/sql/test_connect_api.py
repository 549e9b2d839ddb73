"""Headrace's own connectors over the REST API of Kafka Connect, as programs for it use that."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from backend.apps.audit.models import AuditEntry
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.pipelines.services import pipeline_publish
from backend.apps.workspaces.models import Scope, Workspace
from backend.apps.workspaces.services import api_key_create
from backend.domain import json
from backend.domain.connector import connectors
from tests import factories
from tests.infra import KAFKA, Server
from tests.integration.sql.conftest import Execute

pytestmark = pytest.mark.django_db
SECRET = "planted-secret-of-connect"
ERP = {"connector.class": "http", "url": "http://127.0.0.1:9/x", "authentication.type": "bearer"}

Ask = Callable[..., Any]


def credentials(workspace: Workspace, *scopes: Scope) -> str:
    """For a header Authorization: a key as the password."""
    _, key = api_key_create(workspace=workspace, actor=factories.admin_of(workspace), name="connect", scopes=scopes)
    return f"Basic {base64.b64encode(f'anybody:{key}'.encode()).decode()}"


@pytest.fixture
def ask(workspace: Workspace) -> Ask:
    """Sends a request with an API key as the password; the answer must have this status."""
    authorization = credentials(workspace, Scope.WRITE)

    def send(method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = Client().generic(
            method,
            f"/connect{path}",
            b"" if body is None else json.dumps(body),
            content_type="application/json",
            headers={"Authorization": authorization},
        )
        assert answer.status_code == status, answer.content
        return answer.json() if answer.content else None

    return send


def test_a_class_that_is_broken_says_why(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "The module connectors.sap cannot be loaded: ImportError: no library."
    monkeypatch.setitem(connectors._broken, "sap", reason)
    body = {"name": "erp", "config": {"connector.class": "sap"}}
    answer = ask("POST", "/connectors", body, status=400)
    assert answer["message"] == f"The type 'sap' cannot be used. {reason}"


def test_what_kafbat_asks_for(ask: Ask, workspace: Workspace, execute: Execute) -> None:
    classes = {plugin["class"]: plugin["type"] for plugin in ask("GET", "/connector-plugins")}
    assert {"http": "source", "postgres_cdc": "source", "collection": "sink"}.items() <= classes.items()
    checked = ask("PUT", "/connector-plugins/http/config/validate", {"connector.class": "http", "name": "erp"})
    assert checked["error_count"] == 1
    [url] = [one for one in checked["configs"] if one["value"]["name"] == "url"]
    assert (url["definition"]["type"], url["definition"]["required"]) == ("STRING", True)
    assert url["value"]["errors"] == ["This field is required."]

    config = ERP | {"authentication.token": SECRET}
    made = ask("POST", "/connectors", {"name": "erp", "config": config}, status=201)
    assert (made["name"], made["type"], made["tasks"]) == ("erp", "source", [])
    assert (ERP | {"name": "erp", "authentication.token": "********"}).items() <= made["config"].items()
    assert ask("POST", "/connectors", {"name": "erp", "config": config}, status=409) == {
        "error_code": 409,
        "message": "Connector erp already exists.",
    }
    assert ask("GET", "/connectors") == ["erp"]
    assert ask("GET", "/connectors/erp") == made
    assert ask("GET", "/connectors/erp/config") == made["config"]
    assert ask("GET", "/connectors/erp/status")["connector"]["state"] == "UNASSIGNED"

    # What is shown can be sent back: the mask keeps the secret.
    ask("PUT", "/connectors/erp/config", made["config"] | {"url": "http://127.0.0.1:9/y"})
    connector = Connector.objects.get(workspace=workspace, name="erp")
    assert connection_with_secrets(connector)["authentication"]["token"] == SECRET
    assert connector.connection["url"] == "http://127.0.0.1:9/y"
    [shown] = execute("SHOW CONNECTORS")["results"]
    assert [one["name"] for one in shown["connectors"]] == ["erp"]

    pipeline = factories.make_pipeline(workspace, connector)
    assert "no pipeline" in ask("PUT", "/connectors/erp/pause", status=400)["message"]
    pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))
    assert ask("GET", "/connectors/erp/tasks") == [
        {"id": {"connector": "erp", "task": 0}, "config": {"pipeline": pipeline.name}}
    ]
    ask("PUT", "/connectors/erp/pause", status=202)
    status = ask("GET", "/connectors/erp/status")
    assert (status["connector"]["state"], status["tasks"][0]["state"]) == ("PAUSED", "PAUSED")
    assert ask("GET", "/connectors/erp/tasks/0/status") == status["tasks"][0]
    assert pipeline.name in execute("RESUME CONNECTOR erp")["results"][0]["message"]
    assert ask("GET", "/connectors/erp/status")["connector"]["state"] == "RUNNING"
    assert (
        "start again"
        in ask("POST", "/connectors/erp/restart?includeTasks=true&onlyFailed=false", status=400)["message"]
    )
    assert pipeline.name in ask("DELETE", "/connectors/erp", status=409)["message"]

    assert ask("GET", "/connectors/nothing/status", status=404)["error_code"] == 404
    assert SECRET not in str(list(AuditEntry.objects.values()))


def test_what_kcctl_asks_for(ask: Ask, workspace: Workspace, kafka: Server, execute: Execute) -> None:
    about = ask("GET", "/")
    assert about["version"].startswith("4.")
    assert about["kafka_cluster_id"]
    broken = {"connector.class": "kafka", "nothing": SECRET}
    refused = ask("PUT", "/connectors/lake/config", broken, status=400)["message"]
    assert "bootstrap_servers: This field is required." in refused
    assert SECRET not in refused
    ask("PUT", "/connectors/lake/config", {"connector.class": "kafka", "bootstrap_servers": KAFKA}, status=201)
    ask("PATCH", "/connectors/lake/config", {"bootstrap_servers": KAFKA, "nothing": None})
    expanded = ask("GET", "/connectors/?expand=info&expand=status")
    assert expanded["lake"]["info"]["config"]["bootstrap_servers"] == KAFKA
    assert expanded["lake"]["status"]["tasks"] == []

    connector = Connector.objects.get(workspace=workspace, name="lake")
    topic = "connect-api-pageviews"
    factories.make_pipeline(workspace, outputs=[factories.output(connector, options={"topic": topic})])
    assert ask("GET", "/connectors/lake/topics") == {"lake": {"topics": [topic]}}
    execute(f"CREATE STREAM v (id BIGINT KEY, page VARCHAR) WITH (kafka_topic = '{topic}', partitions = 1)")
    assert ask("GET", f"/connectors/lake/topics/{topic}/schema") == {
        "topic": topic,
        "source": "v",
        "key": {"format": "KAFKA", "columns": [{"name": "id", "type": "BIGINT"}]},
        "value": {"format": "JSON", "columns": [{"name": "page", "type": "VARCHAR"}]},
    }
    assert "does not use" in ask("GET", "/connectors/lake/topics/other/schema", status=404)["message"]
    assert ask("GET", "/connectors/lake/offsets") == {"offsets": []}
    assert len(ask("GET", "/connectors/lake/tasks-config")) == 1
    assert ask("GET", "/admin/loggers/")["root"]["level"] == "INFO"


@pytest.mark.parametrize("name", [type.type for type in connectors])
def test_every_class_can_be_checked_with_nothing_but_its_name(ask: Ask, name: str) -> None:
    """AKHQ does so to learn the properties."""
    checked = ask("PUT", f"/connector-plugins/{name}/config/validate", {"connector.class": name, "topics": "x"})
    assert checked["error_count"] >= 1
    assert all(one["documentation"] for one in ask("GET", f"/connector-plugins/{name}/config"))


def test_without_a_key_that_may_nothing_is_done(ask: Ask, workspace: Workspace) -> None:
    client = Client()
    answer = client.get("/connect/connectors")
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, 'Basic realm="Headrace"')
    assert answer.json()["error_code"] == 401
    for header in ("Basic !", f"Basic {base64.b64encode(b'x:hr_unknown').decode()}"):
        assert client.get("/connect/connectors", headers={"Authorization": header}).status_code == 401
    reading = {"Authorization": credentials(workspace, Scope.READ)}
    assert client.get("/connect/connectors", headers=reading).status_code == 200
    body = {"name": "erp", "config": ERP}
    refused = client.post("/connect/connectors", body, content_type="application/json", headers=reading)
    assert (refused.status_code, refused.json()["error_code"]) == (403, 403)
