"""What would happen to a message: the data plane's own code, without its side effects."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from backend.api_calls.api import HttpApi
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.connectors.secrets import UnreadableSecretError
from backend.apps.connectors.vault import VaultUnavailableError
from backend.apps.pipelines.services import config_validate
from backend.apps.workspaces.models import Workspace
from backend.delivery.output import build_destination
from backend.domain import json, routing
from backend.domain.connector import DeliveryError
from backend.domain.pipeline import PipelineConfig, RuntimeConnector, RuntimeOutput
from backend.domain.transforms.base import CallFailedError, CallRequest
from backend.domain.transforms.chain import Chain, NotAskedError, Trace
from backend.domain.transforms.http_call import HttpCall


@dataclass(frozen=True)
class DryRunOutput:
    """Where a message would be delivered; ``error`` when it could not be."""

    name: str
    target: str
    error: str = ""


@dataclass(frozen=True)
class DryRunCall:
    """What an external API was asked, and its answer as JSON text, or why there is none."""

    name: str
    request: str
    answer: str = ""
    error: str = ""


@dataclass(frozen=True)
class DryRun:
    """``topics`` are those that the message would pass; ``steps`` what each transform made of it;
    ``results`` the bodies that would be delivered, none when it was dropped or failed."""

    topics: list[str]
    steps: list[dict[str, Any]]
    error: str
    results: list[str]
    calls: list[DryRunCall] = field(default_factory=list)
    outputs: list[DryRunOutput] = field(default_factory=list)


def dry_run(
    *, workspace: Workspace, pipeline_id: str, config: dict[str, Any], body: bytes, call_apis: bool = False
) -> DryRun:
    """Nothing is sent, stored or counted; external APIs are asked with ``call_apis`` only, once and past their
    circuit breakers, and their steps are passed over otherwise. Raises ConfigError when the configuration is
    refused."""
    validated = config_validate(workspace=workspace, config=config)
    entry, slip = routing.route(validated, pipeline_id)
    topics = [entry, *slip]
    connectors = _connectors(workspace, validated)
    if not validated.transforms:
        return DryRun(topics, [], "", [body.decode(errors="replace")], outputs=_outputs(validated, connectors))
    trace, calls = asyncio.run(_trace(validated, body, connectors if call_apis else None))
    return DryRun(
        topics,
        [asdict(step) for step in trace.steps],
        trace.error,
        [result.body.decode(errors="replace") for result in trace.results],
        calls,
        _outputs(validated, connectors) if trace.results else [],
    )


class _Services:
    """Asks each API once per document. Every message is the first of its kind."""

    def __init__(self, connectors: Mapping[UUID, RuntimeConnector] | None) -> None:
        self._connectors = connectors
        self.calls: list[DryRunCall] = []

    async def call(self, step: HttpCall, request: CallRequest) -> Any:
        if self._connectors is None:
            raise NotAskedError
        body = f" {request.body.decode()}" if request.body is not None else ""
        asked = f"{request.method} {request.path}{body}"
        try:
            api = HttpApi(self._connectors[step.connector])
            try:
                answer = await api.ask(request, step.timeout_seconds)
            finally:
                await api.close()
        except (DeliveryError, CallFailedError) as error:
            self.calls.append(DryRunCall(step.name, asked, error=str(error)))
            raise CallFailedError("call_failed", str(error)) from None
        self.calls.append(DryRunCall(step.name, asked, answer.decode() or "null"))
        return json.loads(answer) if answer else None

    async def first_seen(self, key: str, seconds: int) -> bool:
        return True


async def _trace(
    config: PipelineConfig, body: bytes, connectors: Mapping[UUID, RuntimeConnector] | None
) -> tuple[Trace, list[DryRunCall]]:
    services = _Services(connectors)
    return await Chain(config.transforms).trace(body, services), services.calls


def _connectors(workspace: Workspace, config: PipelineConfig) -> dict[UUID, RuntimeConnector]:
    found = Connector.objects.filter(workspace=workspace).in_bulk(config.connectors)
    return {pk: _runtime(connector) for pk, connector in found.items()}


def _runtime(connector: Connector) -> RuntimeConnector:
    try:
        return RuntimeConnector(type=connector.type, connection=connection_with_secrets(connector))
    except (UnreadableSecretError, VaultUnavailableError) as error:
        return RuntimeConnector(type=connector.type, connection={}, error=str(error))


def _outputs(config: PipelineConfig, connectors: Mapping[UUID, RuntimeConnector]) -> list[DryRunOutput]:
    return [_output(RuntimeOutput(config=output, connector=connectors[output.connector])) for output in config.outputs]


def _output(output: RuntimeOutput) -> DryRunOutput:
    try:
        return DryRunOutput(output.name, build_destination(output).target())
    except DeliveryError as error:
        return DryRunOutput(output.name, "", str(error))
