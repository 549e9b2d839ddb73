from typing import Any

import pytest
import redis
from rest_framework.test import APIClient

from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.apps.workspaces.models import Workspace
from backend.manager_api import snapshot as stored
from tests import factories
from tests.infra import REDIS_URL

URL = "/api/v1/pipelines/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def config(workspace: Workspace) -> dict[str, Any]:
    return {"outputs": [factories.output(factories.make_connector(workspace))]}


def published(pipeline_id: str) -> stored.PipelineSnapshot | None:
    data: Any = redis.from_url(REDIS_URL).hget(stored.PIPELINES, pipeline_id)
    return stored.load_pipeline(data) if data else None


def test_saving_makes_versions_and_publishing_puts_the_newest_in_force(
    client: APIClient, config: dict[str, Any], on_commit: Any
) -> None:
    created = client.post(URL, {"name": "Orders", "config": config}, format="json").json()
    assert (created["version"], created["published_version"]) == (1, None)
    assert published(created["id"]) is None
    url = f"{URL}{created['id']}/"
    with on_commit():
        assert client.post(f"{url}publish/").json()["published_version"] == 1
    changed = config | {"transforms": [{"type": "set", "path": "a", "value": 1}]}
    saved = client.put(url, {"name": "Orders", "config": changed}, format="json").json()
    assert (saved["version"], saved["published_version"]) == (2, 1)
    snapshot = published(created["id"])
    assert snapshot is not None
    assert (snapshot.version, snapshot.config.transforms) == (1, [])
    with on_commit():
        client.post(f"{url}publish/")
    snapshot = published(created["id"])
    assert snapshot is not None
    assert (snapshot.version, len(snapshot.config.transforms)) == (2, 1)
    assert [version["number"] for version in client.get(f"{url}versions/").json()["results"]] == [2, 1]


@pytest.mark.parametrize(
    ("input", "is_posted"),
    [
        (None, True),
        ({}, True),
        ({"type": "http"}, True),
        ({"type": "filter", "condition": {"type": "equals", "field": "a", "value": 1}}, False),
    ],
)
def test_the_address_to_post_to_is_told_where_there_is_one(
    client: APIClient, config: dict[str, Any], input: dict[str, Any] | None, is_posted: bool
) -> None:
    body = {"name": "Orders", "config": config | ({} if input is None else {"input": input})}
    created = client.post(URL, body, format="json").json()
    address = f"/v1/pipelines/{created['id']}/messages"
    assert (created["ingest_url"] or "").endswith(address) == is_posted
    assert client.get(f"{URL}{created['id']}/").json()["ingest_url"] == created["ingest_url"]


def test_saving_without_a_change_makes_no_version(client: APIClient, config: dict[str, Any]) -> None:
    created = client.post(URL, {"name": "Orders", "config": config}, format="json").json()
    saved = client.put(f"{URL}{created['id']}/", {"name": "New name", "config": config}, format="json").json()
    assert (saved["name"], saved["version"]) == ("New name", 1)


def test_an_earlier_version_is_restored_as_a_new_one(client: APIClient, config: dict[str, Any]) -> None:
    created = client.post(URL, {"name": "Orders", "config": config}, format="json").json()
    url = f"{URL}{created['id']}/"
    changed = config | {"transforms": [{"type": "set", "path": "a", "value": 1}]}
    client.put(url, {"name": "Orders", "config": changed}, format="json")
    restored = client.post(f"{url}versions/1/restore/").json()
    assert (restored["version"], restored["config"]["transforms"]) == (3, [])


def test_rolling_back_puts_an_earlier_version_in_force(
    client: APIClient, workspace: Workspace, on_commit: Any, config: dict[str, Any]
) -> None:
    url = f"{URL}{client.post(URL, {'name': 'Orders', 'config': config}, format='json').json()['id']}/"
    changed = config | {"transforms": [{"type": "set", "path": "a", "value": 1}]}
    client.put(url, {"name": "Orders", "config": changed}, format="json")
    client.post(f"{url}publish/")
    with on_commit():
        rolled_back = client.post(f"{url}versions/1/roll-back/").json()
    assert (rolled_back["version"], rolled_back["published_version"]) == (3, 3)
    assert rolled_back["config"]["transforms"] == []
    snapshot = published(rolled_back["id"])
    assert snapshot is not None
    assert snapshot.version == 3


def test_a_roll_back_that_cannot_be_published_saves_nothing(
    client: APIClient, workspace: Workspace, config: dict[str, Any]
) -> None:
    example = {"name": "one", "input": "{}", "outputs": ['{"a": 2}']}
    failing = config | {"transforms": [{"type": "set", "path": "a", "value": 1}], "examples": [example]}
    url = f"{URL}{client.post(URL, {'name': 'Orders', 'config': failing}, format='json').json()['id']}/"
    client.put(url, {"name": "Orders", "config": config}, format="json")
    client.post(f"{url}publish/")
    answer = client.post(f"{url}versions/1/roll-back/")
    assert answer.status_code == 400
    assert "config.examples.0" in answer.json()["errors"]
    shown = client.get(url).json()
    assert (shown["version"], shown["published_version"]) == (2, 2)


def test_pausing_stops_the_input_and_keeps_the_version(client: APIClient, workspace: Workspace, on_commit: Any) -> None:
    pipeline = factories.make_pipeline(workspace)
    url = f"{URL}{pipeline.pk}/"
    for action, accepting in (("publish", True), ("pause", False), ("resume", True)):
        with on_commit():
            assert client.post(f"{url}{action}/").status_code == 200
        snapshot = published(str(pipeline.pk))
        assert snapshot is not None
        assert snapshot.accepting is accepting


@pytest.mark.parametrize(
    "stored",
    [
        {"schema_version": 99, "config": {"input": ["of", "a", "later", "release"], "outputs": {}}},
        {"config": {"outputs": [], "transforms": [{"type": "step_of_a_plugin_that_is_gone"}]}},
    ],
)
def test_one_that_cannot_be_read_is_shown_paused_and_deleted(
    client: APIClient, workspace: Workspace, on_commit: Any, stored: dict[str, Any]
) -> None:
    pipeline, neighbour = factories.make_pipeline(workspace), factories.make_pipeline(workspace)
    url = f"{URL}{pipeline.pk}/"
    for each in (pipeline, neighbour):
        with on_commit():
            assert client.post(f"{URL}{each.pk}/publish/").status_code == 200
    PipelineVersion.objects.filter(pipeline=pipeline).update(**stored)
    listed = {one["id"]: one for one in client.get(URL).json()["results"]}
    assert listed[str(neighbour.pk)]["failure"] == ""
    shown = client.get(url).json()
    assert shown["failure"] == listed[str(pipeline.pk)]["failure"]
    assert ("a later release" if "schema_version" in stored else "cannot be read") in shown["failure"]
    assert shown["config"] == stored["config"]
    for place in ("versions/", "versions/1/", "versions/1/changes/", "outputs/"):
        assert client.get(url + place).status_code == 200
    for action in ("pause", "resume", "pause"):
        with on_commit():
            answer = client.post(f"{url}{action}/")
        assert (answer.status_code, answer.json()["paused"]) == (200, action == "pause")
    with on_commit():
        assert client.delete(url).status_code == 204
    assert published(str(pipeline.pk)) is None
    assert not Pipeline.objects.filter(pk=pipeline.pk).exists()
    assert published(str(neighbour.pk)) is not None


@pytest.mark.parametrize("changes", [{"schema_version": 99}, {"config": {"transforms": [{"type": "of_a_plugin"}]}}])
def test_a_draft_that_cannot_be_read_says_so_and_is_replaced_or_deleted(
    client: APIClient, config: dict[str, Any], changes: dict[str, Any]
) -> None:
    made = client.post(URL, {"name": "Orders", "config": config}, format="json").json()
    url = f"{URL}{made['id']}/"
    _add_version(made["id"], number=2, **changes)
    [listed] = client.get(URL).json()["results"]
    shown = client.get(url).json()
    assert (shown["status"]["state"], shown["status"]["action"], shown["failure"]) == ("degraded", "edit", "")
    assert "cannot be read" in shown["status"]["error"] or "later release" in shown["status"]["error"]
    assert listed["status"] == shown["status"]
    assert client.post(f"{url}publish/").status_code == 400
    replaced = client.put(url, {"name": "Orders", "config": config}, format="json").json()
    assert (replaced["version"], replaced["status"]["state"]) == (3, "draft")
    _add_version(made["id"], number=4, **changes)
    assert client.delete(url).status_code == 204


def _add_version(pipeline_id: str, **fields: Any) -> None:
    """Of another release, or of a plugin that is gone."""
    version = PipelineVersion.objects.filter(pipeline=pipeline_id).latest("number")
    version.pk = None
    for name, value in fields.items():
        setattr(version, name, value)
    version.save(force_insert=True)


def test_an_accepting_pipeline_is_not_deleted(client: APIClient, workspace: Workspace, on_commit: Any) -> None:
    pipeline = factories.make_pipeline(workspace)
    url = f"{URL}{pipeline.pk}/"
    with on_commit():
        client.post(f"{url}publish/")
    assert client.delete(url).status_code == 409
    with on_commit():
        client.post(f"{url}pause/")
        assert client.delete(url).status_code == 204
    assert published(str(pipeline.pk)) is None
    assert not PipelineVersion.objects.filter(pipeline_id=pipeline.pk).exists()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"outputs": []}, "config.outputs"),
        ({"outputs": [{"name": "out"}]}, "config.outputs.0.connector"),
        ({"surprise": 1}, "config.surprise"),
        ({"transforms": [{"type": "rename", "path": "a", "to": "a"}]}, "config.transforms.0"),
        ({"transforms": [{"type": "fly"}]}, "config.transforms.0"),
        ({"input": {"type": "http", "ordering_key": "a..b"}}, "config.input.ordering_key"),
    ],
)
def test_bad_configuration_is_told_at_its_field_and_nothing_is_saved(
    client: APIClient, config: dict[str, Any], change: dict[str, Any], path: str
) -> None:
    answer = client.post(URL, {"name": "Orders", "config": config | change}, format="json")
    assert answer.status_code == 400
    assert path in answer.json()["errors"], answer.json()
    assert not Pipeline.objects.exists()


def test_options_are_checked_against_the_connectors_type(client: APIClient, workspace: Workspace) -> None:
    connector = factories.make_connector(workspace)
    config = {"outputs": [factories.output(connector, options={"method": "FETCH", "pth": "/x"})]}
    errors = client.post(URL, {"name": "Orders", "config": config}, format="json").json()["errors"]
    assert set(errors) == {"config.outputs.0.options.method", "config.outputs.0.options.pth"}


def test_another_workspaces_connector_cannot_be_used(client: APIClient) -> None:
    foreign = factories.make_connector(factories.make_workspace())
    config = {"outputs": [factories.output(foreign)]}
    answer = client.post(URL, {"name": "Orders", "config": config}, format="json")
    assert answer.json()["errors"] == {"config.outputs.0.connector": ["This workspace has no such connector."]}


def test_versions_come_in_pages_and_each_with_its_configuration_by_itself(
    client: APIClient, workspace: Workspace
) -> None:
    pipeline = factories.make_pipeline(workspace)
    url = f"{URL}{pipeline.pk}/"
    shown = client.get(url).json()
    for number in range(2, 6):
        changed = shown["config"] | {"transforms": [{"type": "set", "path": "a", "value": number}]}
        assert client.put(url, {"name": shown["name"], "config": changed}, format="json").status_code == 200
    first = client.get(f"{url}versions/", {"page_size": 3}).json()
    second = client.get(first["next"]).json()
    assert [[one["number"] for one in page["results"]] for page in (first, second)] == [[5, 4, 3], [2, 1]]
    assert second["next"] is None
    assert "config" not in first["results"][0]
    whole = client.get(f"{url}versions/4/").json()
    assert (whole["number"], whole["config"]["transforms"][0]["value"]) == (4, 4)
    assert client.get(f"{url}versions/6/").status_code == 404


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "x"])
def test_what_is_no_number_is_none(client: APIClient, workspace: Workspace, number: str) -> None:
    """Some digits, and thousands of them, are no number to Python."""
    url = f"{URL}{factories.make_pipeline(workspace).pk}/"
    assert client.get(f"{url}versions/1/changes/", {"since": number}).status_code == 200
    assert client.get("/api/v1/attempts/", {"page_size": number}).status_code == 200
    for path in ("", "changes/", "input-change/"):
        assert client.get(f"{url}versions/{number}/{path}").status_code == 404
    assert client.post(f"{url}versions/{number}/restore/").status_code == 404


@pytest.mark.parametrize("action", ["", "publish/", "pause/", "metrics/", "errors/", "versions/"])
def test_another_workspaces_pipeline_does_not_exist(client: APIClient, action: str) -> None:
    foreign = factories.make_pipeline(factories.make_workspace())
    url = f"{URL}{foreign.pk}/{action}"
    call = client.post if action in ("publish/", "pause/") else client.get
    assert call(url).status_code == 404


def test_the_page_carries_a_strict_policy_and_its_nonce(client: APIClient) -> None:
    page = client.get("/pipelines")
    policy = page["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    if page.status_code == 200:
        nonce = policy.split("'nonce-")[1].split("'")[0]
        assert f'content="{nonce}"' in page.content.decode()


def test_the_pages_of_a_list_say_how_many_match(client: APIClient, workspace: Workspace) -> None:
    elsewhere = factories.make_workspace()
    connector = factories.make_connector(workspace)
    made = {str(factories.make_pipeline(workspace, connector).pk) for _ in range(3)}
    factories.make_pipeline(elsewhere)
    first = client.get(URL, {"page_size": 2}).json()
    second = client.get(first["next"]).json()
    assert [(page["count"], len(page["results"])) for page in (first, second)] == [(3, 2), (3, 1)]
    assert {one["id"] for page in (first, second) for one in page["results"]} == made
    assert second["next"] is None
    found = client.get(URL, {"search": first["results"][0]["name"], "page_size": 2}).json()
    assert (found["count"], [one["id"] for one in found["results"]]) == (1, [first["results"][0]["id"]])
    assert client.get("/api/v1/connectors/", {"page_size": 1}).json()["count"] == 1
