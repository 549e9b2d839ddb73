"""Simulates the processing of a message with the data plane's own code, without its side effects."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from backend.api_calls.api import System
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import runtime_connector
from backend.apps.pipelines.services import config_validate
from backend.apps.workspaces.models import Workspace
from backend.domain import json, routing
from backend.domain.capabilities import DeliveryError, Export
from backend.domain.connector import RuntimeConnector
from backend.domain.examples import EverythingIsNew
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.message_templates import Metadata
from backend.domain.pipeline import PipelineConfig, RuntimeOutput
from backend.domain.reasons import Reason
from backend.domain.transforms.base import CallFailedError, Calls, Memory, StepResources
from backend.domain.transforms.call import Call
from backend.domain.transforms.chain import Chain, Trace


@dataclass(frozen=True)
class DryRunOutput:
    """Where a message would be delivered; ``error`` if it could not be."""

    name: str
    target: str
    error: str = ""


@dataclass(frozen=True)
class DryRunCall:
    """A request to an external API, and its response as JSON text, or the error."""

    name: str
    request: str
    answer: str = ""
    error: str = ""


@dataclass(frozen=True)
class DryRun:
    """``topics`` are those that the message would pass through; ``steps`` the result of each transform;
    ``results`` the bodies that would be delivered, none if it was dropped or failed."""

    topics: list[str]
    steps: list[dict[str, Any]]
    error: str
    results: list[str]
    calls: list[DryRunCall] = field(default_factory=list)
    outputs: list[DryRunOutput] = field(default_factory=list)


def dry_run(
    *, workspace: Workspace, pipeline_id: str, config: dict[str, Any], body: bytes, call_apis: bool = False
) -> DryRun:
    """Nothing is delivered, stored or counted. External systems are called only with ``call_apis``, once and
    regardless of their circuit breakers; otherwise their steps are skipped. Raises ConfigError when the
    configuration is invalid."""
    validated = config_validate(workspace=workspace, config=config)
    entry, slip = routing.route(validated, pipeline_id)
    topics = [entry, *slip]
    connectors = _connectors(workspace, validated)
    if not validated.transforms:
        return DryRun(topics, [], "", [body.decode(errors="replace")], outputs=_outputs(validated, connectors))
    message_id = new_message_id()
    message = Message(message_id, pipeline_id, 0, message_id.encode(), body, "application/json", utc_now(), tuple(slip))
    trace, calls = asyncio.run(_trace(validated, message, connectors if call_apis else None))
    return DryRun(
        topics,
        [asdict(step) for step in trace.steps],
        trace.error,
        [result.body.decode(errors="replace") for result in trace.results],
        calls,
        _outputs(validated, connectors) if trace.results else [],
    )


class _SingleCalls(Calls):
    """Calls each external system once per document."""

    def __init__(self, connectors: Mapping[UUID, RuntimeConnector], metadata: Metadata) -> None:
        self._connectors = connectors
        self._metadata = metadata
        self.calls: list[DryRunCall] = []

    async def call(self, step: Call, document: Any) -> Any:
        system = System(step, self._connectors[step.connector])
        request = system.request(document, self._metadata)
        shown = system.shown(request)
        try:
            answer = await system.ask(request)
        except DeliveryError as error:
            self.calls.append(DryRunCall(step.name, shown, error=str(error)))
            raise CallFailedError(Reason.CALL_FAILED, str(error)) from None
        finally:
            await system.close()
        self.calls.append(DryRunCall(step.name, shown, answer.decode() or "null"))
        return json.loads(answer) if answer else None


async def _trace(
    config: PipelineConfig, message: Message, connectors: Mapping[UUID, RuntimeConnector] | None
) -> tuple[Trace, list[DryRunCall]]:
    """Without connectors, steps that call external systems are skipped."""
    chain = Chain(config.transforms)
    if connectors is None:
        return await chain.trace(message.body, StepResources({Memory: EverythingIsNew()}), message), []
    calls = _SingleCalls(connectors, Metadata(message))
    resources = StepResources({Calls: calls, Memory: EverythingIsNew()})
    return await chain.trace(message.body, resources, message), calls.calls


def _connectors(workspace: Workspace, config: PipelineConfig) -> dict[UUID, RuntimeConnector]:
    used = Connector.objects.filter(workspace=workspace).in_bulk(config.connectors)
    return {pk: runtime_connector(connector) for pk, connector in used.items()}


def _outputs(config: PipelineConfig, connectors: Mapping[UUID, RuntimeConnector]) -> list[DryRunOutput]:
    return [_output(RuntimeOutput(config=output, connector=connectors[output.connector])) for output in config.outputs]


def _output(output: RuntimeOutput) -> DryRunOutput:
    try:
        capability = output.config.bind(output.connector)
        if isinstance(capability, Export):
            return DryRunOutput(output.name, output.config.file_policy.shown_name)
        return DryRunOutput(output.name, capability.target())
    except DeliveryError as error:
        return DryRunOutput(output.name, "", str(error))
