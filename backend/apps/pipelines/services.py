"""Changes to pipelines: every save creates a version, and publishing makes one active."""

import logging
from functools import partial
from typing import Any
from uuid import UUID

from django.db import Error as DatabaseError
from django.db import transaction
from django.utils import timezone
from pydantic import ValidationError
from redis.exceptions import RedisError

from backend.apps.audit.services import audit_record
from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_type
from backend.apps.pipelines import selectors
from backend.apps.pipelines.models import Pipeline, PipelineVersion, Provisioning
from backend.apps.pipelines.provisioning import registrations, saga, schema_registry
from backend.apps.pipelines.provisioning.schema_registry import RegistryError
from backend.apps.pipelines.signals import pipeline_changed, pipeline_checked
from backend.apps.workspaces.models import User, Workspace
from backend.apps.workspaces.selectors import ingest_keys
from backend.apps.workspaces.services import ingest_key
from backend.domain import json
from backend.domain.demand import stages_of
from backend.domain.errors import ConfigError, ConflictError
from backend.domain.examples import check_examples
from backend.domain.masking import dotted
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig
from backend.domain.uses import CONNECTOR_IDS, OptionVersions, PlacedUse, option_versions
from backend.manager_api import snapshot as stored
from backend.network.redis_client import redis_client

log = logging.getLogger(__name__)

_REWRITTEN = 500
"""How many pipelines are written to the snapshot in one transaction."""


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
    """Saves a new version, unless the configuration is unchanged and can be read. The published version stays."""
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
        if newest is None or before["config"] != after["config"] or selectors.unreadable(newest.load):
            _add_version(locked, newest.number + 1 if newest else 1, validated, actor)
        if before != after:
            _audit("update", locked, actor, before=before, after=after)
    return locked


def pipeline_restore(*, pipeline: Pipeline, actor: User, number: int) -> Pipeline:
    """Saves the configuration of an earlier version as a new one. Raises ConfigError."""
    version = pipeline.versions.filter(number=number).first()
    if version is None:
        raise ConfigError({"number": [f"The pipeline has no version {number}."]})
    return pipeline_update(pipeline=pipeline, actor=actor, name=pipeline.name, config=_config_of(version))


def pipeline_roll_back(*, pipeline: Pipeline, actor: User, number: int) -> Pipeline:
    """Publishes an earlier version's configuration as a new version. Raises ConfigError as saving and
    publishing do; nothing is saved then."""
    with transaction.atomic():
        restored = pipeline_restore(pipeline=pipeline, actor=actor, number=number)
        return pipeline_publish(pipeline=restored, actor=actor)


def pipeline_publish(*, pipeline: Pipeline, actor: User, note: str = "") -> Pipeline:
    """Publishes the newest version, with a note on what it changes and why.

    Raises ConfigError when it no longer fits its connectors, when its transforms fail one of its examples, or when its
    messages would never reach its outputs.
    """
    newest = pipeline.versions.first()
    if newest is None:
        raise ConflictError("The pipeline has no version to publish.")
    validated = config_validate(workspace=pipeline.workspace, config=_config_of(newest))
    _check_reaches_outputs(validated)
    pipeline_checked.send(Pipeline, pipeline=pipeline, config=validated)
    failures = enumerate(check_examples(validated.transforms, validated.examples))
    if errors := {
        f"config.examples.{index}": [f"The example {validated.examples[index].name!r} fails. {failure}"]
        for index, failure in failures
        if failure
    }:
        raise ConfigError(errors)
    before = {"version": pipeline.published.number if pipeline.published else None}
    after = {"version": newest.number} | ({"note": note} if note else {})
    with transaction.atomic():
        if note:
            pipeline.versions.filter(pk=newest.pk).update(note=note)
        if saga.is_needed(validated):
            return _provision(pipeline, version=newest, config=validated, actor=actor, before=before, after=after)
        registrations.registrations_release(pipeline_id=pipeline.pk, config=validated)
        return _change("publish", pipeline, actor, before, after, published=newest, published_at=timezone.now())


def provisionings_advance() -> None:
    """Continues provisioning, and publishes the versions for which it is complete."""

    def publish(provisioning: Provisioning, config: PipelineConfig) -> None:
        Pipeline.objects.filter(pk=provisioning.pipeline_id).update(
            published=provisioning.version, published_at=timezone.now()
        )
        registrations.registrations_release(pipeline_id=provisioning.pipeline_id, config=config)
        _notify(provisioning.pipeline_id)

    saga.provisionings_advance(publish)


def pipeline_pause(*, pipeline: Pipeline, actor: User) -> Pipeline:
    """The input rejects messages; those already accepted are still delivered."""
    return _change("pause", pipeline, actor, {"paused": pipeline.paused}, {"paused": True}, paused=True)


def pipeline_resume(*, pipeline: Pipeline, actor: User) -> Pipeline:
    return _change("resume", pipeline, actor, {"paused": pipeline.paused}, {"paused": False}, paused=False)


def pipeline_record_failure(*, pipeline_id: UUID, number: int, failure: str) -> None:
    """Records why the published version cannot run, or that it can again."""
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
        if pipeline.provisionings.filter(steps__kind="topic").exists():
            saga.removal_start(pipeline_id)
        registrations.registrations_release(pipeline_id=pipeline_id, config=None)
        Pipeline.objects.get(pk=pipeline_id).delete()
        transaction.on_commit(lambda: pipeline_announce(pipeline_id=pipeline_id))


def config_validate(
    *, workspace: Workspace, config: dict[str, Any], connector_ids: dict[str, UUID] | None = None
) -> PipelineConfig:
    """The configuration, checked against the workspace's connectors too. Raises ConfigError.

    With ``connector_ids``, the configuration refers to connectors by name.
    """
    context = None if connector_ids is None else {CONNECTOR_IDS: connector_ids}
    try:
        validated = PipelineConfig.model_validate(config, context=context)
    except ValidationError as error:
        raise ConfigError.of(error, config, "config") from None
    size = len(validated.model_dump_json(exclude={"examples"}))
    if size > stored.LARGEST_PIPELINE:
        text = f"The configuration takes {size:,} bytes; at most {stored.LARGEST_PIPELINE:,} are possible."
        raise ConfigError({"config": [text]})
    connectors = Connector.objects.filter(workspace=workspace).in_bulk(validated.connectors)
    errors: dict[str, list[str]] = {}
    for placed in validated.uses():
        errors |= _use_errors(placed, connectors.get(placed.use.connector))
    if errors:
        raise ConfigError(errors)
    return validated


def pipeline_announce(*, pipeline_id: UUID) -> None:
    """Writes the pipeline's current state to the data plane's snapshot, and announces the change."""
    try:
        current = selectors.snapshot_by_number(pipeline_id, 0)
    except UnreadableConfigError as error:
        current = None
        pipeline_mark_unreadable(pipeline_id=pipeline_id, failure=str(error))
    stored.announce("pipeline", str(pipeline_id), stored.dump_pipeline(current) if current else None)


def pipeline_mark_unreadable(*, pipeline_id: UUID, failure: str) -> None:
    """Records why the published version is not in the data plane."""
    log.error("Pipeline %s is left out: %s", pipeline_id, failure)
    Pipeline.objects.filter(pk=pipeline_id).exclude(failure=failure).update(failure=failure)


def snapshot_rewrite(*, everything: bool = False) -> None:
    """Writes what differs between the snapshot in Redis and the database, without losing concurrent announcements.
    A pipeline whose stored configuration cannot be read is left out and marked, so that it does not affect the
    others.

    ``everything`` also writes what was written before, perhaps by another release.
    """
    client = redis_client()
    published = {pk: json.dumps(revision) for pk, revision in selectors.published_revisions().items()}
    written: dict[str, bytes] = {
        pk.decode(): revision for pk, revision in client.hscan_iter(stored.REVISIONS, count=1000)
    }
    differing = [pk for pk in published.keys() | written.keys() if everything or published.get(pk) != written.get(pk)]
    # Each transaction reads the database after WATCH: a concurrent announcement makes it retry.
    for first in range(0, len(differing), _REWRITTEN):
        names = differing[first : first + _REWRITTEN]
        client.transaction(partial(_rewrite_pipelines, names, published), stored.PIPELINES)
    client.transaction(_rewrite_keys, stored.INGEST_KEYS)


def snapshot_keep(*, everything: bool = False) -> bool:
    """As ``snapshot_rewrite``. Returns whether it succeeded; why it did not is logged."""
    try:
        snapshot_rewrite(everything=everything)
        return True
    except (RedisError, DatabaseError) as error:
        log.warning("The snapshot in Redis could not be rewritten: %s", error)
    except Exception:
        log.exception("The snapshot in Redis could not be rewritten.")
    return False


def _rewrite_pipelines(names: list[str], revisions: dict[str, bytes], batch: Any) -> None:
    snapshots, unreadable = selectors.published_snapshots(names)
    for pipeline, reason in unreadable:
        pipeline_mark_unreadable(pipeline_id=pipeline.pk, failure=reason)
    entries = {str(snapshot.id): stored.dump_pipeline(snapshot) for snapshot in snapshots}
    batch.multi()
    for name in names:
        if name in entries:
            batch.hset(stored.PIPELINES, name, entries[name])
        else:
            batch.hdel(stored.PIPELINES, name)
        if name in revisions:
            batch.hset(stored.REVISIONS, name, revisions[name])
        else:
            batch.hdel(stored.REVISIONS, name)


def _rewrite_keys(batch: Any) -> None:
    usable = {key.hash: key.to_json() for key in map(ingest_key, ingest_keys()) if key is not None}
    written = {name.decode(): entry for name, entry in batch.hgetall(stored.INGEST_KEYS).items()}
    batch.multi()
    for name in written.keys() - usable.keys():
        batch.hdel(stored.INGEST_KEYS, name)
    for name, entry in usable.items():
        if written.get(name) != entry:
            batch.hset(stored.INGEST_KEYS, name, entry)
    batch.set(stored.COMPLETE, b"")


def _provision(
    pipeline: Pipeline,
    *,
    version: PipelineVersion,
    config: PipelineConfig,
    actor: User,
    before: dict[str, Any],
    after: dict[str, Any],
) -> Pipeline:
    with transaction.atomic():
        Pipeline.objects.select_for_update().get(pk=pipeline.pk)
        if pipeline.provisionings.filter(state=Provisioning.State.PROVISIONING).exists():
            raise ConflictError("A version of this pipeline is being provisioned; wait until that has ended.")
        _audit("publish", pipeline, actor, before=before, after=after)
        saga.provisioning_start(pipeline=pipeline, version=version, config=config)
    return pipeline


def _check_reaches_outputs(config: PipelineConfig) -> None:
    """Raises ConfigError when messages are handed over to stream processing, and nothing gives them back although they
    are awaited after it; or the other way round."""
    if config.stream_processing is None:
        return
    awaited = bool(config.outputs or config.index)
    if awaited and config.stream_processing.sql is None:
        sentence = (
            "Messages end in stream processing as long as it has no SQL, so they would be accepted and never reach "
            "outputs or filters. Write the SQL; or remove the outputs and indexed fields, and read the topic of Avro "
            "messages yourself."
        )
        raise ConfigError({"config.stream_processing.sql": [sentence]})
    if config.stream_processing.sql is not None and not awaited:
        sentence = "What the SQL gives has nowhere to go: add an output or indexed fields, or remove the SQL."
        raise ConfigError({"config.stream_processing.sql": [sentence]})


def _check_schema(pipeline: Pipeline, config: PipelineConfig) -> None:
    """Raises ConfigError when the registry would reject the schema, or is unavailable."""
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
        _notify(pipeline.pk)
    for name, value in fields.items():
        setattr(pipeline, name, value)
    return pipeline


def _notify(pipeline_id: UUID) -> None:
    """Notifies receivers of the signal, and the data plane after commit."""
    pipeline = Pipeline.objects.select_related("published").get(pk=pipeline_id)
    try:
        config = pipeline.published.load() if pipeline.published is not None else None
    except UnreadableConfigError as error:
        # It has to be paused, and deleted, all the same.
        log.warning("Pipeline %s changes, and its published version cannot be read: %s", pipeline_id, error)
    else:
        pipeline_changed.send(Pipeline, pipeline=pipeline, config=config)
    transaction.on_commit(lambda: pipeline_announce(pipeline_id=pipeline_id))


def _audit(action: str, pipeline: Pipeline, actor: User, **changed: Any) -> None:
    audit_record(action=f"pipeline.{action}", actor=actor, workspace=pipeline.workspace, target=pipeline, **changed)


def _add_version(pipeline: Pipeline, number: int, config: PipelineConfig, actor: User) -> None:
    types = dict(Connector.objects.filter(pk__in=config.connectors).values_list("pk", "type"))
    PipelineVersion.objects.create(
        pipeline=pipeline,
        number=number,
        config=config.model_dump(mode="json"),
        schema_version=config.schema_version,
        option_versions=option_versions(config.uses(), types),
        connectors=sorted(config.connectors),
        breakers=config.breakers,
        stages=[stage.name for stage in stages_of(config, types)],
        author=actor,
    )


def config_upgrade(*, config: dict[str, Any], schema_version: int, option_versions: OptionVersions) -> dict[str, Any]:
    """A configuration of these versions of the schemas, in the current ones. Raises ConfigError."""
    try:
        return PipelineConfig.upgraded(config, schema_version, option_versions)
    except UnreadableConfigError as error:
        raise ConfigError({"config": [str(error)]}) from None


def _config_of(version: PipelineVersion) -> dict[str, Any]:
    return config_upgrade(
        config=version.config, schema_version=version.schema_version, option_versions=version.option_versions
    )


def _use_errors(placed: PlacedUse, connector: Connector | None) -> dict[str, list[str]]:
    """The errors of one use of a connector, by field."""
    path = ("config", *placed.path)
    if connector is None:
        return {dotted((*path, "connector")): ["This workspace has no such connector."]}
    try:
        type = connector_type(connector.type)
    except ConfigError as error:
        return {dotted((*path, "connector")): error.errors["type"]}
    if refusals := placed.use.refusals(type, connector.name):
        return {dotted((*path, field)): [sentence] for field, sentence in refusals.items()}
    capability = placed.use.capability_of(type)
    assert capability is not None
    try:
        capability.options_model.model_validate(placed.use.options)
    except ValidationError as error:
        return ConfigError.of(error, placed.use.options, *path, "options").errors
    return {}


def _check_name_is_free(workspace: Workspace, name: str, but: Pipeline | None = None) -> None:
    others = Pipeline.objects.filter(workspace=workspace, name=name)
    if but is not None:
        others = others.exclude(pk=but.pk)
    if others.exists():
        raise ConfigError({"name": ["Another pipeline of this workspace has this name."]})
