"""What would happen to a message: the data plane's own code, without its side effects."""

from dataclasses import asdict, dataclass, field
from typing import Any

from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.connectors.secrets import UnreadableSecretError
from backend.apps.connectors.vault import VaultUnavailableError
from backend.apps.pipelines.services import config_validate
from backend.apps.workspaces.models import Workspace
from backend.delivery.output import build_destination
from backend.domain import routing
from backend.domain.connector import DeliveryError
from backend.domain.pipeline import OutputConfig, PipelineConfig, RuntimeOutput
from backend.domain.transforms.chain import trace_chain


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
        [result.body.decode(errors="replace") for result in trace.results],
        _outputs(workspace, validated) if trace.results else [],
    )


def _outputs(workspace: Workspace, config: PipelineConfig) -> list[DryRunOutput]:
    connectors = Connector.objects.filter(workspace=workspace).in_bulk([output.connector for output in config.outputs])
    return [_output(output, connectors[output.connector]) for output in config.outputs]


def _output(config: OutputConfig, connector: Connector) -> DryRunOutput:
    try:
        connection = connection_with_secrets(connector)
        runtime = RuntimeOutput(name=config.name, connector_type=connector.type, connection=connection, config=config)
        return DryRunOutput(config.name, build_destination(runtime).target())
    except (UnreadableSecretError, VaultUnavailableError, DeliveryError) as error:
        return DryRunOutput(config.name, "", str(error))
