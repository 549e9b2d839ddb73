"""What a stage is to the lane task that runs it (lane_task.py)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from backend.delivery.commits import COMMITTED, Commit
from backend.domain.message import Message
from backend.domain.records import Record
from backend.domain.stages import Stage
from backend.manager_api.client import ConfigClient
from backend.settings import Settings
from backend.telemetry.recorder import Recorder


class Position(NamedTuple):
    """The record that a message was read from, and its commit. Partition and offset stay the same when the record is
    read again; a copy that was produced again has others."""

    partition: int
    offset: int
    commit: Commit = COMMITTED

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"


class Handler(ABC):
    """A stage's processing of messages. Runs on the lane's event loop."""

    @abstractmethod
    async def handle(self, message: Message, position: Position) -> list[Record]:
        """The records that follow from the message; they are committed with its offset."""

    def handle_now(self, message: Message, position: Position) -> list[Record] | None:
        """The same without waiting, since a task for each message costs as much as some steps do. None when the
        message needs ``handle``."""
        return None

    def assigned(self, partition: int) -> None:  # noqa: B027  (few stages need it)
        """The partition was assigned to this task, possibly after others have owned it."""

    def make_room(self) -> None:  # noqa: B027
        """The window fills; called every 50 ms meanwhile, so that no message waits long behind those of others."""

    def relieve(self) -> None:  # noqa: B027
        """The window has been full for a second: messages that can be retried later should make room."""

    def flush(self) -> None:  # noqa: B027
        """The task stops or loses partitions: incomplete batches should be sent without waiting further."""

    async def close(self) -> None:  # noqa: B027
        """Releases all resources."""


@dataclass(frozen=True)
class LaneServices:
    """The services that a handler may use. ``slots`` is the number of tasks that share the stage; ``committed``
    returns the offset before which everything of a partition is committed."""

    config: ConfigClient
    recorder: Recorder
    environment: Settings
    slots: int
    committed: Callable[[int], int]


HandlerFactory = Callable[[LaneServices], Handler]


@dataclass(frozen=True)
class Lane:
    """One lane: whose topic is read, by which handler, committed how often.

    ``commit_seconds`` is the least time between two transactions: 0 for the lowest latency,
    more where cost matters more. ``window`` bounds the messages in flight per
    task and ``window_bytes`` their size. ``memory_is_bounded`` is whether the task may allocate no more than
    ``HEADRACE_LANE_MEMORY_BYTES``.
    """

    stage: Stage
    handler: HandlerFactory
    commit_seconds: float
    window: int = 2000
    window_bytes: int = 64 * 1024 * 1024
    memory_is_bounded: bool = True
