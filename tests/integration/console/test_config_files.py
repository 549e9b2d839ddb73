import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError
from rest_framework.test import APIClient

from backend.apps.config_files import services as config_files
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.monitoring.models import AlertRule
from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.apps.pipelines.services import pipeline_pause, pipeline_publish
from backend.apps.workspaces.models import Workspace
from backend.domain.errors import ConfigError
from backend.domain.pipeline import PipelineConfig
from tests import factories

pytestmark = pytest.mark.django_db

ENVIRONMENT = {"SECRET_ERP_AUTHENTICATION_TOKEN": "t0p-secret"}


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    """A connector with a secret, a published and a paused pipeline, and a draft."""
    erp = factories.make_connector(workspace, authentication={"type": "bearer", "token": "t0p-secret"})
    Connector.objects.filter(pk=erp.pk).update(name="ERP")
    actor = factories.admin_of(workspace)
    steps = [{"type": "set", "path": "a", "value": 1}]
    names = {"Orders": {"transforms": steps}, "Paused": {}, "Draft": {}}
    for name, config in names.items():
        pipeline = factories.make_pipeline(workspace, erp, **config)
        Pipeline.objects.filter(pk=pipeline.pk).update(name=name)
        if name != "Draft":
            pipeline_publish(pipeline=pipeline, actor=actor)
        if name == "Paused":
            pipeline_pause(pipeline=pipeline, actor=actor)
    return workspace


def applied(workspace: Workspace, text: str, **options: Any) -> list[tuple[str, str, str]]:
    options.setdefault("environment", ENVIRONMENT)
    actor = factories.admin_of(workspace)
    steps = config_files.apply(workspace=workspace, actor=actor, documents=config_files.parse(text), **options)
    return [(step.action, step.kind, step.name) for step in steps]


def test_what_one_workspace_exports_makes_another_behave_the_same(filled: Workspace) -> None:
    text = config_files.dump(config_files.export(filled))
    assert "t0p-secret" not in text
    assert "env:SECRET_ERP_AUTHENTICATION_TOKEN" in text
    empty = factories.make_workspace()
    assert applied(empty, text) == [
        ("create", "connector", "ERP"),
        ("create", "pipeline", "Draft"),
        ("create", "pipeline", "Orders"),
        ("publish", "pipeline", "Orders"),
        ("create", "pipeline", "Paused"),
        ("publish", "pipeline", "Paused"),
        ("pause", "pipeline", "Paused"),
    ]
    assert config_files.dump(config_files.export(empty)) == text
    copy = Connector.objects.get(workspace=empty)
    assert connection_with_secrets(copy)["authentication"]["token"] == "t0p-secret"
    assert applied(empty, text) == []
    assert applied(filled, text) == []


def test_a_plan_changes_nothing(filled: Workspace) -> None:
    text = config_files.dump(config_files.export(filled))
    empty = factories.make_workspace()
    assert len(applied(empty, text, dry_run=True)) == 7
    assert not Connector.objects.filter(workspace=empty).exists()


def test_changes_are_told_and_secrets_are_not(filled: Workspace) -> None:
    documents = config_files.export(filled)
    documents[0]["connection"]["verify_tls"] = False
    documents[2]["config"]["transforms"][0]["value"] = 2
    text = config_files.dump(documents)
    steps = config_files.apply(
        workspace=filled,
        actor=factories.admin_of(filled),
        documents=config_files.parse(text),
        environment={"SECRET_ERP_AUTHENTICATION_TOKEN": "an0ther"},
    )
    assert [(step.action, step.name) for step in steps] == [
        ("update", "ERP"),
        ("update", "Orders"),
        ("publish", "Orders"),
    ]
    assert {"path": "authentication.token", "before": None, "after": "CHANGED"} in steps[0].changes
    assert steps[1].changes == [{"path": "transforms.0.value", "before": 1, "after": 2}]
    assert "an0ther" not in repr(steps)


def test_prune_deletes_what_no_document_names(filled: Workspace) -> None:
    documents = [document for document in config_files.export(filled) if document["name"] in ("ERP", "Draft")]
    assert applied(filled, config_files.dump(documents), prune=True) == [
        ("delete", "pipeline", "Orders"),
        ("delete", "pipeline", "Paused"),
    ]
    assert list(Pipeline.objects.filter(workspace=filled).values_list("name", flat=True)) == ["Draft"]


def test_prune_refuses_a_connector_that_an_alert_rule_uses(filled: Workspace, client: APIClient) -> None:
    erp = Connector.objects.get(workspace=filled)
    AlertRule.objects.create(workspace=filled, kind=AlertRule.Kind.JOB_DOWN, name="To the ERP", connector=erp)
    body = {"yaml": "---", "prune": True, "dry_run": False}
    answer = client.post("/api/v1/config-files/", body, format="json")
    assert answer.status_code == 400
    assert answer.json()["errors"] == {
        "connector ERP": ["The connector is used by: To the ERP. Take it out of these first."]
    }
    assert Pipeline.objects.filter(workspace=filled).count() == 3
    assert not Pipeline.objects.get(name="Orders").paused


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"connection": {"url": "x"}}, "connector ERP: connection.url", "URL"),
        ({"type": "nope"}, "connector ERP: type", "nope"),
        ({"extra": 1}, "extra", "Unknown field"),
    ],
)
def test_what_is_refused_is_told_at_its_place_and_changes_nothing(
    filled: Workspace, change: dict[str, Any], path: str, message: str
) -> None:
    documents = config_files.export(filled)
    documents[2]["config"]["transforms"] = []
    documents[0] |= change
    versions = PipelineVersion.objects.count()
    with pytest.raises(ConfigError) as refused:
        applied(filled, config_files.dump(documents))
    [place] = [key for key in refused.value.errors if path in key]
    assert message in refused.value.errors[place][0]
    assert PipelineVersion.objects.count() == versions


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("plain-text", "by reference"),
        ("env:HEADRACE_DJANGO_SECRET_KEY", "by reference"),
        ("env:SECRET_NOT_SET", "not set"),
    ],
)
def test_secrets_come_from_variables_that_are_meant_for_it(filled: Workspace, value: str, message: str) -> None:
    documents = config_files.export(filled)
    documents[0]["connection"]["authentication"]["token"] = value
    with pytest.raises(ConfigError) as refused:
        applied(filled, config_files.dump(documents), environment=ENVIRONMENT | {"HEADRACE_DJANGO_SECRET_KEY": "x"})
    assert message in refused.value.errors["connector ERP: connection.authentication.token"][0]


def test_what_yaml_aliases_is_named_in_each_place(filled: Workspace) -> None:
    text = """
        kind: pipeline
        name: Asked twice
        config:
          transforms:
          - &ask {type: call, name: ask, connector: ERP, to: answer}
          - *ask
          outputs: [{name: out, connector: ERP}]
    """
    with pytest.raises(ConfigError, match="ask"):  # the name is taken; the connector was found in both
        applied(filled, text)


def test_an_unknown_connector_is_told(filled: Workspace) -> None:
    documents = config_files.export(filled)
    documents[1]["config"]["outputs"][0]["connector"] = "Nobody"
    with pytest.raises(ConfigError) as refused:
        applied(filled, config_files.dump(documents))
    message = "There is no connector 'Nobody', neither here nor in what is applied."
    assert refused.value.errors == {"pipeline Draft: config.outputs.0.connector": [message]}


LATER_RELEASE = "It was stored by a later release (version 99 of its schema; this one reads up to {}). Upgrade Headrace"


def make_unreadable(workspace: Workspace) -> None:
    """As when a later release saved them, and a plugin is gone."""
    PipelineVersion.objects.filter(pipeline__workspace=workspace, pipeline__name="Orders").update(schema_version=99)
    for name, changes in {"Later": {"schema_version": 99}, "Gone": {"type": "gone"}}.items():
        connector = factories.make_connector(workspace)
        Connector.objects.filter(pk=connector.pk).update(name=name, **changes)


def test_what_cannot_be_read_is_left_out_and_named(filled: Workspace, client: APIClient) -> None:
    make_unreadable(filled)
    documents = list(yaml.safe_load_all(client.get("/api/v1/config-files/").content))
    *exported, gone, later, orders = documents
    assert [(document["kind"], document["name"]) for document in exported] == [
        ("connector", "ERP"),
        ("pipeline", "Draft"),
        ("pipeline", "Paused"),
    ]
    left_out = [(document["kind"], document["object"], document["name"]) for document in (gone, later, orders)]
    assert left_out == [
        ("left_out", "connector", "Gone"),
        ("left_out", "connector", "Later"),
        ("left_out", "pipeline", "Orders"),
    ]
    assert gone["reason"].startswith("Unknown type 'gone'; choose one of: ")
    assert later["reason"].startswith(LATER_RELEASE.format(1))
    assert orders["reason"].startswith(LATER_RELEASE.format(PipelineConfig.schema_version))


def test_what_was_left_out_is_neither_changed_nor_pruned(filled: Workspace) -> None:
    make_unreadable(filled)
    documents = config_files.export(filled)
    assert applied(filled, config_files.dump(documents), prune=True) == []
    without_notes = [document for document in documents if document["kind"] != "left_out"]
    assert sorted(applied(filled, config_files.dump(without_notes), prune=True)) == [
        ("delete", "connector", "Gone"),
        ("delete", "connector", "Later"),
        ("delete", "pipeline", "Orders"),
    ]


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.yaml")}


def test_the_command_says_what_it_left_out(filled: Workspace, tmp_path: Path) -> None:
    make_unreadable(filled)
    complaints = io.StringIO()
    call_command("pipelines_export", tmp_path, workspace=filled.slug, stdout=io.StringIO(), stderr=complaints)
    assert (
        f"pipeline Orders was left out. {LATER_RELEASE.format(PipelineConfig.schema_version)}" in complaints.getvalue()
    )
    assert len(complaints.getvalue().splitlines()) == 3
    assert files_in(tmp_path) == {
        "connectors/erp.yaml",
        "pipelines/draft.yaml",
        "pipelines/paused.yaml",
        "left_out/gone.yaml",
        "left_out/later.yaml",
        "left_out/orders.yaml",
    }


def test_by_rest_a_plan_comes_first(filled: Workspace, client: APIClient) -> None:
    text = client.get("/api/v1/config-files/").content.decode()
    documents = list(yaml.safe_load_all(text))
    documents[0]["connection"]["authentication"]["token"] = "********"
    documents[3]["paused"] = False
    body: dict[str, Any] = {"yaml": config_files.dump(documents)}
    plan = client.post("/api/v1/config-files/", body, format="json")
    assert plan.json() == [{"action": "resume", "kind": "pipeline", "name": "Paused", "changes": []}]
    assert Pipeline.objects.get(name="Paused").paused
    assert client.post("/api/v1/config-files/", body | {"dry_run": False}, format="json").json() == plan.json()
    assert not Pipeline.objects.get(name="Paused").paused
    assert client.post("/api/v1/config-files/", {"yaml": "a: [", "dry_run": False}, format="json").status_code == 400


def test_the_commands_write_and_read_a_folder(
    filled: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_command("pipelines_export", tmp_path, workspace=filled.slug, stdout=io.StringIO())
    assert files_in(tmp_path) == {
        "connectors/erp.yaml",
        "pipelines/draft.yaml",
        "pipelines/orders.yaml",
        "pipelines/paused.yaml",
    }
    empty = factories.make_workspace()
    with pytest.raises(CommandError, match="SECRET_ERP_AUTHENTICATION_TOKEN is not set"):
        call_command("pipelines_apply", tmp_path, workspace=empty.slug)
    monkeypatch.setenv("SECRET_ERP_AUTHENTICATION_TOKEN", "t0p-secret")
    printed = io.StringIO()
    call_command("pipelines_apply", tmp_path, workspace=empty.slug, dry_run=True, stdout=printed)
    assert "7 steps would be done." in printed.getvalue()
    call_command("pipelines_apply", tmp_path, workspace=empty.slug, stdout=printed)
    call_command("pipelines_apply", tmp_path, workspace=empty.slug, prune=True, stdout=printed)
    assert printed.getvalue().endswith("Nothing differs.\n")
