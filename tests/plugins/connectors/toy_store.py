import uuid
from pathlib import Path
from typing import Any

from pydantic import Field

from backend.domain.capabilities import Connection, DeliveryError, Export, Options
from backend.domain.connector import CheckFailedError, Connector, connectors


class StoreConnection(Connection):
    """A folder to store files in."""

    folder: str = Field(description="Folder of the files.")


class StoreOptions(Options):
    """Where in the folder."""

    prefix: str = Field("", pattern=r"^[\w/-]*$", description="Folder within the folder.")


class StoreExport(Export[StoreConnection, StoreOptions]):
    """Writes parts beside each other, and joins them when the file is committed. A folder with a file named
    "down" fails, and one named "refuse" refuses."""

    options_model = StoreOptions

    def _path(self, *parts: str) -> Path:
        return Path(self.connection.folder, *parts)

    def _check(self) -> None:
        if self._path("down").exists():
            raise DeliveryError("connection", "The store is down.", retryable=True)
        if self._path("refuse").exists():
            raise DeliveryError("forbidden", "The store refuses the file.", retryable=False)

    async def begin(self, path: str) -> Any:
        self._check()
        upload = uuid.uuid4().hex
        self._path(".uploads", upload).mkdir(parents=True)
        return {"upload": upload, "path": path}

    async def write(self, upload: Any, number: int, part: bytes) -> None:
        self._check()
        self._path(".uploads", upload["upload"], f"{number:06d}").write_bytes(part)

    async def commit(self, upload: Any) -> None:
        self._check()
        target = self._path(self.options.prefix, upload["path"])
        folder = self._path(".uploads", upload["upload"])
        if not folder.exists():  # committed before
            if not target.exists():
                raise DeliveryError("answer", "There is no such upload.", retryable=False)
            return
        joined = folder / "joined"
        with joined.open("wb") as file:
            for part in sorted(folder.glob("[0-9]*")):
                file.write(part.read_bytes())
        target.parent.mkdir(parents=True, exist_ok=True)
        joined.replace(target)
        self._remove(folder)

    async def abort(self, upload: Any) -> None:
        self._check()
        folder = self._path(".uploads", upload["upload"])
        if folder.exists():
            self._remove(folder)

    def _remove(self, folder: Path) -> None:
        for part in folder.iterdir():
            part.unlink()
        folder.rmdir()


@connectors.register
class ToyStore(Connector):
    """Stores files in a folder."""

    type = "toy_store"
    title = "Toy store"
    connection_model = StoreConnection
    capabilities = (StoreExport,)
    example = {"folder": "/tmp"}

    @staticmethod
    async def check(connection: StoreConnection) -> str:
        if not Path(connection.folder).is_dir():
            raise CheckFailedError("There is no such folder.", field="folder")
        return "The folder exists."
