"""Simulates the processing of a message with the data plane's own code, without its side effects."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from backend.api_calls.api import System
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import runtime_connector
from backend.apps.pipelines.captured import adapted_messages, captured_message
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import published_filters
from backend.apps.pipelines.services import config_validate
from backend.domain import http_text, json, limits, routing, trial
from backend.domain.capabilities import DeliveryError, Export
from backend.domain.connector import RuntimeConnector
from backend.domain.errors import ConfigError
from backend.domain.examples import EverythingIsNew
from backend.domain.filters.index import PredicateIndex
from backend.domain.message import INDEX, Message
from backend.domain.message_templates import Metadata
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot, RuntimeOutput
from backend.domain.reasons import Reason
from backend.domain.transforms.base import CallFailedError, Calls, Memory, StepResources
from backend.domain.transforms.call import Call
from backend.domain.trial import Difference, Trial


@dataclass(frozen=True)
class DryRunBody:
    """A body as text, or in base64 when it is no text. Avro that is handed over is JSON here, as its reader has it."""

    body: str
    is_base64: bool


@dataclass(frozen=True)
class DryRunResult(DryRunBody):
    """A message that the steps hand on. ``index`` is what other pipelines may filter it by, as JSON, empty if it is not
    offered to them; ``taken_by`` are the names of those whose filters take it."""

    content_type: str
    index: str
    taken_by: list[str]


@dataclass(frozen=True)
class DryRunSent(DryRunBody):
    """What a receiver gets of a message (``capabilities.Sent``)."""

    place: str
    deletes: bool


@dataclass(frozen=True)
class DryRunOutput:
    """Where the messages would be delivered: ``sent`` is what the receiver gets of each; ``error`` says why one of them
    could not be."""

    name: str
    target: str
    error: str = ""
    sent: list[DryRunSent] = field(default_factory=list)


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
    ``results`` the messages that they hand on, none if it was dropped or failed."""

    topics: list[str]
    steps: list[dict[str, Any]]
    error: str
    results: list[DryRunResult]
    calls: list[DryRunCall] = field(default_factory=list)
    outputs: list[DryRunOutput] = field(default_factory=list)


@dataclass(frozen=True)
class Replay:
    """``delivered`` is what the outputs got of a message under its own version, as far as Kafka retains it, and
    ``differences`` how the outcome differs from it."""

    outcome: DryRun
    delivered: list[DryRunBody]
    differences: list[Difference]


def dry_run(
    *,
    pipeline: Pipeline,
    config: dict[str, Any],
    body: bytes,
    content_type: str = "application/json",
    call_apis: bool = False,
) -> DryRun:
    """Nothing is delivered, stored or counted. External systems are called only with ``call_apis``, once and
    regardless of their circuit breakers; otherwise their steps are skipped. Raises ConfigError when the configuration
    or the sample is invalid."""
    checked_type = _checked_type(content_type)
    snapshot = _snapshot(pipeline, config)
    outcome, _ = _run(snapshot, lambda: trial.sample(snapshot, body, checked_type), call_apis=call_apis)
    return outcome


def replay(*, pipeline: Pipeline, message_id: str, config: dict[str, Any], call_apis: bool = False) -> Replay | None:
    """Runs a message that was received through a configuration, as ``dry_run`` does, and compares what is delivered
    with what was. None when Kafka no longer retains the message. Raises ConfigError and KafkaException."""
    message = captured_message(pipeline=pipeline, message_id=message_id)
    if message is None:
        return None
    # Whatever does not depend on the configuration stays as it was.
    snapshot = _snapshot(pipeline, config, version=message.version)
    outcome, messages = _run(snapshot, lambda: trial.replayed(snapshot, message), call_apis=call_apis)
    delivered = [one.body for one in adapted_messages(pipeline=pipeline, received=message)]
    differences = []
    # With stream processing, what its SQL makes of a message is delivered; and what is not known differs from nothing.
    if delivered and snapshot.config.stream_processing is None:
        differences = trial.compared(delivered, [one.body for one in messages])
    return Replay(outcome, [DryRunBody(*trial.text(body)) for body in delivered], differences)


def _snapshot(pipeline: Pipeline, config: dict[str, Any], version: int = 0) -> PipelineSnapshot:
    """The draft as if it were published; its schema has no id yet. Raises ConfigError."""
    return PipelineSnapshot(
        id=pipeline.pk,
        workspace_id=pipeline.workspace_id,
        version=version,
        accepting=True,
        config=config_validate(workspace=pipeline.workspace, config=config),
        schema_id=0,
    )


def _run(
    snapshot: PipelineSnapshot, enter: Callable[[], Message], *, call_apis: bool
) -> tuple[DryRun, Sequence[Message]]:
    """The outcome, and the messages that are handed on. Raises ConfigError."""
    connectors = _connectors(snapshot)
    try:
        message = enter()
    except json.InvalidJsonError as error:
        return _refused(snapshot, f"The body is not JSON: {error}"), []
    except limits.TooLargeError as error:
        return _refused(snapshot, str(error)), []
    except trial.SampleError as error:
        raise ConfigError({"body": [str(error)]}) from None
    tried, calls = asyncio.run(_tried(snapshot, message, connectors if call_apis else None))
    outcome = DryRun(
        tried.topics,
        [asdict(step) for step in tried.steps],
        tried.error,
        _results(snapshot, tried.messages),
        calls,
        _outputs(snapshot.config, connectors, tried.messages),
    )
    return outcome, tried.messages


def _checked_type(content_type: str) -> str:
    """As the HTTP input checks it. Raises ConfigError."""
    try:
        checked = http_text.content_type(content_type.encode())
    except http_text.HeaderError as error:
        raise ConfigError({"content_type": [str(error)]}) from None
    if not checked:
        raise ConfigError({"content_type": ["Enter a content type, such as application/json."]})
    return checked


def _refused(snapshot: PipelineSnapshot, error: str) -> DryRun:
    entry, slip = routing.route(snapshot.config, str(snapshot.id))
    return DryRun([entry, *slip], [], error, [])


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


async def _tried(
    snapshot: PipelineSnapshot, message: Message, connectors: Mapping[UUID, RuntimeConnector] | None
) -> tuple[Trial, list[DryRunCall]]:
    """Without connectors, steps that call external systems are skipped."""
    if connectors is None:
        return await trial.tried(snapshot, message, StepResources({Memory: EverythingIsNew()})), []
    calls = _SingleCalls(connectors, Metadata(message))
    resources = StepResources({Calls: calls, Memory: EverythingIsNew()})
    return await trial.tried(snapshot, message, resources), calls.calls


def _connectors(snapshot: PipelineSnapshot) -> dict[UUID, RuntimeConnector]:
    used = Connector.objects.filter(workspace_id=snapshot.workspace_id).in_bulk(snapshot.config.connectors)
    return {pk: runtime_connector(connector) for pk, connector in used.items()}


def _results(snapshot: PipelineSnapshot, messages: Sequence[Message]) -> list[DryRunResult]:
    filters: PredicateIndex[str] | None = None
    results = []
    for message in messages:
        index, taken_by = message.extra.get(INDEX, ""), []
        # With stream processing, what its SQL makes of a message is offered to others, not the message.
        if index and snapshot.config.stream_processing is None:
            filters = filters or _filters(snapshot)
            taken_by = filters.matches(json.loads(index))
        body = trial.shown(message.body, message.content_type, snapshot.config)
        results.append(DryRunResult(*body, message.content_type, index, sorted(taken_by)))
    return results


def _filters(snapshot: PipelineSnapshot) -> PredicateIndex[str]:
    """The published filters of the workspace's other pipelines, by their names."""
    others = Pipeline.objects.filter(workspace_id=snapshot.workspace_id).exclude(pk=snapshot.id)
    names = {str(pk): name for pk, name in others.values_list("pk", "name")}
    return PredicateIndex((names[str(one.id)], condition) for one, condition in published_filters(names))


def _outputs(
    config: PipelineConfig, connectors: Mapping[UUID, RuntimeConnector], messages: Sequence[Message]
) -> list[DryRunOutput]:
    """None for messages that are handed over to stream processing: what is delivered is what its SQL makes of them."""
    if not messages or config.stream_processing is not None:
        return []
    runtimes = [RuntimeOutput(config=output, connector=connectors[output.connector]) for output in config.outputs]
    return [_output(runtime, messages) for runtime in runtimes]


def _output(output: RuntimeOutput, messages: Sequence[Message]) -> DryRunOutput:
    target, error = "", ""
    sent: list[DryRunSent] = []
    try:
        capability: Any = output.config.bind(output.connector)
        if isinstance(capability, Export):
            return DryRunOutput(output.name, output.config.file_policy.shown_name)
        target = capability.target()
        for message in messages:
            try:
                one = capability.sent(message)
                sent.append(DryRunSent(*trial.text(one.body), one.place, one.deletes))
            except DeliveryError as refusal:
                error = error or str(refusal.without(capability.secrets()))
    except DeliveryError as refusal:
        error = str(refusal)
    return DryRunOutput(output.name, target, error, sent)
