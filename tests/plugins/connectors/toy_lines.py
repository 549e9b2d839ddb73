from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr

from backend.domain.capabilities import Batch, Connection, DeliveryError, InputRecord, Options, ReadBatch
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.model import SAME_SOURCE


class LinesConnection(Connection):
    """A folder of text files."""

    folder: str = Field(description="Folder of the files.")
    passwords: list[SecretStr] = Field(default_factory=list, description="Passwords that are never used.")


class LinesOptions(Options):
    """The lines of one file."""

    file: str = Field(pattern=r"^[\w.-]+$", description="File to read, of which each line is a message.")
    at_a_time: int = Field(2, ge=1, description="Lines that are read at a time.", json_schema_extra=SAME_SOURCE)


class LinesReadBatch(ReadBatch[LinesConnection, LinesOptions]):
    """Reads the lines that were added since the last time."""

    options_model = LinesOptions

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        path = Path(self.connection.folder) / self.options.file
        if not path.exists():
            raise DeliveryError("missing", f"There is no file {self.options.file}.", retryable=True)
        lines = path.read_bytes().splitlines()
        start = breakpoint or 0
        while start < len(lines):
            end = min(start + self.options.at_a_time, len(lines))
            records = [
                InputRecord(lines[number], identity=f"{self.options.file}:{number}") for number in range(start, end)
            ]
            yield Batch(records, end)
            start = end


@connectors.register
class ToyLines(Connector):
    """Reads the lines of text files."""

    type = "toy_lines"
    title = "Toy lines"
    connection_model = LinesConnection
    capabilities = (LinesReadBatch,)
    example = {"folder": "/tmp", "passwords": ["pass-of-lines"]}

    @staticmethod
    async def check(connection: LinesConnection) -> str:
        if not Path(connection.folder).is_dir():
            raise CheckFailedError("There is no such folder.", field="folder")
        return "The folder exists."
