"""Delivers messages of all pipelines to all their outputs."""

import asyncio

from backend.delivery.output import Output, Undeliverable
from backend.delivery.results import Record, dead_letter
from backend.domain.message import Message
from backend.domain.pipeline import RuntimeOutput
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, UnknownPipelineError
from backend.telemetry.recorder import Recorder

_STAGE = "syndicating"
_CONFIG_RETRY_SECONDS = 2.0


class DeliveryEngine:
    """Owns the outputs. One per task, on one event loop."""

    def __init__(self, config: ConfigClient, recorder: Recorder) -> None:
        self._config = config
        self._recorder = recorder
        self._outputs: dict[tuple[str, str], Output] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._waiting: set[str] = set()

    async def deliver(self, message: Message) -> list[Record]:
        """Delivers to every output of the message's version; returns what is to be recorded of it.

        Waits, however long, while the configuration cannot be had: the message is not its fault.
        """
        try:
            runtimes = await self._runtime_outputs(message)
        except UnknownPipelineError as error:
            return [dead_letter(message, stage=_STAGE, reason="unknown_pipeline", error=str(error))]
        if len(runtimes) == 1:
            return await self._deliver_to(runtimes[0], message)
        results = await asyncio.gather(*(self._deliver_to(runtime, message) for runtime in runtimes))
        return [record for records in results for record in records]

    async def close(self) -> None:
        await asyncio.gather(*(output.close() for output in self._outputs.values()), *self._retired)

    async def _runtime_outputs(self, message: Message) -> tuple[RuntimeOutput, ...]:
        while True:
            try:
                outputs = (await self._config.runtime(message.pipeline_id, message.version)).outputs
            except ConfigUnavailableError as error:
                self._note_waiting(message, error)
                await asyncio.sleep(_CONFIG_RETRY_SECONDS)
            else:
                self._waiting.discard(message.pipeline_id)
                return outputs

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

    async def _deliver_to(self, runtime: RuntimeOutput, message: Message) -> list[Record]:
        outcome = await self._output(message.pipeline_id, runtime).send(message)
        if isinstance(outcome, Undeliverable):
            return [
                dead_letter(
                    message,
                    stage=_STAGE,
                    reason=outcome.reason,
                    error=outcome.error,
                    output=runtime.name,
                    attempts=outcome.attempts,
                )
            ]
        return []

    def _output(self, pipeline_id: str, runtime: RuntimeOutput) -> Output:
        key = (pipeline_id, runtime.name)
        output = self._outputs.get(key)
        if output is None or output.runtime is not runtime:
            if output is not None:
                if output.runtime == runtime:
                    output.runtime = runtime
                    return output
                self._retire(output)
            output = self._outputs[key] = Output(pipeline_id, runtime, self._recorder)
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
