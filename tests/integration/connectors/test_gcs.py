"""The connector of Google Cloud Storage, against fake-gcs-server, which checks no logins."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
import requests

from backend.connectors import gcs
from backend.connectors.parts.google import ServiceAccount
from backend.domain.connector import CheckFailedError
from tests.gcs import ACCESS, ENDPOINT, gcs_server, make_bucket
from tests.infra import Server
from tests.integration.connectors.file_cases import FilesCases, FilesStore, silent_port
from tests.integration.connectors.suites import ExportSuite, ReadBatchSuite, opened
from tests.integration.connectors.test_pubsub import key_file
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = gcs_server()
    server.start()
    yield server
    server.stop()


class Bucket(FilesStore):
    @property
    def address(self) -> str:
        return f"http://{ENDPOINT}/storage/v1/b/{self.connection['bucket']}/o"

    async def put(self, name: str, body: bytes) -> None:
        url = self.address.replace("/storage", "/upload/storage")
        parameters = {"uploadType": "media", "name": name}
        (
            await asyncio.to_thread(requests.post, url, params=parameters, data=body, timeout=LIMIT_SECONDS)
        ).raise_for_status()

    async def everything(self) -> dict[str, bytes]:
        return await asyncio.to_thread(self._everything)

    def _everything(self) -> dict[str, bytes]:
        items = requests.get(self.address, timeout=LIMIT_SECONDS).json().get("items", ())
        names = [item["name"] for item in items]
        return {
            name: requests.get(f"{self.address}/{quote(name, safe='')}?alt=media", timeout=LIMIT_SECONDS).content
            for name in names
        }


class TestGcs(FilesCases, ReadBatchSuite, ExportSuite):
    type = "gcs"

    @pytest.fixture(autouse=True)
    def _server(self, server: Server) -> None:
        """Runs before every test."""

    @asynccontextmanager
    async def store(self, *, hangs: bool = False) -> AsyncIterator[Bucket]:
        connection = {"bucket": f"b-{uuid.uuid4().hex}", "access": ACCESS}
        if hangs:
            with silent_port() as port:
                yield Bucket(connection | {"access": {"type": "emulator", "endpoint": f"127.0.0.1:{port}"}})
            return
        await asyncio.to_thread(make_bucket, connection["bucket"])
        yield Bucket(connection)

    def unreachable(self) -> dict[str, Any]:
        return {"bucket": "bucket", "access": {"type": "emulator", "endpoint": "127.0.0.1:1"}}

    def rejected(self, connection: dict[str, Any]) -> dict[str, Any] | None:
        return None

    async def test_many_parts_are_put_together_in_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gcs, "_COMPOSED_AT_ONCE", 3)
        async with self.store() as store, opened(self.export(store, "")) as export:
            upload = await export.begin("a.csv")
            for number in range(1, 12):
                await export.write(upload, number, b"%d," % number)
            await export.commit(upload)
            assert await store.everything() == {"a.csv": b"1,2,3,4,5,6,7,8,9,10,11,"}

    async def test_a_bucket_that_is_missing_is_named(self) -> None:
        with pytest.raises(CheckFailedError, match="no-such-bucket") as failed:
            await self.checked(self.unreachable() | {"bucket": "no-such-bucket", "access": ACCESS})
        assert failed.value.field == "bucket"


def test_a_service_account_signs_its_own_tokens_for_the_store() -> None:
    credentials = ServiceAccount.model_validate({"key": key_file()}).credentials("https://scope.example")
    credentials.refresh(None)
    assert credentials.valid
    assert credentials.token.count(".") == 2
