"""Uploads to SFTP servers that lack what OpenSSH's has, and to one that dies, each in the process of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh import sftp

from backend.connectors.parts.files.store import opened_store
from backend.connectors.sftp import SftpConnection, SftpStore
from backend.domain.capabilities import DeliveryError
from tests.waiting import LIMIT_SECONDS

PASSWORD = "password-of-sftp"
PART = b"x" * 3_000_000
HOST_KEY = asyncssh.generate_private_key("ssh-ed25519")


class _Login(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return password == PASSWORD


class Plain(asyncssh.SFTPServer):
    """Has what the protocol's third version has, and no extension."""

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        raise asyncssh.SFTPOpUnsupported("There is no such extension.")

    async def fsync(self, file_obj: object) -> None:
        raise asyncssh.SFTPOpUnsupported("There is no such extension.")


@asynccontextmanager
async def served(folder: Path, program: Callable[..., asyncssh.SFTPServer] = Plain) -> AsyncIterator[SftpConnection]:
    server = await asyncssh.create_server(
        _Login,
        "127.0.0.1",
        0,
        server_host_keys=[HOST_KEY],
        sftp_factory=lambda channel: program(channel, chroot=str(folder).encode()),
    )
    try:
        yield SftpConnection.model_validate(
            {
                "host": "127.0.0.1",
                "port": server.get_port(),
                "user": "headrace",
                "access": {"type": "password", "password": PASSWORD},
                "host_key": HOST_KEY.export_public_key().decode().strip(),
                "folder": "/",
            }
        )
    finally:
        server.close()
        await server.wait_closed()


async def written(store: Any, content: bytes, name: str = "a/b.csv") -> dict[str, Any]:
    upload: dict[str, Any] = await store.begin(name)
    if content:
        await store.write(upload, 1, content, 0)
    return upload


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=[True, False], ids=["refuses-it", "does-not-name-it"])
def _without_extensions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(sftp.SFTPServerHandler, "_extensions", [])


@pytest.mark.usefixtures("_without_extensions")
@pytest.mark.parametrize("content", [b"", b"1,2\n", PART], ids=["empty", "short", "long"])
async def test_without_rename_over_a_former_copy_is_replaced(tmp_path: Path, content: bytes) -> None:
    async with served(tmp_path) as connection, opened_store(SftpStore(connection)) as store:
        await store.commit(await written(store, content))
        again = await written(store, content)
        await store.commit(again)
        await store.commit(again)
    assert files_in(tmp_path) == {"a/b.csv": content}


@pytest.mark.usefixtures("_without_extensions")
@pytest.mark.parametrize("other", [b"y", b"", PART + b"y", b"y" + PART[1:], PART[1:] + b"y"])
async def test_without_rename_over_another_file_is_left(tmp_path: Path, other: bytes) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.csv").write_bytes(other)
    async with served(tmp_path) as connection, opened_store(SftpStore(connection)) as store:
        upload = await written(store, PART)
        with pytest.raises(DeliveryError, match=r"another file a/b\.csv already.*remove or rename") as failed:
            await store.commit(upload)
        assert (failed.value.reason, failed.value.retryable) == ("file_exists", False)
        assert (tmp_path / "a/b.csv").read_bytes() == other
        (tmp_path / "a/b.csv").rename(tmp_path / "moved")
        await store.commit(upload)
    assert files_in(tmp_path) == {"a/b.csv": PART, "moved": other}


async def test_one_that_dies_between_removing_and_renaming_is_committed_again(tmp_path: Path) -> None:
    class Dying(Plain):
        async def rename(self, oldpath: bytes, newpath: bytes) -> None:
            self.channel.get_connection().abort()

    async with served(tmp_path) as connection, opened_store(SftpStore(connection)) as store:
        await store.commit(await written(store, b"1"))
    async with served(tmp_path, Dying) as connection, opened_store(SftpStore(connection)) as store:
        upload = await written(store, b"1")
        with pytest.raises(DeliveryError) as failed:
            await store.commit(upload)
        assert failed.value.retryable
    assert "a/b.csv" not in files_in(tmp_path)
    async with served(tmp_path) as connection, opened_store(SftpStore(connection)) as store:
        await store.commit(upload)
    assert files_in(tmp_path) == {"a/b.csv": b"1"}


async def test_one_that_dies_in_mid_file_shows_nothing_of_it(tmp_path: Path) -> None:
    class Dying(asyncssh.SFTPServer):
        async def write(self, file_obj: Any, offset: int, data: bytes) -> int:
            if offset > len(PART) // 2:
                self.channel.get_connection().abort()
                raise asyncssh.SFTPFailure("The server dies.")
            written = super().write(file_obj, offset, data)
            assert isinstance(written, int)
            return written

    async with served(tmp_path, Dying) as connection, opened_store(SftpStore(connection)) as store:
        upload = await store.begin("a/b.csv")
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(DeliveryError) as failed:
                await store.write(upload, 1, PART, 0)
        assert (failed.value.reason, failed.value.retryable) == ("connection", True)
        # The same connection is not waited for.
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(DeliveryError):
                await store.write(upload, 1, PART, 0)
    [(left, content)] = files_in(tmp_path).items()
    assert left.endswith(".headrace-unfinished")
    assert 0 < len(content) < len(PART)
    async with served(tmp_path, asyncssh.SFTPServer) as connection, opened_store(SftpStore(connection)) as store:
        assert not [file async for file in store.files("") if not file.name.endswith(".headrace-unfinished")]
        await store.abort(upload)
        await store.commit(await written(store, PART))
    assert files_in(tmp_path) == {"a/b.csv": PART}


async def test_unfinished_files_are_found_in_the_folder_and_those_around_it_alone(tmp_path: Path) -> None:
    def file(name: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return name

    unfinished = f".{'0' * 32}.headrace-unfinished"
    ours = {file(f"{folder}{unfinished}") for folder in ("", "a/", "a/b/", "a/b/c/")}
    file(f"other/{unfinished}")
    file("a/b/orders.headrace-unfinished")
    async with served(tmp_path) as connection, opened_store(SftpStore(connection)) as store:
        found = [upload async for _, upload in store.uploads("a/b/", lambda name: False)]
        assert sorted(upload["unfinished"] for upload in found) == sorted(ours)
        for upload in found:
            await store.abort(upload)
    assert set(files_in(tmp_path)) == {f"other/{unfinished}", "a/b/orders.headrace-unfinished"}


async def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    flushed: list[dict[str, bytes]] = []

    class Flushing(asyncssh.SFTPServer):
        def fsync(self, file_obj: Any) -> None:
            super().fsync(file_obj)
            flushed.append(files_in(tmp_path))

    async with served(tmp_path, Flushing) as connection, opened_store(SftpStore(connection)) as store:
        await store.commit(await written(store, b"1"))
    assert [list(files.values()) for files in flushed] == [[b"1"]]
    assert "a/b.csv" not in flushed[0]
