import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr

from backend.connectors.parts.field_error import FieldError
from backend.connectors.parts.files.exporting import ExportFiles
from backend.connectors.parts.files.reading import ReadAppearingOptions, ReadFiles
from backend.connectors.parts.files.store import (
    UNFINISHED,
    FileStore,
    ReadRange,
    StoredFile,
    changed,
    check_store,
    checked_name,
    is_text,
    joined,
    unfinished_files,
    upload_gone,
)
from backend.connectors.parts.ssh import HostKey, PrivateKey, SshError, connected
from backend.domain.capabilities import Connection, DeliveryError
from backend.domain.connector import Connector, connectors
from backend.domain.model import StrictModel
from backend.domain.reasons import Reason
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_SENT_BYTES = 1024 * 1024
"""The library has all that it is given in memory at the same time, encrypted as well."""


def _checked_folder(folder: str) -> str:
    checked_name(folder.removeprefix("/"))
    return folder


class SftpPassword(StrictModel):
    """A password."""

    type: Literal["password"] = "password"
    password: SecretStr = Field(min_length=1, description="Password.")


class SftpKey(StrictModel):
    """A private key."""

    type: Literal["private_key"] = "private_key"
    private_key: PrivateKey


class SftpConnection(Connection):
    """A folder of an SFTP server."""

    host: str = Field(min_length=1, description="Host of the SSH server.", examples=["sftp.example.com"])
    port: int = Field(22, ge=1, le=65_535, description="Port of the SSH server.")
    user: str = Field(min_length=1, description="User name at the SSH server.", examples=["headrace"])
    access: Annotated[SftpPassword | SftpKey, Field(discriminator="type")] = Field(
        description="How Headrace identifies itself."
    )
    host_key: HostKey
    folder: Annotated[str, AfterValidator(_checked_folder)] = Field(
        "",
        description="Folder that all names are below; without a slash in front, it is below the folder of the login.",
        examples=["/upload"],
    )

    def hosts(self) -> dict[str, list[str]]:
        return {"host": [self.host]}


class SftpStore(FileStore):
    """Files of an SFTP server, below the connection's folder."""

    def __init__(self, connection: SftpConnection) -> None:
        self._connection = connection
        self._ssh: Any = None

    async def open(self) -> None:
        connection, access = self._connection, self._connection.access
        try:
            address = await asyncio.to_thread(outbound_policy().address_of, connection.host)
            self._ssh = await connected(
                address,
                connection.port,
                host=connection.host,
                user=connection.user,
                host_key=connection.host_key,
                login=access.private_key if isinstance(access, SftpKey) else access.password,
                is_password=isinstance(access, SftpPassword),
            )
        except ForbiddenAddressError as error:
            raise FieldError.at("host", Reason.FORBIDDEN, str(error), retryable=False) from None
        except SshError as error:
            field = "access" if error.login else "host" if error.known else "host_key"
            raise FieldError.at(field, error.reason, str(error)) from None
        except OSError:
            text = f"The host {connection.host} is not known: check its spelling."
            raise FieldError.at("host", Reason.DNS, text) from None
        with self._as_delivery_errors("the server"):
            self._sftp = await self._ssh.start_sftp_client(path_errors="surrogateescape")

    async def close(self) -> None:
        if self._ssh is not None:
            self._ssh.abort()

    async def files(self, prefix: str) -> AsyncGenerator[StoredFile, None]:
        from asyncssh import FILEXFER_TYPE_DIRECTORY, FILEXFER_TYPE_REGULAR, SFTPNoSuchFile

        folders = [prefix.rpartition("/")[0]]
        while folders:
            folder = folders.pop()
            with self._as_delivery_errors(folder):
                try:
                    async for entry in self._sftp.scandir(self._path(folder)):
                        name = joined(folder, entry.filename)
                        if entry.filename in (".", "..") or not name.startswith(prefix) or not is_text(name):
                            continue
                        if entry.attrs.type == FILEXFER_TYPE_DIRECTORY:
                            folders.append(name)
                        elif entry.attrs.type == FILEXFER_TYPE_REGULAR:
                            yield _stored(name, entry.attrs)
                except SFTPNoSuchFile:
                    if not folder:
                        raise

    @asynccontextmanager
    async def opened(self, file: StoredFile) -> AsyncIterator[ReadRange]:
        async def read(offset: int, size: int) -> bytes:
            with self._as_delivery_errors(file.name):
                data: bytes = await handle.read(size, offset)
                if _stored(file.name, await handle.stat()).version != file.version:
                    raise changed(file.name)
            return data

        with self._as_delivery_errors(file.name, missing=changed(file.name)):
            handle = await self._sftp.open(self._path(file.name), "rb")
        try:
            yield read
        finally:
            with contextlib.suppress(Exception):
                await handle.close()

    async def begin(self, name: str) -> dict[str, Any]:
        """The unfinished file lies in a folder that exists already, so that nothing is left when it is removed."""
        from asyncssh import SFTPNoSuchFile

        folder, unfinished = name.rpartition("/")[0], f".{uuid.uuid4().hex}{UNFINISHED}"
        while True:
            path = joined(folder, unfinished)
            with self._as_delivery_errors(folder):
                try:
                    async with self._sftp.open(self._path(path), "xb"):
                        return {"name": name, "unfinished": path}
                except SFTPNoSuchFile:
                    if not folder:
                        raise
            folder = folder.rpartition("/")[0]

    async def write(self, upload: dict[str, Any], number: int, part: bytes, offset: int) -> None:
        with self._as_delivery_errors(upload["name"], missing=upload_gone(upload["name"])):
            async with self._sftp.open(self._path(upload["unfinished"]), "r+b") as handle:
                for start in range(0, len(part), _SENT_BYTES):
                    await handle.write(part[start : start + _SENT_BYTES], offset + start)

    async def commit(self, upload: dict[str, Any]) -> None:
        unfinished, path = self._path(upload["unfinished"]), self._path(upload["name"])
        with self._as_delivery_errors(upload["name"], missing=upload_gone(upload["name"])):
            if not await self._sftp.exists(unfinished):
                if not await self._sftp.isfile(path):
                    raise upload_gone(upload["name"])
                return  # it was committed before
            await self._flush(unfinished)
            if "/" in upload["name"]:
                await self._sftp.makedirs(path.rpartition("/")[0], exist_ok=True)
            await self._rename(unfinished, path, upload["name"])

    async def _flush(self, path: str) -> None:
        """So that the machine of the server may lose its power after the file has its name; where it knows how to."""
        from asyncssh import SFTPOpUnsupported

        async with self._sftp.open(path, "r+b") as handle:
            with contextlib.suppress(SFTPOpUnsupported):
                await handle.fsync()

    async def _rename(self, unfinished: str, path: str, name: str) -> None:
        """Replaces a file of that name, which the protocol's own renaming refuses to. Where there is only that, the
        name is free for a moment, and a process that dies in it renames when it commits again; so only a former copy
        of the same file makes room, and nobody else's file."""
        from asyncssh import SFTPOpUnsupported

        try:
            await self._sftp.posix_rename(unfinished, path)
        except SFTPOpUnsupported:
            if await self._sftp.lexists(path):
                if not await self._sftp.isfile(path) or await self._ends(path) != await self._ends(unfinished):
                    raise _exists(name) from None
                await self._sftp.remove(path)
            await self._sftp.rename(unfinished, path)

    async def _ends(self, path: str) -> tuple[int, bytes, bytes]:
        """Size, beginning and end of a file: two copies of one export have the same, and hardly any other file has."""
        async with self._sftp.open(path, "rb") as handle:
            size = (await handle.stat()).size or 0
            return size, await handle.read(_SENT_BYTES, 0), await handle.read(_SENT_BYTES, max(0, size - _SENT_BYTES))

    async def abort(self, upload: dict[str, Any]) -> None:
        from asyncssh import SFTPNoSuchFile

        with self._as_delivery_errors(upload["unfinished"]), contextlib.suppress(SFTPNoSuchFile):
            await self._sftp.remove(self._path(upload["unfinished"]))

    async def uploads(
        self, prefix: str, is_ours: Callable[[str], bool]
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        async for file in unfinished_files(self, prefix):
            yield file.time, {"unfinished": file.name}

    def _path(self, name: str) -> str:
        return joined(self._connection.folder, name) or "."

    @contextmanager
    def _as_delivery_errors(self, name: str, missing: DeliveryError | None = None) -> Iterator[None]:
        """``missing`` is what it means that there is no such file."""
        import asyncssh

        shown = name or self._connection.folder or "the folder of the login"
        try:
            yield
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            raise missing or FieldError.at("folder", Reason.CONFIGURATION, f"There is no folder {shown}.") from None
        except (asyncssh.SFTPPermissionDenied, asyncssh.SFTPWriteProtect):
            text = f"The user {self._connection.user} may not do this with {shown}."
            raise FieldError.at("folder", Reason.CONFIGURATION, text) from None
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection, asyncssh.ConnectionLost, OSError):
            text = f"The connection to {self._connection.host} is lost."
            raise FieldError.at("host", Reason.CONNECTION, text) from None
        except asyncssh.Error as error:
            text = f"The server refuses this for {shown}: {error.reason.rstrip('.')}."
            raise DeliveryError("sftp_failure", text, retryable=True) from None


def _exists(name: str) -> DeliveryError:
    text = (
        f"There is another file {name} already, and the server cannot replace files (it has no "
        "posix-rename@openssh.com): remove or rename that file, and retry the export."
    )
    return DeliveryError("file_exists", text, retryable=False)


def _stored(name: str, attributes: Any) -> StoredFile:
    time = (attributes.mtime or 0) * 1_000_000 + (attributes.mtime_ns or 0) // 1000
    return StoredFile(time, name, f"{time}-{attributes.size}", attributes.size or 0)


class SftpReadFiles(ReadFiles[SftpConnection]):
    __doc__ = ReadFiles.__doc__

    options_model = ReadAppearingOptions
    store_type = SftpStore


class SftpExport(ExportFiles[SftpConnection]):
    """Writes files that appear when they are complete: they are written under another name, which begins with a dot and
    ends with .headrace-unfinished, and then renamed. A file of the same name is replaced. Where the server has no
    posix-rename@openssh.com, only a former copy of the same file is, which is removed right before; another file of
    that name is an error."""

    store_type = SftpStore


@connectors.register
class Sftp(Connector):
    """Reads and writes files of an SFTP server."""

    type = "sftp"
    title = "SFTP"
    connection_model = SftpConnection
    capabilities = (SftpReadFiles, SftpExport)
    requires = ("asyncssh", "pyarrow", "ijson", "fastavro")
    example = {
        "host": "sftp.example.com",
        "user": "headrace",
        "access": {"type": "password", "password": "s3cret"},
        "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
        "folder": "/upload",
    }

    @staticmethod
    async def check(connection: SftpConnection) -> str:
        """Logs in and lists a file."""
        return await check_store(SftpStore(connection), "host")
