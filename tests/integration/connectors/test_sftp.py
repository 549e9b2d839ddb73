"""The SFTP connector, against servers in other processes."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import asyncssh
import pytest

from backend.domain.connector import CheckFailedError
from tests import openssh
from tests.infra import VAR, Server
from tests.integration.connectors.file_cases import FilesCases, FilesStore, silent_port
from tests.integration.connectors.suites import ExportSuite, ReadBatchSuite, opened
from tests.sftp import USER_KEY, folder_of, sftp_server, user_connection
from tests.sftp_server import PASSWORD


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = sftp_server()
    server.start()
    yield server
    server.stop()


class Folder(FilesStore):
    @property
    def path(self) -> Path:
        return folder_of(self.connection)

    async def put(self, name: str, body: bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    async def everything(self) -> dict[str, bytes]:
        files = [path for path in self.path.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.path)): path.read_bytes() for path in files}


class TestSftp(FilesCases, ReadBatchSuite, ExportSuite):
    type = "sftp"

    @pytest.fixture(autouse=True)
    def _server(self, server: Server) -> None:
        """Runs before every test."""

    @asynccontextmanager
    async def store(self, *, hangs: bool = False) -> AsyncIterator[Folder]:
        if hangs:
            with silent_port() as port:
                yield Folder(user_connection(port=port))
            return
        store = Folder(user_connection())
        store.path.mkdir(parents=True)
        yield store

    def unreachable(self) -> dict[str, Any]:
        return user_connection(port=1)

    def rejected(self, connection: dict[str, Any]) -> dict[str, Any] | None:
        return connection | {"access": {"type": "password", "password": "another-password"}}

    async def test_a_private_key_logs_in(self) -> None:
        key = USER_KEY.export_private_key().decode()
        connection = user_connection(access={"type": "private_key", "private_key": key}, folder="")
        store = Folder(connection)
        store.path.mkdir()
        async with opened(self.export(store)) as export:
            await export.commit(await export.begin("a.csv"))
        assert await store.everything() == {"out/a.csv": b""}
        other = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
        failure = await self.export_failure(connection | {"access": {"type": "private_key", "private_key": other}})
        assert failure.reason == "configuration"

    async def test_a_server_with_another_host_key_is_not_trusted(self) -> None:
        key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        connection = user_connection(host_key=key)
        with pytest.raises(CheckFailedError) as failed:
            await self.checked(connection)
        assert failed.value.field == "host_key"
        assert PASSWORD not in str(failed.value)

    async def test_a_folder_that_is_missing_or_forbidden_is_named(self) -> None:
        async with self.store() as store:
            with pytest.raises(CheckFailedError, match="There is no folder") as failed:
                await self.checked(store.connection | {"folder": "/missing"})
            assert failed.value.field == "folder"

    async def test_unfinished_files_and_links_are_not_read(self) -> None:
        async with self.store() as store, opened(self.export(store, "")) as export:
            await export.write(await export.begin("a.jsonl"), 1, b"{}\n")
            (store.path / "loop").symlink_to(store.path)
            assert (await self.read(store))[0] == []

    async def test_a_connection_that_is_lost_is_reported(self, server: Server) -> None:
        async with self.store() as store, opened(self.export(store)) as export:
            server.stop()
            try:
                with pytest.raises(Exception, match="lost") as failed:
                    await export.begin("a.csv")
                assert failed.value.retryable  # type: ignore[attr-defined]
            finally:
                server.start()


class _OpenSshFolder(Folder):
    """A new folder, which the user of the tests sees as any other of the machine."""

    def __init__(self, **fields: Any) -> None:
        key = openssh.USER_KEY.export_private_key().decode()
        super().__init__(
            {
                "host": "127.0.0.1",
                "port": openssh.PORT,
                "user": openssh.USER,
                "access": {"type": "private_key", "private_key": key},
                "host_key": openssh.HOST_KEY.export_public_key().decode().strip(),
                "folder": mkdtemp(prefix="openssh-files-", dir=VAR),
                **fields,
            }
        )

    @property
    def path(self) -> Path:
        return Path(self.connection["folder"])


class TestOpenSsh(FilesCases, ReadBatchSuite, ExportSuite):
    type = "sftp"

    @pytest.fixture(autouse=True, scope="class")
    def _server(self) -> Iterator[None]:
        server = openssh.openssh_server()
        server.start()
        yield
        server.stop()

    @asynccontextmanager
    async def store(self, *, hangs: bool = False) -> AsyncIterator[Folder]:
        if hangs:
            with silent_port() as port:
                yield _OpenSshFolder(port=port)
            return
        yield _OpenSshFolder()

    def unreachable(self) -> dict[str, Any]:
        return _OpenSshFolder(port=1).connection

    def rejected(self, connection: dict[str, Any]) -> dict[str, Any] | None:
        other = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
        return connection | {"access": {"type": "private_key", "private_key": other}}
