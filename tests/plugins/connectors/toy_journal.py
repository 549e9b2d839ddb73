from collections.abc import AsyncIterator
from typing import Any

from pydantic import Field

from backend.domain.capabilities import Batch, Connection, InputRecord, Options, ReadBatch, ReadStream
from backend.domain.connector import Connector, connectors


class JournalConnection(Connection):
    """A journal."""

    entries: list[str] = Field(default_factory=list, description="Its entries, each of which is JSON.")


class JournalFollowOptions(Options):
    """How a journal is followed."""

    tail: bool = Field(False, description="Whether former entries are left out.")


def _entries(connection: JournalConnection, after: Any) -> list[Batch]:
    entries = enumerate(connection.entries[after or 0 :], (after or 0) + 1)
    return [Batch([InputRecord(entry.encode(), identity=str(number))], number) for number, entry in entries]


class JournalReadBatch(ReadBatch[JournalConnection, Options]):
    """Reads the entries that were added since the last time."""

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        for batch in _entries(self.connection, breakpoint):
            yield batch


class JournalReadStream(ReadStream[JournalConnection, JournalFollowOptions]):
    """Follows the entries, and ends after the last one."""

    options_model = JournalFollowOptions
    keeps_position = True

    async def stream(self) -> AsyncIterator[Batch]:
        for batch in _entries(self.connection, self.position):
            yield batch

    async def acknowledge(self, position: Any) -> None:
        assert isinstance(position, int)


@connectors.register
class ToyJournal(Connector):
    """Can be read both in batches and as a stream."""

    type = "toy_journal"
    title = "Toy journal"
    connection_model = JournalConnection
    capabilities = (JournalReadBatch, JournalReadStream)
    example = {"entries": ['{"n": 1}']}

    @staticmethod
    async def check(connection: JournalConnection) -> str:
        return f"There are {len(connection.entries)} entries."
