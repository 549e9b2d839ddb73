"""What would happen to a message: the data plane's own code, without its side effects."""

from dataclasses import asdict, dataclass, field
from typing import Any

from django.http import Http404

from backend.apps.connectors.models import Connector
from backend.apps.connectors.secrets import UnreadableSecretError
from backend.apps.connectors.services import connection_with_secrets
from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.apps.pipelines.services import config_validate
from backend.apps.workspaces.models import Workspace
from backend.delivery.output import build_destination
from backend.domain import routing
from backend.domain.connector import DeliveryError
from backend.domain.diff import changes
from backend.domain.message import Message
from backend.domain.pipeline import OutputConfig, PipelineConfig, RuntimeOutput
from backend.domain.transforms.chain import trace_chain
from backend.environment import environment
from backend.kafka_client.tail import tail

_TAIL = 2000
"""Records looked at per partition, of all pipelines."""


@dataclass(frozen=True)
class DryRunOutput:
    """Where a message would be delivered; ``error`` when it could not be."""

    name: str
    target: str
    error: str = ""


@dataclass(frozen=True)
class DryRun:
    """``topics`` are those that the message would pass; ``steps`` what each transform made of it;
    ``results`` the bodies that would be delivered, none when it was dropped or failed."""

    topics: list[str]
    steps: list[dict[str, Any]]
    error: str
    results: list[str]
    outputs: list[DryRunOutput] = field(default_factory=list)


def dry_run(*, workspace: Workspace, config: dict[str, Any], body: bytes) -> DryRun:
    """Nothing is sent, stored or counted. Raises ConfigError when the configuration is refused."""
    validated = config_validate(workspace=workspace, config=config)
    entry, slip = routing.route(validated)
    topics = [entry, *slip]
    if not validated.transforms:
        return DryRun(topics, [], "", [body.decode(errors="replace")], _outputs(workspace, validated))
    trace = trace_chain(validated.transforms, body)
    return DryRun(
        topics,
        [asdict(step) for step in trace.steps],
        trace.error,
        [result.decode() for result in trace.results],
        _outputs(workspace, validated) if trace.results else [],
    )


def captured_messages(*, pipeline: Pipeline, limit: int) -> list[Message]:
    """The newest messages of the pipeline that are still at hand, newest first. Raises KafkaException."""
    found: list[Message] = []
    for topic in (routing.INPUT, routing.TRANSFORMER):
        for record in tail(environment().kafka_bootstrap_servers, topic, _TAIL):
            headers: Any = record.headers() or []
            if dict(headers).get("pipeline", b"").decode() == str(pipeline.pk):
                found.append(Message.from_kafka(key=record.key(), value=record.value(), headers=headers))  # type: ignore[arg-type]
    return sorted(found, key=lambda message: message.id, reverse=True)[:limit]


def version_changes(*, pipeline: Pipeline, number: int, since: int | None) -> list[dict[str, Any]]:
    """What the version changed since another one, or since the one before it."""
    return [asdict(change) for change in changes(_config(pipeline, since or number - 1), _config(pipeline, number))]


def _config(pipeline: Pipeline, number: int) -> dict[str, Any]:
    if number == 0:
        return {}
    version = PipelineVersion.objects.filter(pipeline=pipeline, number=number).first()
    if version is None:
        raise Http404
    config: dict[str, Any] = version.config
    return config


def _outputs(workspace: Workspace, config: PipelineConfig) -> list[DryRunOutput]:
    connectors = Connector.objects.filter(workspace=workspace).in_bulk([output.connector for output in config.outputs])
    return [_output(output, connectors[output.connector]) for output in config.outputs]


def _output(config: OutputConfig, connector: Connector) -> DryRunOutput:
    try:
        connection = connection_with_secrets(connector)
        runtime = RuntimeOutput(name=config.name, connector_type=connector.type, connection=connection, config=config)
        return DryRunOutput(config.name, build_destination(runtime).target())
    except (UnreadableSecretError, DeliveryError) as error:
        return DryRunOutput(config.name, "", str(error))
