import json
from typing import Any

import pytest
from confluent_kafka import Producer
from rest_framework.test import APIClient

from backend.apps.connectors.models import StoredSecret
from backend.apps.workspaces.models import Role, Workspace
from backend.domain import routing
from backend.domain.message import Message, new_message_id, utc_now
from tests import factories
from tests.infra import KAFKA

pytestmark = pytest.mark.django_db

STEPS = [
    {"type": "rename", "path": "user", "to": "customer"},
    {"type": "set", "path": "source", "value": "web"},
]


def run(client: APIClient, pipeline: Any, body: str, **more: Any) -> dict[str, Any]:
    answer = client.post(f"/api/v1/pipelines/{pipeline.pk}/dry-run/", {"body": body, **more}, format="json")
    assert answer.status_code == 200, answer.json()
    found: dict[str, Any] = answer.json()
    return found


def test_each_step_is_shown_before_and_after(client: APIClient, workspace: Workspace) -> None:
    connector = factories.make_connector(
        workspace, url="http://127.0.0.1:1/erp", authentication={"type": "bearer", "token": "t0p-secret"}
    )
    pipeline = factories.make_pipeline(
        workspace, connector, transforms=STEPS, outputs=[factories.output(connector, options={"path": "/orders"})]
    )
    found = run(client, pipeline, '{"user": {"n": 9223372036854775808, "price": 1.10}}')
    first, second = found["steps"]
    assert first["name"] == "Step 1 (rename)"
    assert [json.loads(text) for text in first["before"]] == [{"user": {"n": 2**63, "price": 1.1}}]
    assert [json.loads(text) for text in first["after"]] == [{"customer": {"n": 2**63, "price": 1.1}}]
    assert first["after"] == second["before"]
    assert '"price": 1.10' in second["after"][0]
    assert json.loads(found["results"][0]) == {"customer": {"n": 2**63, "price": 1.1}, "source": "web"}
    assert found["topics"] == ["firehose_transformer", "firehose_adapted"]
    assert found["outputs"] == [{"name": "out", "target": "POST http://127.0.0.1:1/erp/orders", "error": ""}]
    assert "t0p-secret" not in json.dumps(found)


def test_what_a_step_refuses_is_told_at_the_step(client: APIClient, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace, transforms=STEPS)
    found = run(client, pipeline, "[1]")
    assert found["error"].startswith("Step 2 (set)")
    assert [step["name"] for step in found["steps"]] == ["Step 1 (rename)", "Step 2 (set)"]
    assert found["steps"][1]["after"] == []
    assert found["results"] == found["outputs"] == []
    assert run(client, pipeline, "{")["error"].startswith("The body is not JSON")


def test_a_configuration_can_be_tried_before_it_is_saved(client: APIClient, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace)
    unsaved = pipeline.versions.get().config | {"transforms": STEPS}
    assert len(run(client, pipeline, '{"user": 1}', config=unsaved)["steps"]) == 2
    untransformed = run(client, pipeline, "anything")
    assert untransformed["steps"] == []
    assert untransformed["results"] == ["anything"]
    assert pipeline.versions.count() == 1
    refused = client.post(
        f"/api/v1/pipelines/{pipeline.pk}/dry-run/", {"body": "{}", "config": {"outputs": []}}, format="json"
    )
    assert "config.outputs" in refused.json()["errors"]


def test_an_unreadable_secret_is_told_at_its_output(client: APIClient, workspace: Workspace) -> None:
    connector = factories.make_connector(workspace, authentication={"type": "bearer", "token": "t0p-secret"})
    pipeline = factories.make_pipeline(workspace, connector)
    StoredSecret.objects.filter(connector=connector).update(sealed=b"tampered")
    [output] = run(client, pipeline, "{}")["outputs"]
    assert connector.name in output["error"]


def test_captured_messages_are_those_of_the_pipeline(
    client: APIClient, workspace: Workspace, pipeline_topics: None, client_of: Any
) -> None:
    pipeline = factories.make_pipeline(workspace)
    producer = Producer({"bootstrap.servers": KAFKA})
    for owner, body in ((pipeline.pk, b"1"), ("another", b"2"), (pipeline.pk, b"3")):
        message = Message(new_message_id(), str(owner), 1, b"k", body, "text/plain", utc_now(), (routing.ADAPTED,))
        producer.produce(routing.INPUT, message.body, message.key, headers=list(message.headers()))
    producer.flush(10)
    url = f"/api/v1/pipelines/{pipeline.pk}/messages/"
    assert [found["body"] for found in client.get(url).json()] == ["3", "1"]
    assert [found["body"] for found in client.get(f"{url}?limit=1").json()] == ["3"]
    stranger = client_of(factories.add_member(factories.make_workspace(), Role.ADMIN))
    assert stranger.get(url).status_code == 404


def test_versions_are_compared(client: APIClient, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace)
    url = f"/api/v1/pipelines/{pipeline.pk}/"
    for transforms in ([STEPS[1]], [STEPS[1] | {"value": "app"}]):
        config = pipeline.versions.get(number=1).config | {"transforms": transforms}
        assert client.put(url, {"name": pipeline.name, "config": config}, format="json").status_code == 200
    changed = {"path": "transforms.0.value", "before": "web", "after": "app"}
    assert client.get(f"{url}versions/3/changes/").json() == [changed]
    [added] = client.get(f"{url}versions/3/changes/?since=1").json()
    assert added["path"] == "transforms.0"
    assert added["before"] is None
    assert client.get(f"{url}versions/9/changes/").status_code == 404
