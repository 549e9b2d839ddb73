import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import Field

from backend.domain.capabilities import (
    Batch,
    Connection,
    DeliveryError,
    InputRecord,
    Options,
    ReadBatch,
    Register,
    RegistrationState,
)
from backend.domain.connector import Connector, connectors


class ShelfConnection(Connection):
    """A folder."""

    folder: str = Field(description="Folder of the shelf.")


class ShelfOptions(Options):
    """A label on the shelf."""

    label: str = Field(description="What the label says.")


class ShelfRegister(Register[ShelfConnection, ShelfOptions]):
    """Puts a file with the label into the folder. A folder that does not exist does not answer; the label "forbidden"
    is refused."""

    options_model = ShelfOptions

    async def register(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        if not Path(self.connection.folder).is_dir():
            raise DeliveryError("connection", "There is no such shelf.", retryable=True)
        if self.options.label == "forbidden":
            raise DeliveryError("refused", "This label is forbidden.", retryable=False, option="label")
        self._file(name).write_text(json.dumps({"label": self.options.label, "before": made}))
        return {"file": str(self._file(name))}

    async def unregister(self, name: str, made: dict[str, Any]) -> None:
        if not Path(self.connection.folder).is_dir():
            raise DeliveryError("connection", "There is no such shelf.", retryable=True)
        self._file(name).unlink(missing_ok=True)

    async def state(self, name: str, made: dict[str, Any]) -> RegistrationState:
        size = Path(made["file"]).stat().st_size
        return RegistrationState("The shelf bends." if size > 1000 else "", {"bytes": size})

    def _file(self, name: str) -> Path:
        return Path(self.connection.folder) / f"{name}.json"


class ShelfReadBatch(ReadBatch[ShelfConnection, ShelfOptions]):
    """Reads the label once."""

    options_model = ShelfOptions

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        if breakpoint is None:
            yield Batch([InputRecord(Path(self.registered["file"]).read_bytes())], 1)


@connectors.register
class ToyShelf(Connector):
    """Labels on a shelf."""

    type = "toy_shelf"
    title = "Toy shelf"
    connection_model = ShelfConnection
    capabilities = (ShelfReadBatch, ShelfRegister)
    example = {"folder": "/tmp"}

    @staticmethod
    async def check(connection: ShelfConnection) -> str:
        return "The shelf is not checked."
