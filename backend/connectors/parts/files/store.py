"""What the connectors of files need of a store: files listed and read by ranges, and written in parts."""

import asyncio
import contextlib
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator

from backend.connectors.parts.field_error import field_of
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError
from backend.domain.reasons import Reason

log = logging.getLogger(__name__)

CALL_SECONDS = 30.0
"""A call to a store that takes longer has failed."""
SENT_SECONDS = 100.0
"""The same for one that sends a part, or puts parts together."""
UNFINISHED = ".headrace-unfinished"
"""Ends the names of files, and begins those of objects, that are written where a store has no multipart upload."""

AnswerT = TypeVar("AnswerT")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNFINISHED_FILE = re.compile(r"\.[0-9a-f]{32}" + re.escape(UNFINISHED))
UPLOAD_NUMBER = re.compile(r"[0-9a-f]{32}")
"""Names an upload in the folder of unfinished ones."""


class StoredFile(NamedTuple):
    """``name`` has slashes between folders and its file. ``time`` is that of its last change, in microseconds since
    1970. ``version`` differs between two contents of the same name."""

    time: int
    name: str
    version: str
    size: int


ReadRange = Callable[[int, int], Awaitable[bytes]]
"""Reads so many bytes from that offset on; fewer only at the end of the file."""


def changed(name: str) -> DeliveryError:
    """The file is not the one any more that was listed."""
    text = f"File {name} was changed or removed while it was read; its new version is read next time."
    return DeliveryError("file_changed", text, retryable=True)


def upload_gone(name: str) -> DeliveryError:
    """The upload was aborted, or removed by the store."""
    text = f"The upload of {name} does not exist any more: the file has to be written again."
    return DeliveryError("upload_gone", text, retryable=False)


class FileStore(ABC):
    """One connection to a store. Its methods raise DeliveryError; ``limited`` gives them their time limit."""

    @abstractmethod
    def __init__(self, connection: Any) -> None: ...

    @abstractmethod
    async def open(self) -> None:
        """Called once before the first use."""

    @abstractmethod
    async def close(self) -> None:
        """Called once, also after a failed ``open``."""

    @abstractmethod
    def files(self, prefix: str) -> AsyncGenerator[StoredFile, None]:
        """The files whose names begin with the prefix, in any order."""

    async def listed(self, prefix: str) -> AsyncGenerator[StoredFile, None]:
        """``files``, with the time limit for each answer."""
        async with contextlib.aclosing(each_limited(self.files(prefix))) as files:
            async for file in files:
                yield file

    @abstractmethod
    def opened(self, file: StoredFile) -> contextlib.AbstractAsyncContextManager[ReadRange]:
        """That version of the file; reading raises ``changed`` when it does not exist any more."""

    @abstractmethod
    async def begin(self, name: str) -> dict[str, Any]:
        """Begins an upload; the JSON that the calls below need."""

    @abstractmethod
    async def write(self, upload: dict[str, Any], number: int, part: bytes, offset: int) -> None:
        """Writes part ``number``, counted from 1, which begins at the offset. Raises ``upload_gone``."""

    @abstractmethod
    async def commit(self, upload: dict[str, Any]) -> None:
        """Makes the file visible. May be repeated. Raises ``upload_gone``."""

    @abstractmethod
    async def abort(self, upload: dict[str, Any]) -> None:
        """Removes what was written, but no file that was committed. May be repeated."""

    @abstractmethod
    def uploads(self, prefix: str, is_ours: Callable[[str], bool]) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """Uploads that were neither committed nor aborted, each with the time at which it was begun or last written
        to, in microseconds since 1970, and as much of its JSON as identifies it and ``abort`` needs. The prefix ends
        with a slash or is empty. It and ``is_ours`` choose by the names of files where uploads of other programs
        look like ours; elsewhere there may be more than those with the prefix."""


@contextlib.asynccontextmanager
async def limited(*, sends: bool = False) -> AsyncIterator[None]:
    """The time limit of one call to a store."""
    seconds = SENT_SECONDS if sends else CALL_SECONDS
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        text = f"The store does not answer within {seconds:g} seconds."
        raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None


async def each_limited(answers: AsyncGenerator[AnswerT, None]) -> AsyncGenerator[AnswerT, None]:
    """The same, with the time limit for each."""
    async with contextlib.aclosing(answers):
        while True:
            async with limited():
                try:
                    answer = await anext(answers)
                except StopAsyncIteration:
                    return
            yield answer


@contextlib.asynccontextmanager
async def opened_store(store: FileStore) -> AsyncIterator[FileStore]:
    """The store, open."""
    try:
        async with limited():
            await store.open()
        yield store
    finally:
        await store.close()


async def check_store(store: FileStore, address_field: str) -> str:
    """Lists files; a sentence for a connection test. Raises CheckFailedError."""
    try:
        async with opened_store(store), contextlib.aclosing(store.listed("")) as files:
            async for file in files:
                return f"Connected; there are files, such as {file.name}."
    except DeliveryError as error:
        raise CheckFailedError(str(error), field=field_of(error) or address_field) from None
    return "Connected; there are no files yet."


async def read_up_to(size: int, read: Callable[[int], Awaitable[bytes]]) -> bytes:
    """What the answer holds, but no more than was asked for, whatever the server sends."""
    parts = bytearray()
    while len(parts) < size and (part := await read(size - len(parts))):
        parts += part
    return bytes(parts)


def checked_name(name: str) -> str:
    """The name of a file or folder in a store. Raises ValueError."""
    if _CONTROL.search(name) or not name.isprintable():
        raise ValueError("The name has a character that cannot be printed.")
    if len(name.encode()) > 900:
        raise ValueError("The name is longer than 900 bytes.")
    if name and not all(part and part not in (".", "..") for part in name.split("/")):
        raise ValueError(f"{name!r} is no path of folders: write it like exports/orders, without . and .. in it.")
    return name


Folder = Annotated[str, AfterValidator(checked_name)]


def is_text(name: str) -> bool:
    """Whether a name that a server sends is UTF-8; others cannot be kept in a breakpoint, and are left out."""
    try:
        name.encode()
    except UnicodeEncodeError:
        log.warning("A file is left out since its name is not UTF-8: %s", name.encode(errors="backslashreplace"))
        return False
    return True


async def unfinished_files(store: FileStore, folder: str) -> AsyncGenerator[StoredFile, None]:
    """Where unfinished files are named so: those in the folder and below, and in the folders that it is in, which have
    them while it does not exist yet."""
    parts = folder.rstrip("/").split("/") if folder else []
    above = [joined("/".join(parts[:depth]), ".") for depth in range(len(parts))]
    for prefix in [*above, folder]:
        async with contextlib.aclosing(store.files(prefix)) as files:
            async for file in files:
                if _UNFINISHED_FILE.fullmatch(file.name.rpartition("/")[2]):
                    yield file


def joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
