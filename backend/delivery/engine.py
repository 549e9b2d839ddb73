"""Delivers messages of all pipelines to all their outputs."""

import asyncio
import contextlib
import time

from backend.delivery.outcomes import Delivered, Suppressed, Undeliverable
from backend.delivery.output import Output
from backend.domain import routing
from backend.domain.breaker import BreakerPolicy
from backend.domain.message import Message
from backend.domain.pipeline import RuntimeOutput
from backend.domain.reasons import Reason
from backend.domain.records import Record, attempt_record, billing_event, dead_letter, resolved
from backend.domain.stages import SYNDICATING
from backend.manager_api.client import ConfigClient, UnknownPipelineError
from backend.manager_api.waiting import WaitingConfig
from backend.resilience.gate import Gate, Kind
from backend.telemetry.recorder import Recorder

_RECENT_SECONDS = 5.0
_SWEEP_SECONDS = 15.0
_OUTPUT_IDLE_SECONDS = 600.0


class DeliveryEngine:
    """Owns the outputs. One per task, on one event loop."""

    def __init__(self, config: ConfigClient, recorder: Recorder, gate: Gate, breaker: BreakerPolicy) -> None:
        self._config = WaitingConfig(config, recorder, SYNDICATING.name)
        self._recorder = recorder
        self._gate = gate
        self._breaker = breaker
        self._outputs: dict[tuple[str, str], Output] = {}
        gate.start()
        self._sweeper = asyncio.create_task(self._sweep())

    async def deliver(self, message: Message, position: str) -> list[Record]:
        """Delivers to every output of the message's version, or to the one a redelivery is for.

        ``position`` names the record that was read. Returns what is to be recorded of it: billing events, attempts
        and dead letters. Waits, however long, while the configuration is unavailable: the message is not at fault.
        """
        message, redelivery = message.split_redelivery()
        only = redelivery.output if redelivery else ""
        try:
            runtime = await self._config.runtime(message)
            outputs = [output for output in runtime.outputs if only in ("", output.name)]
            if not outputs:
                raise UnknownPipelineError(f"Version {message.version} of the pipeline has no output {only}.")
        except UnknownPipelineError as error:
            reason = Reason.UNKNOWN_OUTPUT if only else Reason.UNKNOWN_PIPELINE
            return [dead_letter(message, stage=SYNDICATING.name, reason=reason, error=str(error), output=only)]
        workspace = str(runtime.snapshot.workspace_id)
        kind: Kind = "redelivery" if redelivery else "first"
        if len(outputs) == 1:
            records = await self._deliver_to(outputs[0], message, position, kind, workspace)
        else:
            parts = [self._deliver_to(output, message, position, kind, workspace) for output in outputs]
            records = [record for made in await asyncio.gather(*parts) for record in made]
        # One that failed again for its output is the same dead letter still.
        if redelivery and not (only and any(record.topic == routing.DEAD_LETTER for record in records)):
            records.append(resolved(message, redelivery.dead_letter))
        return records

    def relieve(self) -> None:
        """The window has been full for a while: batches are sent as they are, and outputs that are slow make room
        for the others. A single output may fill the window, since nobody else waits then."""
        recent = time.monotonic() - _RECENT_SECONDS
        used = [output for output in self._outputs.values() if output.in_flight or output.last_used > recent]
        for output in used:
            output.flush()
            if len(used) > 1 and output.is_slow():
                output.dismiss_line()

    def flush(self) -> None:
        """Sends what waits for its batch to fill."""
        for output in self._outputs.values():
            output.flush()

    async def close(self) -> None:
        """Once every delivery has ended."""
        self._sweeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sweeper
        await asyncio.gather(*(output.close() for output in self._outputs.values()))
        await self._gate.close()

    async def _deliver_to(
        self, runtime: RuntimeOutput, message: Message, position: str, kind: Kind, workspace: str
    ) -> list[Record]:
        output = self._output(message.pipeline_id, runtime)
        outcome = await output.send(runtime, message.version, message, position, kind)
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
                        stage=SYNDICATING.name,
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
        if output is None:
            output = self._outputs[key] = Output(
                pipeline_id, runtime, recorder=self._recorder, gate=self._gate, breaker=self._breaker
            )
        return output

    async def _sweep(self) -> None:
        """Closes what nobody uses any more: clients of former versions, outputs of deleted pipelines."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for key, output in list(self._outputs.items()):
                output.close_idle_clients(now)
                if not output.in_flight and now - output.last_used > _OUTPUT_IDLE_SECONDS:
                    del self._outputs[key]
                    await output.close()
