"""Changes to pipelines: every save makes a version, publishing puts one in force."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import transaction
from pydantic import ValidationError

from backend.apps.audit.services import audit_record
from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_type
from backend.apps.manager import leases
from backend.apps.pipelines import provisioning, schema_registry, selectors
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning
from backend.apps.pipelines.schema_registry import RegistryError
from backend.apps.workspaces.models import User, Workspace
from backend.apps.workspaces.selectors import ingest_keys
from backend.apps.workspaces.services import ingest_key
from backend.domain.connector import Connector as ConnectorType
from backend.domain.errors import ConfigError, ConflictError
from backend.domain.examples import check_examples
from backend.domain.pipeline import PipelineConfig
from backend.domain.transforms.http_call import HttpCall
from backend.manager_api import snapshot as stored
from backend.network.redis_client import redis_client


def pipeline_create(*, workspace: Workspace, actor: User, name: str, config: dict[str, Any]) -> Pipeline:
    """Saves version 1, unpublished. Raises ConfigError; nothing is saved then."""
    validated = config_validate(workspace=workspace, config=config)
    _check_name_is_free(workspace, name)
    with transaction.atomic():
        pipeline = Pipeline.objects.create(workspace=workspace, name=name)
        _check_schema(pipeline, validated)
        _add_version(pipeline, 1, validated, actor)
        _audit("create", pipeline, actor, after={"name": name, "config": validated.model_dump(mode="json")})
    return pipeline


def pipeline_update(*, pipeline: Pipeline, actor: User, name: str, config: dict[str, Any]) -> Pipeline:
    """Saves a new version, unless the configuration is the newest one's; what is published stays."""
    validated = config_validate(workspace=pipeline.workspace, config=config)
    _check_name_is_free(pipeline.workspace, name, but=pipeline)
    _check_schema(pipeline, validated)
    with transaction.atomic():
        locked = Pipeline.objects.select_for_update().get(pk=pipeline.pk)
        newest = locked.versions.first()
        before = {"name": locked.name, "config": newest.config if newest else {}}
        after = {"name": name, "config": validated.model_dump(mode="json")}
        locked.name = name
        locked.save(update_fields=["name", "updated_at"])
        if before["config"] != after["config"]:
            _add_version(locked, newest.number + 1 if newest else 1, validated, actor)
        if before != after:
            _audit("update", locked, actor, before=before, after=after)
    return locked


def pipeline_restore(*, pipeline: Pipeline, actor: User, number: int) -> Pipeline:
    """Saves the configuration of an earlier version as a new one."""
    version = pipeline.versions.filter(number=number).first()
    if version is None:
        raise ConfigError({"number": [f"The pipeline has no version {number}."]})
    return pipeline_update(pipeline=pipeline, actor=actor, name=pipeline.name, config=version.config)


def pipeline_roll_back(*, pipeline: Pipeline, actor: User, number: int) -> Pipeline:
    """Puts an earlier version's configuration in force as a new version. Raises ConfigError as saving and
    publishing do; nothing is saved then."""
    with transaction.atomic():
        restored = pipeline_restore(pipeline=pipeline, actor=actor, number=number)
        return pipeline_publish(pipeline=restored, actor=actor)


def pipeline_publish(*, pipeline: Pipeline, actor: User) -> Pipeline:
    """Puts the newest version in force. Raises ConfigError when it no longer fits its connectors, or when its
    transforms fail one of its examples."""
    newest = pipeline.versions.first()
    if newest is None:
        raise ConflictError("The pipeline has no version to publish.")
    validated = config_validate(workspace=pipeline.workspace, config=newest.config)
    failures = enumerate(check_examples(validated.transforms, validated.examples))
    if errors := {
        f"config.examples.{index}": [f"The example {validated.examples[index].name!r} fails. {failure}"]
        for index, failure in failures
        if failure
    }:
        raise ConfigError(errors)
    before = {"version": pipeline.published.number if pipeline.published else None}
    if provisioning.is_needed(validated):
        return _provision(pipeline, newest, actor, before)
    return _change("publish", pipeline, actor, before, {"version": newest.number}, published=newest)


def provisionings_advance() -> None:
    """Goes on with what versions need in other systems, and puts in force those that have it all."""

    def put_in_force(found: Provisioning) -> None:
        Pipeline.objects.filter(pk=found.pipeline_id).update(published=found.version)
        _follow(found.pipeline_id)

    provisioning.provisionings_advance(put_in_force)


def pipeline_pause(*, pipeline: Pipeline, actor: User) -> Pipeline:
    """The input refuses messages; what was accepted is still delivered."""
    return _change("pause", pipeline, actor, {"paused": pipeline.paused}, {"paused": True}, paused=True)


def pipeline_resume(*, pipeline: Pipeline, actor: User) -> Pipeline:
    return _change("resume", pipeline, actor, {"paused": pipeline.paused}, {"paused": False}, paused=False)


def pipeline_note_failure(*, pipeline_id: UUID, number: int, failure: str) -> None:
    """Keeps why the version in force cannot work, or that it can again."""
    Pipeline.objects.filter(pk=pipeline_id, published__number=number).exclude(failure=failure).update(failure=failure)


def pipeline_delete(*, pipeline: Pipeline, actor: User) -> None:
    """Raises ConflictError while the pipeline accepts messages."""
    if pipeline.published is not None and not pipeline.paused:
        raise ConflictError("The pipeline accepts messages. Pause it first, and let what it holds be delivered.")
    pipeline_id = pipeline.id
    newest = pipeline.versions.first()
    with transaction.atomic():
        _audit("delete", pipeline, actor, before={"name": pipeline.name, "config": newest.config if newest else {}})
        Pipeline.objects.filter(pk=pipeline_id).update(published=None)
        if pipeline.provisionings.exists():
            provisioning.removal_start(pipeline_id)
        Pipeline.objects.get(pk=pipeline_id).delete()
        transaction.on_commit(lambda: pipeline_announce(pipeline_id=pipeline_id))


def config_validate(*, workspace: Workspace, config: dict[str, Any]) -> PipelineConfig:
    """The configuration, checked against the workspace's connectors too. Raises ConfigError."""
    try:
        validated = PipelineConfig.model_validate(config)
    except ValidationError as error:
        raise ConfigError.of(error, config, "config") from None
    errors: dict[str, list[str]] = {}
    found = Connector.objects.filter(workspace=workspace).in_bulk(validated.connectors)
    if validated.verification is not None:
        verifier = found.get(validated.verification)
        errors |= _errors_at("input.verification", verifier, "verify requests", lambda type: type.verifier is not None)
    for index, step in validated.calls.items():
        api = found.get(step.connector)
        errors |= _errors_at(f"transforms.{index}.connector", api, "be called", _can_be_called)
    for index, output in enumerate(validated.outputs):
        target = found.get(output.connector)
        where = f"outputs.{index}.connector"
        wrong = _errors_at(where, target, "deliver messages", lambda type: type.destination is not None)
        errors |= wrong or _option_errors(target, output.options, index)
    if errors:
        raise ConfigError(errors)
    return validated


def pipeline_announce(*, pipeline_id: UUID) -> None:
    """Writes the pipeline's present state into the data plane's snapshot and says that it changed."""
    current = selectors.snapshot_by_number(pipeline_id, 0)
    stored.announce("pipeline", str(pipeline_id), stored.dump_pipeline(current) if current else None)


def snapshot_rewrite() -> None:
    """Makes the whole snapshot in Redis anew from the database. What was announced meanwhile stays."""

    def rewrite(batch: Any) -> None:
        pipelines = selectors.published_snapshots()
        usable = [found for found in map(ingest_key, ingest_keys()) if found is not None]
        batch.multi()
        batch.delete(stored.PIPELINES, stored.INGEST_KEYS)
        for snapshot in pipelines:
            batch.hset(stored.PIPELINES, str(snapshot.id), stored.dump_pipeline(snapshot))
        for key in usable:
            batch.hset(stored.INGEST_KEYS, key.hash, key.to_json())

    # Read after it watches: an announcement that comes in between has it read again.
    redis_client().transaction(rewrite, stored.PIPELINES, stored.INGEST_KEYS)


def _provision(pipeline: Pipeline, version: PipelineVersion, actor: User, before: dict[str, Any]) -> Pipeline:
    with transaction.atomic():
        Pipeline.objects.select_for_update().get(pk=pipeline.pk)
        if pipeline.provisionings.filter(state=Provisioning.State.PROVISIONING).exists():
            raise ConflictError("A version of this pipeline is being provisioned; wait until that has ended.")
        _audit("publish", pipeline, actor, before=before, after={"version": version.number})
        provisioning.provisioning_start(pipeline=pipeline, version=version)
    return pipeline


def _check_schema(pipeline: Pipeline, config: PipelineConfig) -> None:
    """Raises ConfigError when the registry would refuse the schema, or cannot be asked."""
    if config.stream_processing is None:
        return
    try:
        schema_registry.check_compatible(str(pipeline.pk), config.stream_processing.avro_schema)
    except RegistryError as error:
        raise ConfigError({"config.stream_processing.avro_schema": [str(error)]}) from None


def _change(
    action: str, pipeline: Pipeline, actor: User, before: dict[str, Any], after: dict[str, Any], **fields: Any
) -> Pipeline:
    with transaction.atomic():
        _audit(action, pipeline, actor, before=before, after=after)
        Pipeline.objects.filter(pk=pipeline.pk).update(**fields)
        _follow(pipeline.pk)
    for name, value in fields.items():
        setattr(pipeline, name, value)
    return pipeline


def _follow(pipeline_id: UUID) -> None:
    """Tells the data plane what is in force now, and offers it the input, where that has to be read."""
    leases.lease_follow(Pipeline.objects.select_related("published").get(pk=pipeline_id))
    transaction.on_commit(lambda: pipeline_announce(pipeline_id=pipeline_id))


def _audit(action: str, pipeline: Pipeline, actor: User, **told: Any) -> None:
    audit_record(action=f"pipeline.{action}", actor=actor, workspace=pipeline.workspace, target=pipeline, **told)


def _add_version(pipeline: Pipeline, number: int, config: PipelineConfig, actor: User) -> None:
    PipelineVersion.objects.create(
        pipeline=pipeline, number=number, config=config.model_dump(mode="json"), author=actor
    )


def _errors_at(
    where: str, connector: Connector | None, purpose: str, fits: Callable[[type[ConnectorType]], bool]
) -> dict[str, list[str]]:
    if connector is None:
        return {f"config.{where}": ["This workspace has no such connector."]}
    if not fits(connector_type(connector.type)):
        return {f"config.{where}": [f"{connector.name} cannot {purpose}."]}
    return {}


def _can_be_called(type: type[ConnectorType]) -> bool:
    return type.type == HttpCall.connector_type


def _option_errors(connector: Connector | None, options: dict[str, Any], index: int) -> dict[str, list[str]]:
    destination = connector_type(connector.type).destination if connector else None
    assert destination is not None
    try:
        destination.options_model.model_validate(options)
    except ValidationError as error:
        return ConfigError.of(error, options, "config", "outputs", index, "options").errors
    return {}


def _check_name_is_free(workspace: Workspace, name: str, but: Pipeline | None = None) -> None:
    others = Pipeline.objects.filter(workspace=workspace, name=name)
    if but is not None:
        others = others.exclude(pk=but.pk)
    if others.exists():
        raise ConfigError({"name": ["Another pipeline of this workspace has this name."]})
