"""The tasks that read inputs as jobs that name the steps that are done, so that a test can kill them after each."""

from collections.abc import Awaitable, Callable
from typing import Any

from backend.domain.capabilities import ReadStream
from backend.domain.connector import connectors
from backend.domain.stages import INPUT_BATCHING, INPUT_STREAMING
from backend.manager_api.leases import LeaseClient, Progress
from backend.settings import Settings
from spark_jobs.streaming import input_lane, input_reader
from spark_jobs.streaming.input_reader import InputReader
from spark_jobs.streaming.stop_channel import Address

STAGES = {stage.name: stage for stage in (INPUT_BATCHING, INPUT_STREAMING)}

At = Callable[[str], None]


class InputJob:
    """The task of one stage, whose loops turn faster than usual."""

    def __init__(self, stage: str) -> None:
        self._stage = STAGES[stage]
        input_lane._CLAIM_SECONDS = input_lane._RENEW_SECONDS = input_reader._REOPEN_SECONDS = 0.2

    def run_slot(self, environment: Settings, stop_address: Address, slot: int, at: At) -> None:
        """``claimed`` is a lease; ``sent`` is a batch, which Kafka has ``acknowledged`` and which is ``returned`` to a
        stream's source; ``recorded`` is a breakpoint of a stream by the manager; ``completed`` is all that there is to
        read, at the manager."""
        _then(LeaseClient, "claim", lambda leases: leases and at("claimed"))
        _then(input_reader, "_open", lambda _: at("opened"))
        _then(InputReader, "_send", lambda _: at("sent"))
        _then(InputReader, "_acknowledged", lambda _: at("acknowledged"))
        _then(LeaseClient, "complete", lambda _: at("completed"))
        for connector in connectors:
            for capability in connector.capabilities:
                if issubclass(capability, ReadStream):
                    _then(capability, "acknowledge", lambda _: at("returned"))
        record = InputReader.record

        def recorded(reader: InputReader, progress: Progress) -> None:
            record(reader, progress)
            if progress.breakpoint:
                at("recorded")

        InputReader.record = recorded  # type: ignore[method-assign]
        input_lane.run_input_slot(self._stage, environment, stop_address, slot)


def _then(owner: Any, name: str, act: Callable[[Any], Any]) -> None:
    """Acts on what the function has returned, before its caller does."""
    function: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def call(*arguments: Any, **named: Any) -> Any:
        result = await function(*arguments, **named)
        act(result)
        return result

    setattr(owner, name, call)
