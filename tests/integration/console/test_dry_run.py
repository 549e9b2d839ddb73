import json
import uuid
from base64 import b64encode
from typing import Any

import pytest
from aiohttp import web
from confluent_kafka import Producer
from rest_framework.test import APIClient

from backend.apps.connectors.models import StoredSecret
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import snapshot_by_number
from backend.apps.workspaces.models import Role, Workspace
from backend.domain import routing
from backend.domain.connector import connectors
from backend.domain.message import Message, new_message_id, utc_now
from tests import factories
from tests.infra import KAFKA
from tests.receiver import receiver_in_thread
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.django_db

STEPS = [
    {"type": "rename", "path": "user", "to": "customer"},
    {"type": "set", "path": "source", "value": "web"},
]


def run(client: APIClient, pipeline: Any, body: str, **more: Any) -> dict[str, Any]:
    answer = client.post(f"/api/v1/pipelines/{pipeline.pk}/dry-run/", {"body": body, **more}, format="json")
    assert answer.status_code == 200, answer.json()
    result: dict[str, Any] = answer.json()
    return result


def test_each_step_is_shown_before_and_after(client: APIClient, workspace: Workspace) -> None:
    connector = factories.make_connector(
        workspace, url="http://127.0.0.1:1/erp", authentication={"type": "bearer", "token": "t0p-secret"}
    )
    pipeline = factories.make_pipeline(
        workspace, connector, transforms=STEPS, outputs=[factories.output(connector, options={"path": "/orders"})]
    )
    result = run(client, pipeline, '{"user": {"n": 9223372036854775808, "price": 1.10}}')
    first, second = result["steps"]
    assert first["name"] == "Step 1 (rename)"
    assert [json.loads(text) for text in first["before"]] == [{"user": {"n": 2**63, "price": 1.1}}]
    assert [json.loads(text) for text in first["after"]] == [{"customer": {"n": 2**63, "price": 1.1}}]
    assert first["after"] == second["before"]
    assert '"price": 1.10' in second["after"][0]
    assert json.loads(result["results"][0]["body"]) == {"customer": {"n": 2**63, "price": 1.1}, "source": "web"}
    assert result["topics"] == ["firehose_transformer", "firehose_adapted"]
    [output] = result["outputs"]
    assert output["target"] == "POST http://127.0.0.1:1/erp/orders"
    assert [json.loads(sent["body"]) for sent in output["sent"]] == [json.loads(result["results"][0]["body"])]
    assert "t0p-secret" not in json.dumps(result)


def test_rows_are_shown_and_what_is_no_row_is_told(client: APIClient, workspace: Workspace) -> None:
    connector = factories.make_connector(workspace, type="sql", **connectors.get("sql").example)
    options = {"table": "orders", "columns": {"n": "id"}, "key": ["n"], "delete_when": "gone"}
    output = factories.output(connector, options=options, batch={"messages": 10})
    pipeline = factories.make_pipeline(workspace, outputs=[output])
    [written] = run(client, pipeline, '{"id": 7, "text": "x"}')["outputs"]
    assert written["sent"] == [{"body": '{"n":7}', "is_base64": False, "place": "row with n 7", "deletes": False}]
    [deleted] = run(client, pipeline, '{"id": 7, "gone": true}')["outputs"]
    assert deleted["sent"] == [{"body": "", "is_base64": False, "place": "row with n 7", "deletes": True}]
    [refused] = run(client, pipeline, '{"text": "x"}')["outputs"]
    assert (refused["sent"], refused["error"]) == ([], "The message has no value for column n of the key.")


def test_steps_see_a_message_that_was_received_now(client: APIClient, workspace: Workspace) -> None:
    steps = [
        {"type": "template", "path": "id", "template": "{{$message.id}}{{$message.headers.none}}"},
        {"type": "expression", "expression": "metadata.pipeline + metadata.source", "to": "pipeline"},
    ]
    pipeline = factories.make_pipeline(workspace, transforms=steps)
    result = run(client, pipeline, "{}")
    assert result["error"] == ""
    shown = json.loads(result["results"][0]["body"])
    assert (uuid.UUID(shown["id"]).version, shown["pipeline"]) == (7, str(pipeline.pk))


def test_what_a_step_refuses_is_told_at_the_step(client: APIClient, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace, transforms=STEPS)
    result = run(client, pipeline, "[1]")
    assert result["error"].startswith("Step 2 (set)")
    assert [step["name"] for step in result["steps"]] == ["Step 1 (rename)", "Step 2 (set)"]
    assert result["steps"][1]["after"] == []
    assert result["results"] == result["outputs"] == []
    assert run(client, pipeline, "{")["error"].startswith("The body is not JSON")


def test_a_configuration_can_be_tried_before_it_is_saved(client: APIClient, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace)
    unsaved = pipeline.versions.get().config | {"transforms": STEPS}
    assert len(run(client, pipeline, '{"user": 1}', config=unsaved)["steps"]) == 2
    untransformed = run(client, pipeline, "anything", content_type="text/plain")
    assert untransformed["steps"] == []
    [shown] = untransformed["results"]
    assert shown == {"body": "anything", "is_base64": False, "content_type": "text/plain", "index": "", "taken_by": []}
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


def api_step(connector: Any, **config: Any) -> dict[str, Any]:
    return {
        "type": "call",
        "name": "people",
        "connector": str(connector.pk),
        "options": {"path": "/{{id}}"},
        **config,
    }


async def _answer(request: web.Request) -> web.Response:
    echoed = request.headers["Authorization"]
    return web.json_response({"name": "Ana"}) if request.path == "/1" else web.Response(status=500, text=echoed)


def test_an_external_api_is_asked_only_when_wanted(client: APIClient, workspace: Workspace, client_of: Any) -> None:
    with receiver_in_thread(_answer) as api:
        token = {"authentication": {"type": "bearer", "token": "t0p-secret"}}
        connector = factories.make_connector(workspace, url=api.url, **token)
        steps = [{"type": "deduplicate", "paths": ["id"]}, api_step(connector, to="person")]
        pipeline = factories.make_pipeline(workspace, connector, transforms=steps)
        result = run(client, pipeline, '{"id": 1}')
        assert [step["passed_over"] for step in result["steps"]] == [False, True]
        assert result["calls"] == []
        assert api.bodies == []
        result = run(client, pipeline, '{"id": 1}', call_apis=True)
        assert json.loads(result["results"][0]["body"]) == {"id": 1, "person": {"name": "Ana"}}
        assert result["calls"] == [{"name": "people", "request": "GET /1", "answer": '{"name": "Ana"}', "error": ""}]
        failed = run(client, pipeline, '{"id": 2}', call_apis=True)
        assert failed["error"].startswith("Step 2 (call): The API answered 500")
        assert failed["calls"][0]["error"]
        assert "t0p-secret" not in json.dumps(failed)
        viewer = client_of(factories.add_member(workspace, Role.VIEWER))
        url = f"/api/v1/pipelines/{pipeline.pk}/dry-run/"
        assert viewer.post(url, {"body": "{}", "call_apis": True}, format="json").status_code == 403
        assert viewer.post(url, {"body": "{}"}, format="json").status_code == 200


def test_an_api_call_needs_an_http_connector_of_the_workspace(client: APIClient, workspace: Workspace) -> None:
    own = factories.make_connector(workspace)
    strange = factories.make_connector(factories.make_workspace())
    pipeline = factories.make_pipeline(workspace, own)
    for connector, error in ((strange, "no such connector"), (own, None)):
        steps = [STEPS[1], api_step(connector, to="person")]
        config = pipeline.versions.get(number=1).config | {"transforms": steps}
        answer = client.put(f"/api/v1/pipelines/{pipeline.pk}/", {"name": "n", "config": config}, format="json")
        if error:
            assert error in answer.json()["errors"]["config.transforms.1.connector"][0]
        else:
            assert answer.status_code == 200, answer.json()
    # It is in use by the step alone, and cannot be deleted.
    used = client.delete(f"/api/v1/connectors/{own.pk}/")
    assert used.status_code == 409
    [output, api] = client.get(f"/api/v1/pipelines/{pipeline.pk}/outputs/").json()
    assert [output["name"], api["name"]] == ["out", "API-people"]
    breaker = client.post(f"/api/v1/pipelines/{pipeline.pk}/outputs/API-people/breaker/", {"open": True}, format="json")
    assert breaker.status_code == 200, breaker.json()


def test_a_version_that_fails_an_example_is_not_published(client: APIClient, workspace: Workspace) -> None:
    example = {"name": "one", "input": '{"user": 1}', "outputs": ['{"customer": 1, "source": "web"}']}
    pipeline = factories.make_pipeline(workspace, transforms=STEPS, examples=[example])
    url = f"/api/v1/pipelines/{pipeline.pk}/"
    assert client.post(f"{url}check-examples/").json() == [{"name": "one", "failure": ""}]
    assert client.post(f"{url}publish/").status_code == 200
    config = pipeline.versions.get(number=1).config
    config["transforms"][1]["value"] = "app"
    outcomes = client.post(f"{url}check-examples/", {"config": config}, format="json").json()
    assert outcomes == [{"name": "one", "failure": 'Message 1: source is "app" instead of "web".'}]
    assert client.put(url, {"name": pipeline.name, "config": config}, format="json").status_code == 200
    refused = client.post(f"{url}publish/")
    assert refused.status_code == 400
    sentence = f"The example 'one' fails. {outcomes[0]['failure']}"
    assert refused.json()["errors"] == {"config.examples.0": [sentence]}
    assert client.get(url).json()["published_version"] == 1
    snapshot = snapshot_by_number(pipeline.pk, 1)
    assert snapshot is not None
    assert snapshot.config.examples == []


def test_the_content_type_of_a_sample_counts_as_it_does_for_the_data_plane(
    client: APIClient, workspace: Workspace
) -> None:
    steps = [{"type": "decode", "format": "csv"}]
    pipeline = factories.make_pipeline(workspace, transforms=steps)
    latin = {"is_base64": True, "content_type": "text/csv; charset=latin-1"}
    result = run(client, pipeline, b64encode("nome\nJoão".encode("latin-1")).decode(), **latin)
    assert json.loads(result["results"][0]["body"]) == {"nome": "João"}
    plain = factories.make_pipeline(workspace)
    for body in ("NaN", '{"a": Infinity}', "{"):
        refused = run(client, plain, body)
        assert refused["error"].startswith("The body is not JSON")
        assert refused["results"] == refused["outputs"] == []
    assert run(client, plain, "\n{}\n", content_type="application/x-ndjson")["results"][0]["body"] == "{}"
    url = f"/api/v1/pipelines/{plain.pk}/dry-run/"
    for wrong, field in (
        ({"body": "{}\n{}", "content_type": "application/x-ndjson"}, "body"),
        ({"body": "é", "is_base64": True}, "body"),
        ({"body": "{}", "content_type": "text/é"}, "content_type"),
    ):
        answer = client.post(url, wrong, format="json")
        assert answer.status_code == 400
        assert field in answer.json()["errors"]
    missing = client.post("/api/v1/pipelines/nothing/dry-run/", {"body": "{}", "config": {}}, format="json")
    assert missing.status_code == 404


def test_a_dry_run_tells_whose_filters_take_the_message(client: APIClient, workspace: Workspace) -> None:
    condition = {"type": "equals", "field": "country", "value": "BR"}
    for name in ("taking", "paused", "unpublished"):
        subscriber = factories.make_pipeline(workspace, input={"type": "filter", "condition": condition})
        if name != "unpublished":
            assert client.post(f"/api/v1/pipelines/{subscriber.pk}/publish/").status_code == 200
        Pipeline.objects.filter(pk=subscriber.pk).update(name=name, paused=name == "paused")
    pipeline = factories.make_pipeline(workspace, index=[{"name": "country", "path": "country"}])
    [taken] = run(client, pipeline, '{"country": "BR"}')["results"]
    assert json.loads(taken["index"]) == {"country": "BR"}
    assert taken["taken_by"] == ["taking"]
    [other] = run(client, pipeline, '{"country": "PT"}')["results"]
    assert other["taken_by"] == []


def test_a_captured_message_is_replayed_and_compared_with_what_was_delivered(
    client: APIClient, workspace: Workspace, pipeline_topics: None
) -> None:
    pipeline = factories.make_pipeline(workspace, transforms=STEPS)
    body = b'{"user": 1}'
    message = Message(
        new_message_id(), str(pipeline.pk), 1, b"k", body, "application/json", utc_now(), (routing.ADAPTED,)
    )
    producer = Producer({"bootstrap.servers": KAFKA})
    producer.produce(routing.TRANSFORMER, body, message.key, headers=list(message.headers()))
    producer.produce(
        routing.ADAPTED, b'{"customer":1,"source":"app","lost":null}', message.key, headers=list(message.headers())
    )
    producer.flush(LIMIT_SECONDS)
    url = f"/api/v1/pipelines/{pipeline.pk}/messages/{message.id}/replay/"
    result = client.post(url, {}, format="json").json()
    assert json.loads(result["delivered"][0]["body"]) == {"customer": 1, "source": "app", "lost": None}
    assert result["differences"] == [
        {"message": 1, "path": "source", "change": "changed", "before": '"app"', "after": '"web"'},
        {"message": 1, "path": "lost", "change": "lost", "before": "null", "after": ""},
    ]
    draft = pipeline.versions.get(number=1).config | {"transforms": []}
    untransformed = client.post(url, {"config": draft}, format="json").json()
    assert json.loads(untransformed["outcome"]["results"][0]["body"]) == {"user": 1}
    assert {one["change"] for one in untransformed["differences"]} == {"added", "lost"}
    unknown = f"/api/v1/pipelines/{pipeline.pk}/messages/{new_message_id()}/replay/"
    assert client.post(unknown, {}, format="json").status_code == 404


def test_captured_messages_are_those_of_the_pipeline(
    client: APIClient, workspace: Workspace, pipeline_topics: None, client_of: Any
) -> None:
    pipeline = factories.make_pipeline(workspace)
    producer = Producer({"bootstrap.servers": KAFKA})
    for owner, body in ((pipeline.pk, b"1"), ("another", b"2"), (pipeline.pk, b"3")):
        message = Message(new_message_id(), str(owner), 1, b"k", body, "text/plain", utc_now(), (routing.ADAPTED,))
        producer.produce(routing.INPUT, message.body, message.key, headers=list(message.headers()))
    producer.flush(LIMIT_SECONDS)
    url = f"/api/v1/pipelines/{pipeline.pk}/messages/"
    assert [one["body"] for one in client.get(url).json()] == ["3", "1"]
    assert [one["body"] for one in client.get(f"{url}?limit=1").json()] == ["3"]
    assert client.get(f"/api/v1/pipelines/{pipeline.pk}/fields/").json() == []
    stranger = client_of(factories.add_member(factories.make_workspace(), Role.ADMIN))
    assert stranger.get(url).status_code == 404


def test_what_a_filter_took_is_captured_too(client: APIClient, workspace: Workspace, pipeline_topics: None) -> None:
    condition = {"type": "equals", "field": "country", "value": "BR"}
    pipeline = factories.make_pipeline(workspace, input={"type": "filter", "condition": condition})
    producer = Producer({"bootstrap.servers": KAFKA})
    message = Message(new_message_id(), str(pipeline.pk), 1, b"k", b'{"a":{"b":1}}', "application/json", utc_now(), ())
    producer.produce(routing.ADAPTED, message.body, message.key, headers=list(message.headers()))
    producer.flush(LIMIT_SECONDS)
    [one] = client.get(f"/api/v1/pipelines/{pipeline.pk}/messages/").json()
    assert one["id"] == message.id
    fields = client.get(f"/api/v1/pipelines/{pipeline.pk}/fields/").json()
    assert fields[1] == {"path": "a.b", "type": "number", "example": "1"}


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
