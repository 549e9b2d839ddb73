import asyncio
import contextlib
import errno
import itertools
import os
import stat
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from backend.connectors.parts.field_error import FieldError
from backend.connectors.parts.files.exporting import ExportFiles
from backend.connectors.parts.files.reading import ReadAppearingOptions, ReadFiles
from backend.connectors.parts.files.store import (
    UNFINISHED,
    FileStore,
    Folder,
    ReadRange,
    StoredFile,
    changed,
    check_store,
    is_text,
    joined,
    unfinished_files,
    upload_gone,
)
from backend.domain.capabilities import Connection, DeliveryError
from backend.domain.connector import Connector, connectors
from backend.domain.reasons import Reason
from backend.settings import platform_settings

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would block
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED_AT_ONCE = 1000


class LocalFilesConnection(Connection):
    """A folder on the machines that run Headrace."""

    folder: Folder = Field(
        "",
        description="Folder below the one that the operator allows with HEADRACE_FILES_ROOT; without it, that one. It "
        "has to be the same on every machine, for example mounted from a file server.",
        examples=["exchange/erp"],
    )


class _LocalStore(FileStore):
    """Every path is walked from the root, folder by folder, and no symbolic link is followed: nothing outside of the
    root can be reached, whatever is put into it meanwhile."""

    def __init__(self, connection: LocalFilesConnection) -> None:
        self._folder = connection.folder
        self._root = -1

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        root = platform_settings().files_root
        if not root:
            text = (
                "This installation allows no local files: an operator can set HEADRACE_FILES_ROOT to a folder that may "
                "be used."
            )
            raise FieldError.at("folder", Reason.FORBIDDEN, text, retryable=False)
        with _as_delivery_errors(root):
            top = os.open(Path(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _as_delivery_errors(self._folder):
                self._root = _walked(top, self._folder)
        finally:
            os.close(top)

    async def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    async def files(self, prefix: str) -> AsyncGenerator[StoredFile, None]:
        names = self._files(prefix)
        try:
            while page := await asyncio.to_thread(lambda: list(itertools.islice(names, _LISTED_AT_ONCE))):
                for file in page:
                    yield file
        finally:
            with contextlib.suppress(ValueError):  # the thread still runs
                names.close()

    def _files(self, prefix: str) -> Generator[StoredFile, None, None]:
        folders = [prefix.rpartition("/")[0]]
        while folders:
            name = folders.pop()
            for entry_name, status in self._entries(name):
                full = joined(name, entry_name)
                if not full.startswith(prefix) or not is_text(full):
                    continue
                if stat.S_ISDIR(status.st_mode):
                    folders.append(full)
                elif stat.S_ISREG(status.st_mode):
                    yield StoredFile(status.st_mtime_ns // 1000, full, _version(status), status.st_size)

    def _entries(self, name: str) -> Iterator[tuple[str, os.stat_result]]:
        """Of one folder; none when it does not exist."""
        with (
            _as_delivery_errors(name),
            contextlib.suppress(FileNotFoundError),
            self._opened_folder(name) as folder,
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                yield entry.name, entry.stat(follow_symlinks=False)

    @asynccontextmanager
    async def opened(self, file: StoredFile) -> AsyncIterator[ReadRange]:
        number = await asyncio.to_thread(self._open_file, file.name)
        try:
            yield lambda offset, size: asyncio.to_thread(_read, number, file, offset, size)
        finally:
            os.close(number)

    def _open_file(self, path: str) -> int:
        folder, name = _split(path)
        with _as_delivery_errors(path):
            try:
                with self._opened_folder(folder) as parent:
                    return os.open(name, _READ, dir_fd=parent)
            except FileNotFoundError:
                raise changed(path) from None

    async def begin(self, name: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._begin, name)

    def _begin(self, name: str) -> dict[str, Any]:
        """The unfinished file lies in a folder that exists already, so that nothing is left when it is removed."""
        folder = _split(name)[0]
        unfinished = f".{uuid.uuid4().hex}{UNFINISHED}"
        with _as_delivery_errors(name):
            while True:
                try:
                    with self._opened_folder(folder) as parent:
                        os.close(os.open(unfinished, _NEW, 0o644, dir_fd=parent))
                except FileNotFoundError:
                    if not folder:
                        raise
                    folder = _split(folder)[0]
                else:
                    return {"name": name, "folder": folder, "unfinished": unfinished}

    async def write(self, upload: dict[str, Any], number: int, part: bytes, offset: int) -> None:
        await asyncio.to_thread(self._write, upload, part, offset)

    def _write(self, upload: dict[str, Any], part: bytes, offset: int) -> None:
        with _as_delivery_errors(upload["name"]), self._opened_upload(upload) as file:
            view = memoryview(part)
            while view:
                written = os.pwrite(file, view, offset)
                view, offset = view[written:], offset + written

    @contextmanager
    def _opened_upload(self, upload: dict[str, Any]) -> Iterator[int]:
        with self._opened_folder(upload["folder"]) as folder:
            try:
                file = os.open(upload["unfinished"], os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            except FileNotFoundError:
                raise upload_gone(upload["name"]) from None
        try:
            yield file
        finally:
            os.close(file)

    async def commit(self, upload: dict[str, Any]) -> None:
        await asyncio.to_thread(self._commit, upload)

    def _commit(self, upload: dict[str, Any]) -> None:
        folder, name = _split(upload["name"])
        with _as_delivery_errors(upload["name"]):
            try:
                with self._opened_upload(upload) as file:
                    os.fsync(file)
            except DeliveryError:
                if self._exists(folder, name):
                    return  # it was committed before
                raise
            with self._opened_folder(upload["folder"]) as source, self._opened_folder(folder, make=True) as target:
                os.rename(upload["unfinished"], name, src_dir_fd=source, dst_dir_fd=target)
                os.fsync(target)

    def _exists(self, folder: str, name: str) -> bool:
        with contextlib.suppress(FileNotFoundError), self._opened_folder(folder) as parent:
            return stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        return False

    async def abort(self, upload: dict[str, Any]) -> None:
        await asyncio.to_thread(self._abort, upload)

    def _abort(self, upload: dict[str, Any]) -> None:
        with (
            _as_delivery_errors(upload["unfinished"]),
            contextlib.suppress(FileNotFoundError),
            self._opened_folder(upload["folder"]) as folder,
        ):
            os.unlink(upload["unfinished"], dir_fd=folder)

    async def uploads(
        self, prefix: str, is_ours: Callable[[str], bool]
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        async for file in unfinished_files(self, prefix):
            folder, name = _split(file.name)
            yield file.time, {"folder": folder, "unfinished": name}

    @contextmanager
    def _opened_folder(self, name: str, *, make: bool = False) -> Iterator[int]:
        folder = _walked(self._root, name, make=make)
        try:
            yield folder
        finally:
            os.close(folder)


def _walked(top: int, path: str, *, make: bool = False) -> int:
    """The folder at that path, opened step by step."""
    folder = os.dup(top)
    for step in path.split("/") if path else ():
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, dir_fd=folder)
            inner = os.open(step, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _read(number: int, file: StoredFile, offset: int, size: int) -> bytes:
    with _as_delivery_errors(file.name):
        data = os.pread(number, size, offset)
        if _version(os.fstat(number)) != file.version:
            raise changed(file.name)
        return data


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


@contextmanager
def _as_delivery_errors(name: str) -> Iterator[None]:
    shown = name or "."
    try:
        yield
    except FileNotFoundError:
        raise FieldError.at("folder", Reason.CONFIGURATION, f"There is no folder {shown}.") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            text = f"{shown} is no folder, or leads through a symbolic link, which is not followed."
            raise FieldError.at("folder", Reason.FORBIDDEN, text, retryable=False) from None
        text = f"{shown} cannot be used: {error.strerror}."
        reason = Reason.CONFIGURATION if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else Reason.CONNECTION
        raise FieldError.at("folder", reason, text) from None


class LocalReadFiles(ReadFiles[LocalFilesConnection]):
    __doc__ = ReadFiles.__doc__

    options_model = ReadAppearingOptions
    store_type = _LocalStore


class LocalExport(ExportFiles[LocalFilesConnection]):
    """Writes files that appear when they are complete: they are written under another name and then renamed. A file
    of the same name is replaced."""

    store_type = _LocalStore


@connectors.register
class LocalFiles(Connector):
    """Reads and writes files in a folder of the machines that run Headrace, where the operator allows it."""

    type = "local_files"
    title = "Local files"
    connection_model = LocalFilesConnection
    capabilities = (LocalReadFiles, LocalExport)
    requires = ("pyarrow", "ijson", "fastavro")
    example = {"folder": "exchange/erp"}

    @staticmethod
    async def check(connection: LocalFilesConnection) -> str:
        """Opens the folder and lists a file of it."""
        return await check_store(_LocalStore(connection), "folder")
