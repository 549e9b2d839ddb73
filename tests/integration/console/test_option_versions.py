"""A stored pipeline whose connector type stores the options of its uses in another form than before."""

from typing import Any

import pytest
import yaml
from rest_framework.test import APIClient

from backend.apps.config_files import services as config_files
from backend.apps.manager.leases import lease_follow
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Registration
from backend.apps.pipelines.provisioning.registrations import registrations_remove, registrations_watch
from backend.apps.pipelines.selectors import pipeline_failure, published_entries, snapshot_by_number
from backend.apps.pipelines.services import pipeline_publish, provisionings_advance
from backend.apps.workspaces.models import Workspace
from backend.domain.connector import connectors
from backend.manager_api.snapshot import load_pipeline
from tests import factories

pytestmark = pytest.mark.django_db

TOYS = {"toy_file": "file", "toy_lines": "file", "toy_shelf": "label"}
"""An option of each that was called ``name`` in the first version."""


@pytest.fixture
def new_release(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call it to have a release in which the options of the toys are of version 2."""

    def install(version: int = 2) -> None:
        for type, option in TOYS.items():
            model = connectors.get(type).capabilities[0].options_model

            def upgrade(data: dict[str, Any], _: int, option: str = option) -> dict[str, Any]:
                return {name: value for name, value in data.items() if name != "name"} | {option: data["name"]}

            monkeypatch.setattr(model, "schema_version", version)
            monkeypatch.setattr(model, "upgrade", upgrade)

    return install


@pytest.fixture
def pipeline(workspace: Workspace, new_release: Any) -> Pipeline:
    """Published by the former release."""
    file = factories.make_connector(workspace, "toy_file", folder="/x")
    made = factories.make_pipeline(workspace, outputs=[factories.output(file, options={"file": "orders"})])
    made = pipeline_publish(pipeline=made, actor=factories.admin_of(workspace))
    version = PipelineVersion.objects.get(pipeline=made)
    assert version.option_versions == {"outputs.0": ["toy_file", "deliver", 1]}
    version.config["outputs"][0]["options"] = {"name": "orders"}
    version.save()
    new_release()
    return Pipeline.objects.get(pk=made.pk)


def options(config: dict[str, Any]) -> dict[str, Any]:
    return dict(config["outputs"][0]["options"])


def test_it_is_shown_saved_and_published_in_the_present_form(client: APIClient, pipeline: Pipeline) -> None:
    url = f"/api/v1/pipelines/{pipeline.pk}/"
    shown = client.get(url).json()
    assert options(shown["config"]) == {"file": "orders"}
    saved = client.put(url, {"name": "Renamed", "config": shown["config"]}, format="json")
    assert saved.status_code == 200, saved.json()
    newest = PipelineVersion.objects.filter(pipeline=pipeline).first()
    assert newest is not None
    assert (newest.number, options(newest.config)) == (2, {"file": "orders"})
    assert newest.option_versions == {"outputs.0": ["toy_file", "deliver", 2]}
    assert client.post(f"{url}publish/", {}, format="json").status_code == 200


def test_the_data_plane_gets_it_in_the_present_form(pipeline: Pipeline) -> None:
    snapshot = snapshot_by_number(pipeline.pk, 1)
    assert snapshot is not None
    assert snapshot.config.outputs[0].options == {"file": "orders"}
    [(_, entry)] = published_entries([str(pipeline.pk)])
    assert load_pipeline(entry) == snapshot


def test_a_failing_upgrade_concerns_that_pipeline_only(
    client: APIClient, pipeline: Pipeline, workspace: Workspace
) -> None:
    version = PipelineVersion.objects.get(pipeline=pipeline)
    version.config["outputs"][0]["options"] = {}
    version.save()
    reason = "The options of outputs.0 cannot be read. It cannot be upgraded from version 1: KeyError('name')."
    assert pipeline_failure(Pipeline.objects.get(pk=pipeline.pk)) == reason
    sound = factories.make_pipeline(workspace)
    assert len(client.get("/api/v1/pipelines/").json()["results"]) == 2
    *documents, left_out = config_files.export(workspace)
    assert [one["name"] for one in documents if one["kind"] == "pipeline"] == [sound.name]
    assert (left_out["kind"], left_out["reason"]) == ("left_out", reason)


def test_what_a_later_release_stored_is_refused_with_a_sentence(pipeline: Pipeline, new_release: Any) -> None:
    PipelineVersion.objects.update(option_versions={"outputs.0": ["toy_file", "deliver", 3]})
    assert "It was stored by a later release (version 3 " in pipeline_failure(Pipeline.objects.get(pk=pipeline.pk))


def test_a_file_of_a_former_release_is_applied(workspace: Workspace, pipeline: Pipeline) -> None:
    document = {
        "kind": "pipeline",
        "name": "Of a file",
        "option_versions": {"outputs.0": ["toy_file", "deliver", 1]},
        "config": {
            "outputs": [{"name": "out", "connector": pipeline_connector(workspace), "options": {"name": "orders"}}]
        },
    }
    documents = config_files.parse(yaml.safe_dump(document))
    config_files.apply(workspace=workspace, actor=factories.admin_of(workspace), documents=documents, environment={})
    [exported] = [one for one in config_files.export(workspace) if one["name"] == "Of a file"]
    assert options(exported["config"]) == {"file": "orders"}
    assert exported["option_versions"] == {"outputs.0": ["toy_file", "deliver", 2]}


def pipeline_connector(workspace: Workspace) -> str:
    return str(workspace.connectors.get(type="toy_file").name)


def test_reading_goes_on_where_it_was(workspace: Workspace, new_release: Any) -> None:
    lines = factories.make_connector(workspace, "toy_lines", folder="/x", passwords=[])
    source = {"type": "connector", "connector": str(lines.pk), "options": {"file": "orders"}}
    pipeline = pipeline_publish(
        pipeline=factories.make_pipeline(workspace, input=source), actor=factories.admin_of(workspace)
    )
    lease = InputLease.objects.get(pipeline=pipeline)
    lease.input["options"], lease.breakpoint = {"name": "orders"}, "7"
    lease.save()
    PipelineVersion.objects.update(option_versions={"input": ["toy_lines", "read_batch", 1]})
    version = PipelineVersion.objects.get(pipeline=pipeline)
    version.config["input"]["options"] = {"name": "orders"}
    version.save()
    new_release()
    for every in (30, 60):  # nothing changed, and the interval only
        version.config["input"]["every_seconds"] = every
        lease_follow(pipeline=pipeline, config=version.load())
        assert InputLease.objects.get(pipeline=pipeline).breakpoint == "7"
    followed = InputLease.objects.get(pipeline=pipeline)
    assert (followed.options_version, followed.input["options"]) == (2, {"file": "orders"})


def test_what_was_registered_is_watched_and_removed(workspace: Workspace, tmp_path: Any, new_release: Any) -> None:
    shelf = factories.make_connector(workspace, "toy_shelf", folder=str(tmp_path))
    source = {"type": "connector", "connector": str(shelf.pk), "options": {"label": "first"}}
    pipeline = factories.make_pipeline(workspace, input=source)
    pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))
    provisionings_advance()
    registration = Registration.objects.get()
    assert registration.options_version == 1
    registration.options = {"name": "first"}
    registration.save()
    new_release()
    registrations_watch()
    assert Registration.objects.get().warning == ""
    Registration.objects.update(remove_at=registration.connector.created_at)
    registrations_remove()
    assert not Registration.objects.exists()
    assert list(tmp_path.glob("*.json")) == []
