"""Config as code: a workspace's connectors and pipelines as YAML documents, and back.

Objects are known by their names and pipelines name their connectors, so that what one installation
exports can be applied to another. Secrets are references: ``vault:PATH#KEY`` names a secret in the
workspace's part of Vault, ``env:SECRET_…`` an environment variable of whoever applies; only names that
begin with ``SECRET_`` are read, so that nobody can have the installation's own settings sent somewhere.
"""

import copy
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import yaml
from django.db import transaction
from pydantic import Field, TypeAdapter, ValidationError

from backend.apps.audit.services import CHANGED
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import StagedSecrets, secrets_kept
from backend.apps.connectors.services import (
    connector_create,
    connector_delete,
    connector_type,
    connector_update,
)
from backend.apps.connectors.vault import is_reference
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import pipelines_using
from backend.apps.pipelines.services import (
    config_validate,
    pipeline_create,
    pipeline_delete,
    pipeline_pause,
    pipeline_publish,
    pipeline_resume,
    pipeline_update,
)
from backend.apps.workspaces.models import User, Workspace
from backend.domain.diff import changes
from backend.domain.errors import ConfigError
from backend.domain.masking import (
    MASK,
    dotted,
    dotted_pointer,
    keep_secrets,
    pointer,
    replace_at,
    secret_paths,
    split_secrets,
    value_at,
)
from backend.domain.model import StrictModel
from backend.domain.pipeline import PipelineConfig

_ENV = "env:"
_PREFIX = "SECRET_"


class ConnectorDocument(StrictModel):
    kind: Literal["connector"]
    name: str = Field(min_length=1, max_length=100)
    type: str
    connection: dict[str, Any]


class PipelineDocument(StrictModel):
    """``published`` puts the configuration in force; connectors are named."""

    kind: Literal["pipeline"]
    name: str = Field(min_length=1, max_length=100)
    published: bool = True
    paused: bool = False
    config: dict[str, Any]


Document = ConnectorDocument | PipelineDocument
_DOCUMENT: TypeAdapter[Document] = TypeAdapter(Annotated[Document, Field(discriminator="kind")])


@dataclass(frozen=True)
class Step:
    """One thing that an apply does. ``changes`` is what it changes, secrets as CHANGED."""

    action: Literal["create", "update", "publish", "pause", "resume", "delete"]
    kind: Literal["connector", "pipeline"]
    name: str
    changes: list[dict[str, Any]] = field(default_factory=list)


class _DryRun(Exception):
    """Undoes what was tried."""


def export(workspace: Workspace) -> list[dict[str, Any]]:
    """Every connector and pipeline, each as it would be applied, ordered by kind and name."""
    connectors = list(Connector.objects.filter(workspace=workspace).order_by("name"))
    names = {str(connector.pk): connector.name for connector in connectors}
    documents: list[dict[str, Any]] = [
        {
            "kind": "connector",
            "name": connector.name,
            "type": connector.type,
            "connection": _with_references(connector),
        }
        for connector in connectors
    ]
    for pipeline in Pipeline.objects.filter(workspace=workspace).select_related("published").order_by("name"):
        # What is in force; a draft only where nothing is.
        version = pipeline.published or pipeline.versions.first()
        assert version is not None
        documents.append(
            {
                "kind": "pipeline",
                "name": pipeline.name,
                "published": pipeline.published is not None,
                "paused": pipeline.paused,
                # In the order in which the fields are declared, which is that of the documentation.
                "config": _renamed(PipelineConfig.model_validate(version.config).model_dump(mode="json"), names),
            }
        )
    return documents


def dump(documents: Iterable[dict[str, Any]]) -> str:
    """YAML that is the same for the same documents."""
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=100)


def parse(text: str, source: str = "") -> list[Document]:
    """The documents of a YAML text. Raises ConfigError, which names the source."""
    try:
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ConfigError({source or "yaml": [f"This is not YAML: {' '.join(str(error).split())}."]}) from None
    documents: list[Document] = []
    errors: dict[str, list[str]] = {}
    for index, document in enumerate(found):
        try:
            documents.append(_DOCUMENT.validate_python(document))
        except ValidationError as error:
            errors |= ConfigError.of(error, document, source or str(index)).errors
    if errors:
        raise ConfigError(errors)
    return documents


def apply(
    *,
    workspace: Workspace,
    actor: User,
    documents: list[Document],
    prune: bool = False,
    dry_run: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> list[Step]:
    """Makes the workspace as the documents say: all of it or, when anything is refused, nothing.

    With ``prune``, what no document names is deleted. With ``dry_run`` everything is tried and undone; nothing
    is written outside of the transaction then. Raises ConfigError.
    """
    steps: list[Step] = []
    secrets = StagedSecrets()
    try:
        with transaction.atomic():
            for document in documents:
                if isinstance(document, ConnectorDocument):
                    steps += _at(document, _apply_connector, workspace, actor, document, environment, secrets)
            for document in documents:
                if isinstance(document, PipelineDocument):
                    steps += _at(document, _apply_pipeline, workspace, actor, document)
            if prune:
                steps += _prune(workspace, actor, documents)
            if dry_run:
                raise _DryRun
            secrets.settle()
    except _DryRun:
        pass
    return steps


def _at(document: Document, action: Any, *arguments: Any) -> list[Step]:
    """Errors are told with the document's kind and name in front."""
    try:
        steps: list[Step] = action(*arguments)
    except ConfigError as error:
        raise ConfigError({f"{document.kind} {document.name}: {path}": e for path, e in error.errors.items()}) from None
    return steps


def _apply_connector(
    workspace: Workspace,
    actor: User,
    document: ConnectorDocument,
    environment: Mapping[str, str],
    staged: StagedSecrets,
) -> list[Step]:
    connection = _resolved(document, environment)
    found = Connector.objects.filter(workspace=workspace, name=document.name).first()
    model = connector_type(document.type).connection_model
    if found is None:
        public, _ = split_secrets(model, connection)
        connector_create(
            workspace=workspace,
            actor=actor,
            name=document.name,
            type=document.type,
            connection=connection,
            store=staged.store,
        )
        return [Step("create", "connector", document.name, _changes({}, public))]
    if found.type != document.type:
        raise ConfigError({"type": [f"The connector is of type {found.type}: give the new one another name."]})
    stored = secrets_kept(found)
    public, secrets = split_secrets(model, keep_secrets(model, connection, found.connection, stored))
    changed = sorted(path for path, value in secrets.items() if value not in (MASK, stored.get(path)))
    if public == found.connection and not changed:
        return []
    told = _changes(found.connection, public)
    told += [{"path": dotted_pointer(path), "before": None, "after": CHANGED} for path in changed]
    connector_update(connector=found, actor=actor, name=found.name, connection=connection, store=staged.store)
    return [Step("update", "connector", document.name, told)]


def _apply_pipeline(workspace: Workspace, actor: User, document: PipelineDocument) -> list[Step]:
    ids = {name: str(pk) for pk, name in Connector.objects.filter(workspace=workspace).values_list("pk", "name")}
    config = config_validate(workspace=workspace, config=_renamed(document.config, ids)).model_dump(mode="json")
    pipeline = Pipeline.objects.filter(workspace=workspace, name=document.name).select_related("published").first()
    steps: list[Step] = []
    if pipeline is None:
        pipeline = pipeline_create(workspace=workspace, actor=actor, name=document.name, config=config)
        steps.append(Step("create", "pipeline", document.name, _changes({}, document.config)))
    else:
        newest = pipeline.versions.first()
        before = newest.config if newest else {}
        if before != config:
            pipeline_update(pipeline=pipeline, actor=actor, name=pipeline.name, config=config)
            steps.append(Step("update", "pipeline", document.name, _changes(before, config)))
    if document.published and pipeline.published != pipeline.versions.first():
        pipeline_publish(pipeline=pipeline, actor=actor)
        steps.append(Step("publish", "pipeline", document.name))
    if not document.published and pipeline.published is not None:
        raise ConfigError({"published": ["What was published stays in force; to stop its input, set paused."]})
    if document.paused and not pipeline.paused:
        pipeline_pause(pipeline=pipeline, actor=actor)
        steps.append(Step("pause", "pipeline", document.name))
    elif pipeline.paused and not document.paused:
        pipeline_resume(pipeline=pipeline, actor=actor)
        steps.append(Step("resume", "pipeline", document.name))
    return steps


def _prune(workspace: Workspace, actor: User, documents: list[Document]) -> list[Step]:
    kept = {(document.kind, document.name) for document in documents}
    steps: list[Step] = []
    for pipeline in Pipeline.objects.filter(workspace=workspace).select_related("published"):
        if ("pipeline", pipeline.name) not in kept:
            pipeline_pause(pipeline=pipeline, actor=actor)
            pipeline_delete(pipeline=pipeline, actor=actor)
            steps.append(Step("delete", "pipeline", pipeline.name))
    for connector in Connector.objects.filter(workspace=workspace):
        if ("connector", connector.name) not in kept:
            used_by = [pipeline.name for pipeline in pipelines_using(connector)]
            connector_delete(connector=connector, actor=actor, used_by=used_by)
            steps.append(Step("delete", "connector", connector.name))
    return steps


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    return [asdict(change) for change in changes(before, after)]


def _renamed(config: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The configuration with each connector under its other name. Raises ConfigError for an unknown one."""
    renamed = copy.deepcopy(config)
    errors: dict[str, list[str]] = {}
    for where, holder, key in _connectors_named(renamed):
        name = str(holder[key])
        if name in names:
            holder[key] = names[name]
        elif name not in names.values():  # an alias of YAML's is one object in two places
            errors[f"config.{where}"] = [f"There is no connector {name!r}, neither here nor in what is applied."]
    if errors:
        raise ConfigError(errors)
    return renamed


def _connectors_named(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Where a configuration, which may be any JSON, names connectors: the path, the object and its key."""
    for part in ("transforms", "outputs"):
        items = config.get(part)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and "connector" in item:
                yield f"{part}.{index}.connector", item, "connector"
    source = config.get("input")
    if isinstance(source, dict) and source.get("verification") is not None:
        yield "input.verification", source, "verification"


def _with_references(connector: Connector) -> dict[str, Any]:
    connection = copy.deepcopy(connector.connection)
    stored = secrets_kept(connector)
    names: set[str] = set()
    for path in secret_paths(connector_type(connector.type).connection_model, connection):
        name = re.sub(r"[^A-Z0-9]+", "_", "_".join((connector.name, *map(str, path))).upper()).strip("_")
        while name in names:  # two fields whose names differ only in what a variable's name cannot hold
            name += "_2"
        names.add(name)
        secret = stored.get(pointer(path), "")
        replace_at(connection, path, secret if is_reference(secret) else f"{_ENV}{_PREFIX}{name}")
    return dict(connection)


def _resolved(document: ConnectorDocument, environment: Mapping[str, str]) -> dict[str, Any]:
    """The connection with the values that its secrets refer to. A mask keeps what is stored."""
    connection = copy.deepcopy(document.connection)
    errors: dict[str, list[str]] = {}
    for path in secret_paths(connector_type(document.type).connection_model, document.connection):
        # Read from the document: an alias of YAML's is one object in two places of the copy.
        value = value_at(document.connection, path)
        if value == MASK or is_reference(str(value)):
            continue
        name = str(value).removeprefix(_ENV)
        where = f"connection.{dotted(path)}"
        if not str(value).startswith(_ENV + _PREFIX):
            errors[where] = [
                f"Secrets are given by reference: {_ENV}{_PREFIX}NAME, an environment variable, or vault:PATH#KEY."
            ]
        elif name not in environment:
            errors[where] = [f"The environment variable {name} is not set."]
        else:
            replace_at(connection, path, environment[name])
    if errors:
        raise ConfigError(errors)
    return dict(connection)
