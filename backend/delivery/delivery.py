"""A message on its way to one output."""

import asyncio
from dataclasses import dataclass, field

from backend.delivery.client import DeliveryClient
from backend.delivery.commits import COMMITTED, Commit
from backend.delivery.order import Turn
from backend.delivery.shares import WindowSlot
from backend.domain.capabilities import CollectedDocument
from backend.domain.message import Message
from backend.domain.records import Attempt
from backend.resilience.gate import Kind


@dataclass(eq=False, slots=True)
class Delivery:
    """What an output has accepted, and will send once. ``attempts`` are those that failed, and at last a success."""

    message: Message
    position: str
    kind: Kind
    client: DeliveryClient
    turn: Turn
    slot: WindowSlot | None
    room: asyncio.Future[bool] | None
    """None once the output has room for it."""
    read_at: tuple[str, ...] = ()
    """Where it was read before, if it is redelivered."""
    commit: Commit = COMMITTED
    """That of the record it was read from."""
    document: CollectedDocument | None = None
    """What it is in the output's collection, once that is known."""
    attempts: list[Attempt] = field(default_factory=list)
