"""Delivers messages of all pipelines to all their outputs."""

import asyncio
import logging
import time
from dataclasses import replace

from backend.delivery.commits import COMMITTED, Commit, SetAside
from backend.delivery.delivery import Delivery
from backend.delivery.lateness import Lateness
from backend.delivery.outcomes import Abandoned, Delivered, Suppressed, Undeliverable
from backend.delivery.output import Output
from backend.delivery.shares import Party, Window, WindowSlot, make_room
from backend.domain import routing
from backend.domain.breaker import BreakerPolicy
from backend.domain.capabilities import internal_error
from backend.domain.message import Message, Redelivery, read_at
from backend.domain.pipeline import RuntimeOutput
from backend.domain.reasons import Reason
from backend.domain.records import Record, attempt_record, billing_event, dead_letter, resolved
from backend.domain.stages import SYNDICATING
from backend.manager_api.client import ConfigClient, RuntimePipeline, UnknownPipelineError
from backend.manager_api.waiting import EvictedError, WaitingConfig
from backend.network import tasks
from backend.resilience.gate import Gate, Kind
from backend.telemetry import events
from backend.telemetry.recorder import Recorder

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 15.0
_OUTPUT_IDLE_SECONDS = 600.0


class DeliveryEngine:
    """Owns the outputs. One per task, on one event loop."""

    def __init__(
        self,
        config: ConfigClient,
        recorder: Recorder,
        gate: Gate,
        breaker: BreakerPolicy,
        window: Window | None = None,
    ) -> None:
        """``window`` is the lane's, which all outputs share."""
        self._config = WaitingConfig(config, recorder, SYNDICATING.name)
        self._recorder = recorder
        self._gate = gate
        self._breaker = breaker
        self._window = window or Window()
        self._outputs: dict[tuple[str, str], Output] = {}
        self._accepting: dict[tuple[str, bytes], asyncio.Future[None]] = {}
        self._set_aside = SetAside()
        """Messages that were evicted before their outputs were known."""
        self._lateness = Lateness()
        gate.start()
        self._sweeper = asyncio.create_task(self._sweep())

    async def deliver(self, message: Message, position: str, commit: Commit = COMMITTED) -> list[Record]:
        """Delivers to every output of the message's version, or to the one a redelivery is for.

        ``position`` names the record that was read, and ``commit`` is that record's. Returns what is to be recorded of
        it: billing events, attempts and dead letters. Waits while the configuration is unavailable, until others need
        the room: the message is not at fault.
        """
        message, redelivery = message.split_redelivery()
        only = redelivery.output if redelivery else ""
        slot = WindowSlot(self._window, len(message.body))
        former = redelivery.read_at if redelivery else ()
        try:
            runtime = self._runtime_now(message) or await self._later_runtime(message, redelivery, commit)
            accepted = self._accept(
                runtime, message, position=position, slot=slot, redelivery=redelivery, commit=commit
            )
        except UnknownPipelineError as error:
            self._count_dead(message, redelivery)
            reason = Reason.UNKNOWN_OUTPUT if only else Reason.UNKNOWN_PIPELINE
            letter = read_at(message, (*former, position))
            return [dead_letter(letter, stage=SYNDICATING.name, reason=reason, error=str(error), output=only)]
        except EvictedError as error:
            self._count_dead(message, redelivery)
            letter = read_at(message, (*former, position))
            return [error.dead_letter(letter, stage=SYNDICATING.name, output=only)]
        workspace = runtime.workspace_id
        if len(accepted) == 1:
            records = await self._deliver_to(*accepted[0], workspace)
        else:
            parts = [self._deliver_to(output, delivery, workspace) for output, delivery in accepted]
            records = [record for made in await asyncio.gather(*parts) for record in made]
        slot.release()
        # One that failed again for its output is the same dead letter still.
        if redelivery and not (only and any(record.topic == routing.DEAD_LETTER for record in records)):
            records.append(resolved(message, redelivery.dead_letter))
        return records

    def make_room(self) -> None:
        """The window fills: messages that wait for slow outputs, or for their configuration, may have to go."""
        parties: list[Party] = [*self._outputs.values(), *self._config.queues()]
        make_room(self._window, parties, is_alone=len(parties) == 1, is_late=self._lateness.is_late)

    def flush(self) -> None:
        """Sends what waits for its batch to fill."""
        for output in self._outputs.values():
            output.flush()

    async def close(self) -> None:
        """Once every delivery has ended."""
        self._lateness.close()
        await tasks.cancel(self._sweeper)
        await asyncio.gather(*(output.close() for output in self._outputs.values()))
        await self._gate.close()

    def _count_dead(self, message: Message, redelivery: Redelivery | None) -> None:
        for event in events.dead_letter(SYNDICATING.name, redelivery):
            self._recorder.count(message.pipeline_id, event)

    def _runtime_now(self, message: Message) -> RuntimePipeline | None:
        """The message's configuration, unless it has to wait for that or for one of its key; then None."""
        key = (message.pipeline_id, message.key)
        if key in self._accepting or self._set_aside.holds(key):
            return None
        return self._config.runtime_now(message)

    async def _later_runtime(self, message: Message, redelivery: Redelivery | None, commit: Commit) -> RuntimePipeline:
        """The message's configuration, in the order in which messages of its key arrived, although one version's may be
        there before another's: nothing may be awaited between this and ``_accept``. Raises UnknownPipelineError,
        EvictedError."""
        key = (message.pipeline_id, message.key)
        before = self._accepting.get(key)
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._accepting[key] = accepted
        try:
            runtime = await self._config.runtime(message, after=before)
            if await self._set_aside.uncommitted([key]):
                raise EvictedError
            return runtime
        except EvictedError:
            if not redelivery:
                self._set_aside.add(key, commit)
            raise
        finally:
            accepted.set_result(None)
            if self._accepting.get(key) is accepted:
                del self._accepting[key]

    def _accept(
        self,
        runtime: RuntimePipeline,
        message: Message,
        *,
        position: str,
        slot: WindowSlot,
        redelivery: Redelivery | None,
        commit: Commit,
    ) -> list[tuple[Output, Delivery]]:
        """The message's turn at each of its outputs. Raises UnknownPipelineError."""
        only = redelivery.output if redelivery else ""
        outputs = [output for output in runtime.outputs if only in ("", output.name)]
        if not outputs:
            raise UnknownPipelineError(f"Version {message.version} of the pipeline has no output {only}.")
        kind: Kind = "redelivery" if redelivery else "first"
        former = redelivery.read_at if redelivery else ()
        return [
            (
                output,
                output.accept(
                    config,
                    message.version,
                    message,
                    position,
                    kind=kind,
                    slot=slot,
                    read_at=former,
                    commit=commit,
                ),
            )
            for config in outputs
            for output in [self._output(message.pipeline_id, config)]
        ]

    async def _deliver_to(self, output: Output, delivery: Delivery, workspace: str) -> list[Record]:
        """Never raises: what came of the message at other outputs must not be lost."""
        outcome = await output.send(delivery)
        if isinstance(outcome, Abandoned):
            return []
        try:
            return _records(outcome, delivery, output.name, workspace)
        except Exception as error:  # such as a connector's text that has no encoding
            log.exception("An outcome could not be recorded in full.")
            failure = internal_error(error)
            if isinstance(outcome, Undeliverable):
                outcome = replace(outcome, attempts=[], reason=failure.reason, error=str(failure))
            elif delivery.client.stages:  # it cannot be handed over, which is part of its delivery
                outcome = Undeliverable(failure.reason, str(failure))
            else:
                outcome = replace(outcome, attempts=[])
            return _records(outcome, delivery, output.name, workspace)

    def _output(self, pipeline_id: str, runtime: RuntimeOutput) -> Output:
        key = (pipeline_id, runtime.name)
        output = self._outputs.get(key)
        if output is None:
            output = self._outputs[key] = Output(
                pipeline_id,
                runtime,
                recorder=self._recorder,
                gate=self._gate,
                breaker=self._breaker,
                window=self._window,
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


def _records(
    outcome: Delivered | Suppressed | Undeliverable, delivery: Delivery, output: str, workspace: str
) -> list[Record]:
    message = delivery.message
    records = [attempt_record(message, attempt, workspace_id=workspace, output=output) for attempt in outcome.attempts]
    match outcome:
        case Delivered():
            records.append(billing_event(message, workspace_id=workspace, output=output))
            if delivery.client.stages:
                records.append(delivery.client.handed_over(message, delivery.document, workspace_id=workspace))
        case Suppressed(same_read=same_read):
            # A record that is read again was not committed, nor was its billing event; it may have become a dead
            # letter when it was read again. Usage counts a second event of a delivery once. Any other repeat came
            # from upstream: the first copy is or will be billed.
            if same_read or delivery.kind == "redelivery":
                records.append(billing_event(message, workspace_id=workspace, output=output))
            # The same holds for what was staged; a redelivery that the ledger knows by yet another position was staged
            # with that one.
            if same_read and delivery.client.stages:
                document = delivery.client.document(message)
                records.append(delivery.client.handed_over(message, document, workspace_id=workspace))
        case Undeliverable(reason=reason, error=error, attempts=attempts, due=due, retryable=retryable):
            records.append(
                dead_letter(
                    message,
                    stage=SYNDICATING.name,
                    reason=reason,
                    error=error,
                    output=output,
                    attempts=len(attempts),
                    due=due,
                    retryable=retryable,
                )
            )
    return records
