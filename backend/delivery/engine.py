"""Delivers messages of all pipelines to all their outputs."""

import asyncio
import time

from backend.delivery.output import Delivered, Output, Suppressed, Undeliverable
from backend.domain import routing
from backend.domain.breaker import BreakerPolicy
from backend.domain.message import Message
from backend.domain.pipeline import RuntimeOutput
from backend.domain.records import Record, attempt_record, billing_event, dead_letter, resolved
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, RuntimePipeline, UnknownPipelineError
from backend.resilience.gate import Gate, Kind
from backend.telemetry.recorder import Recorder

_STAGE = "syndicating"
_CONFIG_RETRY_SECONDS = 2.0
_RECENT_SECONDS = 5.0


class DeliveryEngine:
    """Owns the outputs. One per task, on one event loop."""

    def __init__(self, config: ConfigClient, recorder: Recorder, gate: Gate, breaker: BreakerPolicy) -> None:
        self._config = config
        self._recorder = recorder
        self._gate = gate
        self._breaker = breaker
        self._outputs: dict[tuple[str, str], Output] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._waiting: set[str] = set()
        gate.start()

    async def deliver(self, message: Message, position: str) -> list[Record]:
        """Delivers to every output of the message's version, or to the one a redelivery is for.

        ``position`` names the record that was read. Returns what is to be recorded of it: billing
        events, attempts and dead letters. Waits, however long, while the configuration cannot be
        had: the message is not its fault.
        """
        message, redelivery = message.split_redelivery()
        only = redelivery.output if redelivery else ""
        try:
            runtime = await self._runtime(message)
            outputs = [output for output in runtime.outputs if only in ("", output.name)]
            if not outputs:
                raise UnknownPipelineError(f"Version {message.version} of the pipeline has no output {only}.")
        except UnknownPipelineError as error:
            reason = "unknown_output" if only else "unknown_pipeline"
            return [dead_letter(message, stage=_STAGE, reason=reason, error=str(error), output=only)]
        workspace = str(runtime.snapshot.workspace_id)
        kind: Kind = "redelivery" if redelivery else "first"
        if len(outputs) == 1:
            records = await self._deliver_to(outputs[0], message, position, kind, workspace)
        else:
            parts = [self._deliver_to(output, message, position, kind, workspace) for output in outputs]
            records = [record for found in await asyncio.gather(*parts) for record in found]
        # One that failed again for its output is the same dead letter still.
        if redelivery and not (only and any(record.topic == routing.DEAD_LETTER for record in records)):
            records.append(resolved(message, redelivery.dead_letter))
        return records

    def relieve(self) -> None:
        """The window has been full for a while: outputs that are slow make room for the others.

        A single output may fill it, since nobody else waits then.
        """
        recent = time.monotonic() - _RECENT_SECONDS
        used = [output for output in self._outputs.values() if output.in_flight or output.last_used > recent]
        if len(used) > 1:
            for output in used:
                if output.is_slow():
                    output.dismiss_line()

    async def close(self) -> None:
        await asyncio.gather(*(output.close() for output in self._outputs.values()), *self._retired)
        await self._gate.close()

    async def _runtime(self, message: Message) -> RuntimePipeline:
        while True:
            try:
                runtime = await self._config.runtime(message.pipeline_id, message.version)
            except ConfigUnavailableError as error:
                self._note_waiting(message, error)
                await asyncio.sleep(_CONFIG_RETRY_SECONDS)
            else:
                self._waiting.discard(message.pipeline_id)
                return runtime

    def _note_waiting(self, message: Message, error: ConfigUnavailableError) -> None:
        """Told once for all messages of a pipeline that wait."""
        if message.pipeline_id in self._waiting:
            return
        self._waiting.add(message.pipeline_id)
        self._recorder.error(
            message.pipeline_id,
            stage=_STAGE,
            reason="configuration_unavailable",
            message=str(error),
            message_id=message.id,
        )

    async def _deliver_to(
        self, runtime: RuntimeOutput, message: Message, position: str, kind: Kind, workspace: str
    ) -> list[Record]:
        output = self._output(message.pipeline_id, runtime)
        outcome = await output.send(message, position, kind)
        records = [
            attempt_record(message, attempt, workspace_id=workspace, output=runtime.name)
            for attempt in outcome.attempts
        ]
        match outcome:
            # A record that is read again was not committed, nor was its billing event. Any other
            # repeat came from upstream: the first copy is or will be billed.
            case Delivered() | Suppressed(same_read=True):
                records.append(billing_event(message, workspace_id=workspace, output=runtime.name))
            case Undeliverable(reason=reason, error=error, attempts=attempts, due=due, retryable=retryable):
                records.append(
                    dead_letter(
                        message,
                        stage=_STAGE,
                        reason=reason,
                        error=error,
                        output=runtime.name,
                        attempts=len(attempts),
                        due=due,
                        retryable=retryable,
                    )
                )
        return records

    def _output(self, pipeline_id: str, runtime: RuntimeOutput) -> Output:
        key = (pipeline_id, runtime.name)
        output = self._outputs.get(key)
        if output is None or output.runtime is not runtime:
            if output is not None:
                if output.runtime == runtime:
                    output.runtime = runtime
                    return output
                self._retire(output)
            output = self._outputs[key] = Output(
                pipeline_id, runtime, recorder=self._recorder, gate=self._gate, breaker=self._breaker
            )
        return output

    def _retire(self, output: Output) -> None:
        """Closes an output whose configuration changed, once its last delivery ended."""

        async def close_when_idle() -> None:
            while output.in_flight:
                await asyncio.sleep(0.1)
            await output.close()

        task = asyncio.create_task(close_when_idle())
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)
