"""Files that are written to a store."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from backend.connectors.parts.files.store import FileStore, Folder, checked_name, each_limited, joined, limited
from backend.domain.capabilities import Connection, DeliveryError, Export, Options
from backend.domain.reasons import Reason

ConnectionT = TypeVar("ConnectionT", bound=Connection)


class ExportFilesOptions(Options):
    """Where files are written."""

    folder: Folder = Field("", description="Folder of the files; it is created if needed.", examples=["exports/orders"])


class ExportFiles(Export[ConnectionT, ExportFilesOptions]):
    options_model = ExportFilesOptions

    store_type: ClassVar[type[FileStore]]

    async def open(self) -> None:
        self._store = self.store_type(self.connection)
        async with limited():
            await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    async def begin(self, path: str) -> Any:
        try:
            name = checked_name(joined(self.options.folder, path))
        except ValueError as error:
            raise DeliveryError(Reason.CONFIGURATION, str(error), retryable=False) from None
        async with limited():
            return await self._store.begin(name)

    async def write(self, upload: Any, number: int, part: bytes) -> None:
        async with limited(sends=True):
            await self._store.write(upload, number, part, (number - 1) * self.part_bytes)

    async def commit(self, upload: Any) -> None:
        async with limited(sends=True):
            await self._store.commit(upload)

    async def abort(self, upload: Any) -> None:
        async with limited():
            await self._store.abort(upload)

    async def unfinished(self, prefix: str, is_ours: Callable[[str], bool], seconds: float) -> AsyncIterator[Any]:
        folder = joined(self.options.folder, "") if self.options.folder else ""
        latest = (time.time() - seconds) * 1_000_000
        found = self._store.uploads(folder + prefix, lambda name: is_ours(name.removeprefix(folder)))
        async with contextlib.aclosing(each_limited(found)) as uploads:
            async for written, upload in uploads:
                if written < latest:
                    yield upload
