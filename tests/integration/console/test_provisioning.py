"""Versions that need a topic and a schema: published once both exist, or rolled back completely."""

from datetime import timedelta
from typing import Any

import pytest
import requests
from confluent_kafka.admin import AdminClient
from django.utils import timezone
from rest_framework.test import APIClient

from backend.apps.pipelines.models import Pipeline, Provisioning, Removal
from backend.apps.pipelines.provisioning.saga import removals_advance
from backend.apps.pipelines.selectors import snapshot_by_number
from backend.apps.pipelines.services import provisionings_advance
from backend.apps.workspaces.models import Workspace
from backend.domain import routing
from tests import factories
from tests.infra import KAFKA, Server
from tests.schema_registry import ADDRESS, schema_registry
from tests.waiting import LIMIT_SECONDS, wait_until

__all__ = ["schema_registry"]

pytestmark = pytest.mark.django_db

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_TOTAL = ORDER | {"fields": [*ORDER["fields"], {"name": "total", "type": "double", "default": 0}]}  # type: ignore[misc]
OTHER_ID = ORDER | {"fields": [{"name": "id", "type": "string"}]}


def stage(schema: dict[str, Any]) -> dict[str, Any]:
    """Without outputs, since nothing gives messages back to them."""
    return {"stream_processing": {"avro_schema": schema}, "outputs": [], "index": []}


def topics() -> set[str]:
    return set(AdminClient({"bootstrap.servers": KAFKA}).list_topics(timeout=LIMIT_SECONDS).topics)


def versions_of(pipeline: Pipeline) -> list[int]:
    answer = requests.get(
        f"{ADDRESS}/subjects/{routing.processing_source(str(pipeline.pk))}-value/versions", timeout=LIMIT_SECONDS
    )
    return list(answer.json()) if answer.ok else []


def shown(client: APIClient, pipeline: Pipeline) -> dict[str, Any]:
    body: dict[str, Any] = client.get(f"/api/v1/pipelines/{pipeline.pk}/").json()
    return body


def save(client: APIClient, pipeline: Pipeline, schema: dict[str, Any]) -> Any:
    config = pipeline.versions.get(number=1).config | stage(schema)
    url = f"/api/v1/pipelines/{pipeline.pk}/"
    return client.put(url, {"name": pipeline.name, "config": config}, format="json")


def publish(client: APIClient, pipeline: Pipeline) -> None:
    answer = client.post(f"/api/v1/pipelines/{pipeline.pk}/publish/")
    assert answer.status_code == 200, answer.json()


@pytest.fixture
def pipeline(workspace: Workspace, kafka: Server, schema_registry: Server, redis_server: Server) -> Pipeline:
    return factories.make_pipeline(workspace, **stage(ORDER))


def test_a_version_is_published_once_its_topic_and_schema_exist(client: APIClient, pipeline: Pipeline) -> None:
    publish(client, pipeline)
    body = shown(client, pipeline)
    assert body["published_version"] is None
    assert body["provisioning"]["state"] == "provisioning"
    assert [step["state"] for step in body["provisioning"]["steps"]] == ["pending", "pending"]
    refused = client.post(f"/api/v1/pipelines/{pipeline.pk}/publish/")
    assert refused.status_code == 409
    provisionings_advance()
    body = shown(client, pipeline)
    assert body["provisioning"] is None, body["provisioning"]
    assert body["published_version"] == 1
    assert routing.processing_source(str(pipeline.pk)) in topics()
    assert versions_of(pipeline) == [1]
    snapshot = snapshot_by_number(pipeline.pk, 0)
    assert snapshot is not None
    known = requests.get(f"{ADDRESS}/schemas/ids/{snapshot.schema_id}", timeout=LIMIT_SECONDS).json()
    assert "Order" in known["schema"]


def test_a_schema_that_cannot_read_the_one_before_is_refused_at_save(client: APIClient, pipeline: Pipeline) -> None:
    publish(client, pipeline)
    provisionings_advance()
    refused = save(client, pipeline, OTHER_ID)
    assert refused.status_code == 400
    assert "cannot read what was written" in refused.json()["errors"]["config.stream_processing.avro_schema"][0]
    assert save(client, pipeline, WITH_TOTAL).status_code == 200
    publish(client, pipeline)
    provisionings_advance()
    assert shown(client, pipeline)["published_version"] == 2
    assert versions_of(pipeline) == [1, 2]


def test_what_cannot_be_made_is_tried_again_and_then_taken_back(
    client: APIClient, pipeline: Pipeline, schema_registry: Server
) -> None:
    publish(client, pipeline)
    schema_registry.stop()
    try:
        began = timezone.now()
        provisionings_advance()
        assert Provisioning.objects.get().next_try_at > began + timedelta(seconds=1)
        # What follows may take longer than that.
        Provisioning.objects.update(next_try_at=timezone.now() + timedelta(hours=1))
        body = shown(client, pipeline)["provisioning"]
        assert [(step["state"], step["attempts"]) for step in body["steps"]] == [("done", 1), ("pending", 1)]
        assert body["steps"][1]["error"].startswith("The schema registry does not answer")
        assert routing.processing_source(str(pipeline.pk)) in topics()
        provisionings_advance()  # not due yet
        assert shown(client, pipeline)["provisioning"]["steps"][1]["attempts"] == 1
        for _ in range(5):
            Provisioning.objects.update(next_try_at=timezone.now())
            provisionings_advance()
        body = shown(client, pipeline)
        assert body["provisioning"]["state"] == "failed"
        assert body["provisioning"]["cause"].startswith("The schema registry does not answer")
        assert [step["state"] for step in body["provisioning"]["steps"]] == ["undone", "failed"]
        assert body["published_version"] is None
        wait_until(lambda: routing.processing_source(str(pipeline.pk)) not in topics())
        assert save(client, pipeline, WITH_TOTAL).json()["errors"]["config.stream_processing.avro_schema"]
    finally:
        schema_registry.start()
    publish(client, pipeline)
    provisionings_advance()
    assert shown(client, pipeline)["published_version"] == 1


def test_a_deleted_pipeline_leaves_nothing(client: APIClient, pipeline: Pipeline, schema_registry: Server) -> None:
    publish(client, pipeline)
    provisionings_advance()
    topic = routing.processing_source(str(pipeline.pk))
    client.post(f"/api/v1/pipelines/{pipeline.pk}/pause/")
    assert client.delete(f"/api/v1/pipelines/{pipeline.pk}/").status_code == 204
    removals_advance()
    assert topic in topics()  # lanes may still write to it
    schema_registry.stop()
    try:
        Removal.objects.update(next_try_at=timezone.now())
        removals_advance()
        removal = Removal.objects.get()
        assert (removal.attempts, removal.next_try_at > timezone.now()) == (1, True)
    finally:
        schema_registry.start()
    Removal.objects.update(next_try_at=timezone.now())
    removals_advance()
    assert not Removal.objects.exists()
    wait_until(lambda: topic not in topics())
    assert requests.get(f"{ADDRESS}/subjects/{topic}-value/versions", timeout=LIMIT_SECONDS).status_code == 404


@pytest.mark.parametrize("field", ["outputs", "index"])
def test_what_would_never_reach_its_outputs_is_not_published(
    client: APIClient, workspace: Workspace, schema_registry: Server, field: str
) -> None:
    after = {"outputs": [factories.output(factories.make_connector(workspace))]}
    after = after if field == "outputs" else {"index": [{"name": "id", "path": "id", "type": "number"}]}
    pipeline = factories.make_pipeline(workspace, **(stage(ORDER) | after))
    answer = client.post(f"/api/v1/pipelines/{pipeline.pk}/publish/")
    assert answer.status_code == 400
    assert "never reach outputs" in answer.json()["errors"]["config.stream_processing.sql"][0]
    assert shown(client, pipeline)["published_version"] is None
    assert not Provisioning.objects.exists()
    assert save(client, pipeline, ORDER).status_code == 200
    publish(client, pipeline)


def test_without_a_registry_the_stage_is_refused_with_a_sentence(workspace: Workspace, settings: Any) -> None:
    settings.CONSOLE = settings.CONSOLE.model_copy(update={"schema_registry_url": ""})
    with pytest.raises(Exception, match="no schema registry"):
        factories.make_pipeline(workspace, **stage(ORDER))
