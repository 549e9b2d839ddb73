"""What connectors make in other systems: before a version is published, until nothing needs it."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from backend.apps.connectors.models import Connector
from backend.apps.manager.grpc import _runtime_config
from backend.apps.monitoring.alerts import alerts_evaluate
from backend.apps.monitoring.prometheus import exposition
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning, ProvisioningStep, Registration
from backend.apps.pipelines.provisioning import registrations, saga, steps
from backend.apps.pipelines.provisioning.registrations import registrations_remove, registrations_watch
from backend.apps.pipelines.services import provisionings_advance
from backend.apps.workspaces.models import Workspace
from backend.domain import connector as domain
from backend.domain.capabilities import Register
from backend.domain.inputs.connector import ConnectorInput
from tests import factories

pytestmark = pytest.mark.django_db


class Shelf:
    """The other system: a folder with a file for each registration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def labels(self) -> list[str]:
        return sorted(json.loads(file.read_text())["label"] for file in self.folder.glob("*.json"))

    def go_down(self) -> None:
        self.folder.rename(self.folder.with_suffix(".down"))

    def come_back(self) -> None:
        self.folder.with_suffix(".down").rename(self.folder)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    folder = tmp_path / "shelf"
    folder.mkdir()
    return Shelf(folder)


@pytest.fixture
def connector(workspace: Workspace, shelf: Shelf) -> Connector:
    return factories.make_connector(workspace, "toy_shelf", folder=str(shelf.folder))


@pytest.fixture
def pipeline(workspace: Workspace, connector: Connector) -> Pipeline:
    return factories.make_pipeline(workspace, input=reading(connector, "first"))


def reading(connector: Connector, label: str) -> dict[str, Any]:
    return {"type": "connector", "connector": str(connector.pk), "options": {"label": label}}


def shown(client: APIClient, pipeline: Pipeline) -> dict[str, Any]:
    body: dict[str, Any] = client.get(f"/api/v1/pipelines/{pipeline.pk}/").json()
    return body


def save(client: APIClient, pipeline: Pipeline, input: dict[str, Any]) -> None:
    newest = pipeline.versions.first()
    assert newest is not None
    body = {"name": pipeline.name, "config": newest.config | {"input": input}}
    answer = client.put(f"/api/v1/pipelines/{pipeline.pk}/", body, format="json")
    assert answer.status_code == 200, answer.json()


def publish(client: APIClient, pipeline: Pipeline) -> None:
    answer = client.post(f"/api/v1/pipelines/{pipeline.pk}/publish/")
    assert answer.status_code == 200, answer.json()


def delete(client: APIClient, pipeline: Pipeline) -> None:
    client.post(f"/api/v1/pipelines/{pipeline.pk}/pause/")
    assert client.delete(f"/api/v1/pipelines/{pipeline.pk}/").status_code == 204


def all_attempts(action: Any) -> None:
    for _ in range(6):
        Provisioning.objects.update(next_try_at=timezone.now())
        Registration.objects.exclude(remove_at=None).update(remove_at=timezone.now())
        action()


def read(pipeline: Pipeline, connector: Connector) -> list[Any]:
    """What the data plane reads with the configuration that the manager gives it."""
    config = _runtime_config(str(pipeline.pk), 0)
    assert config is not None
    given = config.connectors[str(connector.pk)]
    runtime = domain.RuntimeConnector(
        type=given.type,
        connection=json.loads(given.connection),
        registered={place: json.loads(made) for place, made in given.registered.items()},
    )
    published = Pipeline.objects.get(pk=pipeline.pk).published
    assert published is not None
    use = published.load().input
    assert isinstance(use, ConnectorInput)
    reader = use.bind(runtime)

    async def records() -> list[Any]:
        return [json.loads(record.body) async for batch in reader.read(None) for record in batch.records]

    return asyncio.run(records())


def test_it_is_made_before_the_version_is_published_and_known_to_its_reader(
    client: APIClient, pipeline: Pipeline, connector: Connector, shelf: Shelf
) -> None:
    publish(client, pipeline)
    body = shown(client, pipeline)
    assert body["published_version"] is None
    assert [(step["kind"], step["place"]) for step in body["provisioning"]["steps"]] == [("register", "input")]
    assert shelf.labels == []
    provisionings_advance()
    assert shown(client, pipeline)["published_version"] == 1
    assert shelf.labels == ["first"]
    assert read(pipeline, connector) == [{"label": "first", "before": {}}]


def test_a_version_that_became_unreadable_meanwhile_is_not_published_and_leaves_nothing_behind(
    client: APIClient, pipeline: Pipeline, shelf: Shelf
) -> None:
    publish(client, pipeline)
    step = ProvisioningStep.objects.get()
    saga._advance(step.provisioning, lambda *_: None)
    assert shelf.labels == ["first"]
    PipelineVersion.objects.update(schema_version=30_000)  # as a later release stores it
    provisionings_advance()
    body = shown(client, pipeline)
    assert body["published_version"] is None
    assert body["provisioning"]["state"] == "failed"
    assert "It was stored by a later release" in body["provisioning"]["cause"]
    registrations_remove()
    assert shelf.labels == []


def test_a_new_version_adapts_what_was_made(
    client: APIClient, pipeline: Pipeline, connector: Connector, shelf: Shelf
) -> None:
    publish(client, pipeline)
    provisionings_advance()
    (made,) = shelf.folder.glob("*.json")
    save(client, pipeline, reading(connector, "second"))
    publish(client, pipeline)
    provisionings_advance()
    assert shelf.labels == ["second"]
    assert read(pipeline, connector) == [{"label": "second", "before": {"file": str(made)}}]


def test_what_a_new_version_does_not_need_is_removed(
    client: APIClient, pipeline: Pipeline, workspace: Workspace, shelf: Shelf, tmp_path: Path
) -> None:
    publish(client, pipeline)
    provisionings_advance()
    other = tmp_path / "other"
    other.mkdir()
    save(client, pipeline, reading(factories.make_connector(workspace, "toy_shelf", folder=str(other)), "moved"))
    publish(client, pipeline)
    registrations_remove()
    assert shelf.labels == ["first"]  # the published version needs it
    provisionings_advance()
    registrations_remove()
    assert shelf.labels == []
    assert Shelf(other).labels == ["moved"]
    save(client, pipeline, {"type": "http"})
    publish(client, pipeline)
    registrations_remove()
    assert Shelf(other).labels == []
    assert not Registration.objects.exists()


def test_a_deleted_pipeline_leaves_nothing_even_while_it_was_being_published(
    client: APIClient, pipeline: Pipeline, connector: Connector, shelf: Shelf
) -> None:
    publish(client, pipeline)
    provisionings_advance()
    delete(client, pipeline)
    shelf.go_down()
    registrations_remove()
    (left,) = Registration.objects.all()
    assert (left.attempts, left.error) == (1, "There is no such shelf.")
    assert left.remove_at is not None
    assert left.remove_at > timezone.now()
    refused = client.delete(f"/api/v1/connectors/{connector.pk}/")
    assert refused.status_code == 409
    assert "which is being removed from it (There is no such shelf.)" in refused.json()["detail"]
    shelf.come_back()
    Registration.objects.update(remove_at=timezone.now())
    registrations_remove()
    assert (shelf.labels, Registration.objects.count()) == ([], 0)
    assert client.delete(f"/api/v1/connectors/{connector.pk}/").status_code == 204


def test_a_failure_is_shown_at_its_field_and_tried_again(client: APIClient, pipeline: Pipeline, shelf: Shelf) -> None:
    shelf.go_down()
    publish(client, pipeline)
    provisionings_advance()
    (step,) = shown(client, pipeline)["provisioning"]["steps"]
    assert (step["state"], step["field"], step["error"]) == (
        "pending",
        "config.input.connector",
        "There is no such shelf.",
    )
    shelf.come_back()
    Provisioning.objects.update(next_try_at=timezone.now())
    provisionings_advance()
    assert shown(client, pipeline)["published_version"] == 1
    assert shelf.labels == ["first"]


def test_what_cannot_be_made_is_undone(client: APIClient, pipeline: Pipeline, shelf: Shelf) -> None:
    shelf.go_down()
    publish(client, pipeline)
    all_attempts(provisionings_advance)
    body = shown(client, pipeline)
    assert (body["provisioning"]["state"], body["provisioning"]["cause"]) == ("failed", "There is no such shelf.")
    assert body["published_version"] is None
    shelf.come_back()
    registrations_remove()
    assert not Registration.objects.exists()


def test_a_refused_version_leaves_the_published_one_as_it_was(
    client: APIClient, pipeline: Pipeline, connector: Connector, shelf: Shelf
) -> None:
    publish(client, pipeline)
    provisionings_advance()
    save(client, pipeline, reading(connector, "forbidden"))
    publish(client, pipeline)
    provisionings_advance()
    body = shown(client, pipeline)
    assert (body["provisioning"]["state"], body["published_version"]) == ("failed", 1)
    assert body["provisioning"]["steps"][0]["field"] == "config.input.options.label"
    registrations_remove()
    assert shelf.labels == ["first"]


def test_what_was_adapted_before_another_step_failed_is_adapted_back(
    client: APIClient, pipeline: Pipeline, connector: Connector, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(client, pipeline)
    provisionings_advance()
    save(client, pipeline, reading(connector, "second"))
    publish(client, pipeline)
    provisioning = Provisioning.objects.get(state=Provisioning.State.PROVISIONING)
    ProvisioningStep.objects.create(provisioning=provisioning, kind="failing")

    def fail(*_: Any) -> dict[str, Any]:
        assert shelf.labels == ["second"]
        raise steps.StepFailedError("It does not work.", final=True)

    monkeypatch.setitem(steps.STEPS, "failing", steps.Step(fail, lambda *_: None))
    provisionings_advance()
    assert [step["state"] for step in shown(client, pipeline)["provisioning"]["steps"]] == ["undone", "failed"]
    assert shelf.labels == ["first"]
    registrations_remove()
    assert shelf.labels == ["first"]


@pytest.mark.parametrize("deleted", [False, True])
def test_a_crash_after_it_was_made_and_before_that_was_stored(
    client: APIClient, pipeline: Pipeline, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    publish(client, pipeline)
    with monkeypatch.context() as patched:
        patched.setattr(Registration, "save", crash)
        with pytest.raises(Crash):
            provisionings_advance()
    assert shelf.labels == ["first"]
    if deleted:
        delete(client, pipeline)
        registrations_remove()
        assert shelf.labels == []
    else:
        provisionings_advance()
        assert shelf.labels == ["first"]
        assert shown(client, pipeline)["published_version"] == 1


def test_a_crash_after_it_was_removed_and_before_that_was_stored(
    client: APIClient, pipeline: Pipeline, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(client, pipeline)
    provisionings_advance()
    delete(client, pipeline)
    with monkeypatch.context() as patched:
        patched.setattr(Registration, "delete", crash)
        with pytest.raises(Crash):
            registrations_remove()
    assert (shelf.labels, Registration.objects.count()) == ([], 1)
    registrations_remove()
    assert not Registration.objects.exists()


def test_it_is_not_removed_when_it_is_needed_again(
    client: APIClient, pipeline: Pipeline, connector: Connector, shelf: Shelf
) -> None:
    publish(client, pipeline)
    provisionings_advance()
    save(client, pipeline, {"type": "http"})
    publish(client, pipeline)
    save(client, pipeline, reading(connector, "again"))
    publish(client, pipeline)
    registrations_remove()
    assert shelf.labels == ["first"]
    provisionings_advance()
    registrations_remove()
    assert shelf.labels == ["again"]


def test_a_danger_is_shown_and_raises_an_alert(
    client: APIClient, pipeline: Pipeline, workspace: Workspace, connector: Connector, shelf: Shelf
) -> None:
    publish(client, pipeline)
    provisionings_advance()
    registrations_watch()
    assert shown(client, pipeline)["warnings"] == []
    client.post(f"/api/v1/pipelines/{pipeline.pk}/pause/")
    (made,) = shelf.folder.glob("*.json")
    made.write_text(made.read_text().replace("}", " " * 1000 + "}"))
    registrations_watch()
    alerts_evaluate()
    assert shown(client, pipeline)["warnings"] == ["The shelf bends."]
    labels = f'pipeline="{pipeline.pk}",place="input"'
    metrics = exposition().decode().splitlines()
    assert f"headrace_registration_endangered{{{labels}}} 1.0" in metrics
    size = float(made.stat().st_size)
    assert f'headrace_registration{{measure="bytes",{labels}}} {size}' in metrics
    (alert,) = workspace.alert_rules.get(kind="registration").alerts.filter(ended_at=None)
    assert alert.message == f"{pipeline.name}: The shelf bends."
    made.write_text("{}")
    registrations_watch()
    alerts_evaluate()
    assert shown(client, pipeline)["warnings"] == []
    assert not workspace.alert_rules.get(kind="registration").alerts.filter(ended_at=None).exists()


def test_a_call_that_hangs_or_fails_unexpectedly_is_a_failure_of_its_step(
    client: APIClient, pipeline: Pipeline, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: Any) -> None:
        await asyncio.sleep(60)

    hanging = threading.Event()

    async def hang_in_a_thread(*_: Any) -> None:
        await asyncio.to_thread(hanging.wait)

    async def explode(*_: Any) -> None:
        raise KeyError("s3cret")

    monkeypatch.setattr(registrations, "_CALL_SECONDS", 0.1)
    publish(client, pipeline)
    for failing, error in (
        (hang, "did not answer"),
        (hang_in_a_thread, "did not answer"),
        (explode, "failed unexpectedly (KeyError)"),
    ):
        monkeypatch.setattr(domain.connectors.get("toy_shelf").capability(Register), "register", failing)
        Provisioning.objects.update(next_try_at=timezone.now())
        provisionings_advance()
        (step,) = shown(client, pipeline)["provisioning"]["steps"]
        assert error in step["error"]
        assert "s3cret" not in step["error"]
    hanging.set()


def test_an_unknown_pipeline_has_nothing_registered(connector: Connector) -> None:
    assert registrations.registered(pipeline_id=uuid4(), connector_id=connector.pk) == {}


class Crash(Exception):
    """The process ends here: whatever its transaction wrote is lost."""


def crash(*_: Any, **__: Any) -> None:
    raise Crash
