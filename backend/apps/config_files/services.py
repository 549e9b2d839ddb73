"""Config as code: a workspace's connectors and pipelines as YAML documents, and back.

Objects are identified by name, and pipelines refer to connectors by name, so that what one installation
exports can be applied to another. Secrets are references: ``vault:PATH#KEY`` names a secret in the
workspace's part of Vault, ``env:SECRET_…`` an environment variable of whoever applies; only names that
begin with ``SECRET_`` are read, so that nobody can have the installation's own settings sent somewhere.
"""

import copy
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal
from uuid import UUID

import yaml
from django.db import transaction
from pydantic import Field, TypeAdapter, ValidationError

from backend.apps.audit.services import CHANGED
from backend.apps.config_files.loader import load_all
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import StagedSecrets, connection_load
from backend.apps.connectors.services import (
    connector_create,
    connector_delete,
    connector_type,
    connector_update,
)
from backend.apps.connectors.vault import is_reference
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import (
    config_upgrade,
    config_validate,
    pipeline_create,
    pipeline_delete,
    pipeline_pause,
    pipeline_publish,
    pipeline_resume,
    pipeline_update,
)
from backend.apps.workspaces.models import User, Workspace
from backend.domain.capabilities import Connection
from backend.domain.connector import connectors as connector_types
from backend.domain.diff import changes
from backend.domain.errors import ConfigError, ConflictError
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
from backend.domain.model import StrictModel, UnreadableConfigError
from backend.domain.pipeline import PipelineConfig
from backend.domain.registry import UnknownComponentError
from backend.domain.uses import CONNECTOR_NAMES, option_versions

_ENV = "env:"
_PREFIX = "SECRET_"


class ConnectorDocument(StrictModel):
    kind: Literal["connector"]
    name: str = Field(min_length=1, max_length=100)
    type: str
    schema_version: int | None = Field(None, description="Schema version of the connection; current if not set.")
    connection: dict[str, Any]


class PipelineDocument(StrictModel):
    """With ``published``, the configuration is published. Connectors are referred to by name."""

    kind: Literal["pipeline"]
    name: str = Field(min_length=1, max_length=100)
    published: bool = True
    paused: bool = False
    schema_version: int = Field(
        PipelineConfig.schema_version, description="Schema version of the configuration; current if not set."
    )
    option_versions: dict[str, tuple[str, str, int]] = Field(
        default_factory=dict,
        description="By the path of each use of a connector: its type, the capability, and the schema version of the "
        "options; current where not set.",
    )
    config: dict[str, Any]


class LeftOutDocument(StrictModel):
    """What is there and could not be exported. Applying it changes nothing, and does not prune that object."""

    kind: Literal["left_out"]
    object: Literal["connector", "pipeline"]
    name: str = Field(min_length=1, max_length=100)
    reason: str = Field("", description="Why, in a sentence.")


Document = ConnectorDocument | PipelineDocument | LeftOutDocument
_DOCUMENT: TypeAdapter[Document] = TypeAdapter(Annotated[Document, Field(discriminator="kind")])


@dataclass(frozen=True)
class Step:
    """One change of an apply. ``changes`` lists the differences, with secrets as CHANGED."""

    action: Literal["create", "update", "publish", "pause", "resume", "delete"]
    kind: Literal["connector", "pipeline"]
    name: str
    changes: list[dict[str, Any]] = field(default_factory=list)


class _DryRun(Exception):
    """Rolls back the transaction of a dry run."""


def export(workspace: Workspace) -> list[dict[str, Any]]:
    """Every connector and pipeline, each as it would be applied, ordered by kind and name. One that cannot be read is
    left out, which a document at the end says."""
    documents: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    connectors = list(Connector.objects.filter(workspace=workspace).order_by("name"))
    types = {connector.pk: connector.type for connector in connectors}
    for connector in connectors:
        try:
            documents.append(_connector_document(connector))
        except (UnknownComponentError, UnreadableConfigError) as error:
            left_out.append(_left_out("connector", connector.name, error))
    names = {connector.pk: connector.name for connector in connectors}
    for pipeline in Pipeline.objects.filter(workspace=workspace).select_related("published").order_by("name"):
        try:
            documents.append(_pipeline_document(pipeline, names, types))
        except UnreadableConfigError as error:
            left_out.append(_left_out("pipeline", pipeline.name, error))
    return documents + left_out


def _connector_document(connector: Connector) -> dict[str, Any]:
    """Raises UnknownComponentError and UnreadableConfigError."""
    model = connector_types.get(connector.type).connection_model
    model.upgraded(connector.connection, connector.schema_version)
    return {
        "kind": "connector",
        "name": connector.name,
        "type": connector.type,
        "schema_version": model.schema_version,
        "connection": _with_references(connector, model),
    }


def _pipeline_document(pipeline: Pipeline, connector_names: dict[UUID, str], types: dict[UUID, str]) -> dict[str, Any]:
    """Raises UnreadableConfigError."""
    # The published version; the newest draft only if none is published.
    version = pipeline.published or pipeline.versions.first()
    assert version is not None
    config = version.load()
    return {
        "kind": "pipeline",
        "name": pipeline.name,
        "published": pipeline.published is not None,
        "paused": pipeline.paused,
        "schema_version": PipelineConfig.schema_version,
        "option_versions": {path: list(known) for path, known in option_versions(config.uses(), types).items()},
        # Fields keep their declaration order, which is also that of the documentation.
        "config": config.model_dump(mode="json", context={CONNECTOR_NAMES: connector_names}),
    }


def _left_out(object: str, name: str, error: Exception) -> dict[str, Any]:
    return {"kind": "left_out", "object": object, "name": name, "reason": str(error)}


def dump(documents: Iterable[dict[str, Any]]) -> str:
    """Deterministic YAML: the same documents give the same text."""
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=100)


def parse(text: str, source: str = "") -> list[Document]:
    """The documents of a YAML text. Raises ConfigError, which names the source."""
    documents: list[Document] = []
    errors: dict[str, list[str]] = {}
    for index, document in enumerate(load_all(text, source)):
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
    """Brings the workspace to the state that the documents describe: all of it, or nothing if any is rejected.

    With ``prune``, what no document names is deleted; one that says what was left out names it. With ``dry_run``,
    everything is executed and rolled back, and nothing is written outside of the transaction. Raises ConfigError.
    """
    steps: list[Step] = []
    secrets = StagedSecrets()
    try:
        with transaction.atomic():
            for document in documents:
                if isinstance(document, ConnectorDocument):
                    with _errors_at(document.kind, document.name):
                        steps += _apply_connector(workspace, actor, document, environment, secrets)
            for document in documents:
                if isinstance(document, PipelineDocument):
                    with _errors_at(document.kind, document.name):
                        steps += _apply_pipeline(workspace, actor, document)
            if prune:
                steps += _prune(workspace, actor, documents)
            if dry_run:
                raise _DryRun
            secrets.settle()
    except _DryRun:
        pass
    return steps


@contextmanager
def _errors_at(kind: str, name: str) -> Iterator[None]:
    """Prefixes errors with the object's kind and name."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError({f"{kind} {name}: {path}": sentences for path, sentences in error.errors.items()}) from None
    except ConflictError as error:
        raise ConfigError({f"{kind} {name}": [str(error)]}) from None


def _apply_connector(
    workspace: Workspace,
    actor: User,
    document: ConnectorDocument,
    environment: Mapping[str, str],
    staged: StagedSecrets,
) -> list[Step]:
    model = connector_type(document.type).connection_model
    connection = _resolved(document, model, environment)
    connector = Connector.objects.filter(workspace=workspace, name=document.name).first()
    if connector is None:
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
    if connector.type != document.type:
        raise ConfigError({"type": [f"The connector is of type {connector.type}: give the new one another name."]})
    shown, stored = connection_load(connector)
    public, secrets = split_secrets(model, keep_secrets(model, connection, shown, stored))
    changed = sorted(path for path, value in secrets.items() if value not in (MASK, stored.get(path)))
    if public == shown and not changed:
        return []
    differences = _changes(shown, public)
    differences += [{"path": dotted_pointer(path), "before": None, "after": CHANGED} for path in changed]
    connector_update(connector=connector, actor=actor, name=connector.name, connection=connection, store=staged.store)
    return [Step("update", "connector", document.name, differences)]


def _apply_pipeline(workspace: Workspace, actor: User, document: PipelineDocument) -> list[Step]:
    ids = {name: pk for pk, name in Connector.objects.filter(workspace=workspace).values_list("pk", "name")}
    present = config_upgrade(
        config=document.config, schema_version=document.schema_version, option_versions=document.option_versions
    )
    config = config_validate(workspace=workspace, config=present, connector_ids=ids).model_dump(mode="json")
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
        raise ConfigError({"published": ["A published pipeline stays published; to stop its input, set paused."]})
    if document.paused and not pipeline.paused:
        pipeline_pause(pipeline=pipeline, actor=actor)
        steps.append(Step("pause", "pipeline", document.name))
    elif pipeline.paused and not document.paused:
        pipeline_resume(pipeline=pipeline, actor=actor)
        steps.append(Step("resume", "pipeline", document.name))
    return steps


def _prune(workspace: Workspace, actor: User, documents: list[Document]) -> list[Step]:
    named = {
        (document.object if isinstance(document, LeftOutDocument) else document.kind, document.name)
        for document in documents
    }
    steps: list[Step] = []
    for pipeline in Pipeline.objects.filter(workspace=workspace).select_related("published"):
        if ("pipeline", pipeline.name) not in named:
            with _errors_at("pipeline", pipeline.name):
                pipeline_pause(pipeline=pipeline, actor=actor)
                pipeline_delete(pipeline=pipeline, actor=actor)
            steps.append(Step("delete", "pipeline", pipeline.name))
    for connector in Connector.objects.filter(workspace=workspace):
        if ("connector", connector.name) not in named:
            with _errors_at("connector", connector.name):
                connector_delete(connector=connector, actor=actor)
            steps.append(Step("delete", "connector", connector.name))
    return steps


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    return [asdict(change) for change in changes(before, after)]


def _with_references(connector: Connector, model: type[Connection]) -> dict[str, Any]:
    shown, stored = connection_load(connector)
    connection = copy.deepcopy(shown)
    names: set[str] = set()
    for path in secret_paths(model, connection):
        name = re.sub(r"[^A-Z0-9]+", "_", "_".join((connector.name, *map(str, path))).upper()).strip("_")
        while name in names:  # names that differ only in characters not allowed in variable names
            name += "_2"
        names.add(name)
        secret = stored.get(pointer(path), "")
        replace_at(connection, path, secret if is_reference(secret) else f"{_ENV}{_PREFIX}{name}")
    return dict(connection)


def _resolved(document: ConnectorDocument, model: type[Connection], environment: Mapping[str, str]) -> dict[str, Any]:
    """The connection with its references to secrets resolved. A mask keeps the stored secret."""
    try:
        version = model.schema_version if document.schema_version is None else document.schema_version
        upgraded = model.upgraded(document.connection, version)
    except UnreadableConfigError as error:
        raise ConfigError({"connection": [str(error)]}) from None
    connection = copy.deepcopy(upgraded)
    errors: dict[str, list[str]] = {}
    for path in secret_paths(model, upgraded):
        # Not read from the copy, in which a YAML alias is one object in two places.
        value = value_at(upgraded, path)
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
