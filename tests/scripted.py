"""A connector whose receivers do what a test has written down, message by message."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from pydantic import Field

from backend.domain.capabilities import (
    BatchRefusedError,
    Connection,
    Deliver,
    DeliverBatch,
    DeliveryError,
    Options,
    Receipt,
)
from backend.domain.connector import Connector, connectors
from backend.domain.message import Message

SECONDS_OF_A_HANG = 0.05
SECONDS_OF_WORK = 0.005
SECONDS_OF_PEACE = 600
"""For which a receiver asks."""


class ScriptConnection(Connection):
    """A receiver whose answers follow a script."""

    name: str = Field(description="Name of the receiver.")
    atomic: bool = Field(False, description="Whether it takes all of a batch or nothing.")


class Receiver:
    """What a scripted receiver does and has received."""

    def __init__(self) -> None:
        self.script: dict[bytes, list[str]] = {}
        """By a message's body: the outcomes of its attempts, the last of which is repeated; without one it succeeds."""
        self.received: list[bytes] = []
        self.attempted: list[bytes] = []
        self.seconds_of_a_hang = SECONDS_OF_A_HANG
        self.failures = 0
        """Attempts that failed, whatever for."""
        self.clock: Callable[[], float] = time.time
        self.asked: list[float] = []
        """When it asked to be left alone."""

    def next_outcome(self, body: bytes) -> str:
        self.attempted.append(body)
        script = self.script.get(body, ["ok"])
        outcome = script.pop(0) if len(script) > 1 else script[0]
        self.failures += outcome not in ("ok", "work")
        if outcome == "ask":
            self.asked.append(self.clock())
        return outcome


RECEIVERS: dict[str, Receiver] = defaultdict(Receiver)


class ScriptDeliver(Deliver[ScriptConnection, Options]):
    """Does what the receiver's script says."""

    def target(self) -> str:
        return self.connection.name

    async def deliver(self, message: Message) -> Receipt:
        receiver = RECEIVERS[self.connection.name]
        outcome = receiver.next_outcome(message.body)
        await asyncio.sleep(0)
        match outcome:
            case "fail" | "refuse" | "unprintable" | "ask":
                raise _error(outcome)
            case "explode":
                raise KeyError(message.id)
            case "nothing":
                return None  # type: ignore[return-value]
            case "work":
                busy_until = time.perf_counter() + SECONDS_OF_WORK
                while time.perf_counter() < busy_until:
                    pass
            case "hang":
                await asyncio.sleep(receiver.seconds_of_a_hang)
                raise _error(outcome)
        receiver.received.append(message.body)
        return Receipt("written")


class ScriptDeliverBatch(DeliverBatch[ScriptConnection, Options]):
    """The same for batches: each message has its own result, unless the receiver takes all of them or nothing."""

    @property
    def atomic(self) -> bool:
        return self.connection.atomic

    def target(self) -> str:
        return self.connection.name

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        receiver = RECEIVERS[self.connection.name]
        outcomes = [receiver.next_outcome(message.body) for message in messages]
        await asyncio.sleep(receiver.seconds_of_a_hang if "hang" in outcomes else 0)
        if "explode" in outcomes:
            raise KeyError(messages[0].id)
        if "nothing" in outcomes:
            return [None for _ in messages]  # type: ignore[misc]
        errors = [_error(outcome) for outcome in outcomes if outcome != "ok"]
        if self.atomic and errors:
            if all(outcome in ("ok", "refuse") for outcome in outcomes):
                raise BatchRefusedError("http_422", "Not this batch.", retryable=False, about_message=True)
            raise next(error for error in errors if not error.about_message)
        receiver.received += [m.body for m, outcome in zip(messages, outcomes, strict=True) if outcome == "ok"]
        return [Receipt("written") if outcome == "ok" else _error(outcome) for outcome in outcomes]


def _error(outcome: str) -> DeliveryError:
    match outcome:
        case "fail":
            return DeliveryError("http_503", "Not now.", retryable=True)
        case "ask":
            return DeliveryError("http_429", "Not now.", retryable=True, retry_after=SECONDS_OF_PEACE)
        case "hang":
            return DeliveryError("timeout", "No answer.", retryable=True)
        case "refuse":
            return DeliveryError("http_422", "Not this one.", retryable=False, about_message=True)
        case _:
            return DeliveryError("refused", "Not encodable: \udcff", retryable=False)


@connectors.register
class ToyScript(Connector):
    """Answers as a test has written it down."""

    type = "toy_script"
    title = "Toy script"
    connection_model = ScriptConnection
    capabilities = (ScriptDeliver, ScriptDeliverBatch)
    example = {"name": "a"}

    @staticmethod
    async def check(connection: ScriptConnection) -> str:
        return "It is ready."
