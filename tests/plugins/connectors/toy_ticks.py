import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic import Field

from backend.domain.capabilities import Batch, Connection, InputRecord, Options, ReadStream
from backend.domain.connector import Connector, connectors


class TicksConnection(Connection):
    """A clock."""

    seconds: float = Field(1.0, gt=0, description="Seconds between two ticks.")


class TicksReadStream(ReadStream[TicksConnection, Options]):
    """A message for each tick."""

    async def stream(self) -> AsyncIterator[Batch]:
        number = 0
        while True:
            yield Batch([InputRecord(b'{"tick": %d}' % number)], number)
            number += 1
            await asyncio.sleep(self.connection.seconds)

    async def acknowledge(self, position: Any) -> None:
        assert isinstance(position, int)


@connectors.register
class ToyTicks(Connector):
    """Ticks like a clock."""

    type = "toy_ticks"
    title = "Toy ticks"
    connection_model = TicksConnection
    capabilities = (TicksReadStream,)
    example = {"seconds": 1.0}

    @staticmethod
    async def check(connection: TicksConnection) -> str:
        return "It ticks."
