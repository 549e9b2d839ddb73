"""The connector of local files."""

import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from backend.connectors import local_files
from backend.connectors.parts.files import store as stores
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError
from backend.settings import platform_settings
from tests.infra import FILES_ROOT
from tests.integration.connectors.file_cases import FilesCases, FilesStore
from tests.integration.connectors.suites import ExportSuite, ReadBatchSuite, opened


class LocalStore(FilesStore):
    @property
    def folder(self) -> Path:
        return FILES_ROOT / self.connection["folder"]

    async def put(self, name: str, body: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    async def everything(self) -> dict[str, bytes]:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}


class TestLocalFiles(FilesCases, ReadBatchSuite, ExportSuite):
    type = "local_files"

    @asynccontextmanager
    async def store(self, *, hangs: bool = False) -> AsyncIterator[LocalStore]:
        store = LocalStore({"folder": uuid.uuid4().hex})
        store.folder.mkdir()
        if not hangs:
            yield store
            return
        given_up = threading.Event()

        def hang(*_: Any, **__: Any) -> int:
            """As on a file server that does not answer."""
            given_up.wait()
            raise TimeoutError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stores, "CALL_SECONDS", 0.1)
            patch.setattr(local_files, "_walked", hang)
            try:
                yield store
            finally:
                given_up.set()

    def unreachable(self) -> dict[str, Any]:
        return {"folder": "no/such/folder"}

    def rejected(self, connection: dict[str, Any]) -> dict[str, Any] | None:
        return None

    def test_an_address_that_is_not_allowed_is_refused_when_it_is_saved(self) -> None:
        assert local_files.LocalFilesConnection.model_validate(self.unreachable()).hosts() == {}

    async def test_an_address_that_is_not_allowed_is_not_tested(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the operator's permission."""
        self._forbid(monkeypatch)
        with pytest.raises(CheckFailedError, match="HEADRACE_FILES_ROOT"):
            await self.checked(self.unreachable())

    async def test_a_store_at_a_forbidden_address_is_not_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.store() as store:
            self._forbid(monkeypatch)
            failure = await self.export_failure(store.connection)
            assert failure.reason == "forbidden"
            assert "HEADRACE_FILES_ROOT" in str(failure)

    async def test_a_source_at_a_forbidden_address_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.store() as store:
            await store.write([b"{}"])
            self._forbid(monkeypatch)
            failure = await self._failure(store.connection, store.options)
            assert failure.reason == "forbidden"

    def _forbid(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = platform_settings().model_copy(update={"files_root": ""})
        monkeypatch.setattr(local_files, "platform_settings", lambda: settings)

    async def test_no_symbolic_link_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "secret.jsonl").write_bytes(b'{"secret": true}\n')
        async with self.store() as store:
            (store.folder / "folder").symlink_to(tmp_path)
            (store.folder / "file.jsonl").symlink_to(tmp_path / "secret.jsonl")
            assert (await self.read(store))[0] == []
            async with opened(self.export(store, "folder")) as export:
                with pytest.raises(DeliveryError) as failed:
                    await export.begin("a.csv")
                assert failed.value.reason == "forbidden"
            async with opened(self.export(store, "")) as export:
                upload = await export.begin("file.jsonl")
                await export.write(upload, 1, b"new")
                await export.commit(upload)
            assert (tmp_path / "secret.jsonl").read_bytes() == b'{"secret": true}\n'
            assert [path.name for path in tmp_path.iterdir()] == ["secret.jsonl"]
            through = LocalStore({"folder": f"{store.connection['folder']}/folder"})
            assert (await self.export_failure(through.connection)).reason == "forbidden"

    @pytest.mark.parametrize("folder", ["..", "a/../..", "/etc", "a//b", "."])
    def test_a_folder_outside_is_no_configuration(self, folder: str) -> None:
        with pytest.raises(ValidationError):
            local_files.LocalFilesConnection.model_validate({"folder": folder})
