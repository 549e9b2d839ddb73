"""The connector of Azure Blob Storage, against Azurite."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import ContainerClient as SyncContainerClient
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.blob.aio import ContainerClient
from pydantic import ValidationError

from backend.connectors.azure_blob import AzureConnection
from backend.domain.connector import CheckFailedError
from tests.azurite import ACCOUNT, ENDPOINT, KEY, azurite_server
from tests.infra import Server
from tests.integration.connectors.file_cases import FilesCases, FilesStore, silent_port
from tests.integration.connectors.suites import ExportSuite, ReadBatchSuite, exporter, opened

CREDENTIAL = {"account_name": ACCOUNT, "account_key": KEY}
ACCESS = {"type": "key", "account": ACCOUNT, "key": KEY}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = azurite_server()
    server.start()
    yield server
    server.stop()


class Container(FilesStore):
    def client(self) -> ContainerClient:
        return ContainerClient(ENDPOINT, self.connection["container"], credential=CREDENTIAL)

    async def put(self, name: str, body: bytes) -> None:
        def upload() -> None:
            with SyncContainerClient(ENDPOINT, self.connection["container"], credential=CREDENTIAL) as container:
                container.upload_blob(name, body, overwrite=True)

        await asyncio.to_thread(upload)

    async def everything(self) -> dict[str, bytes]:
        async with self.client() as container:
            names = [blob.name async for blob in container.list_blobs()]
            return {name: await (await container.download_blob(name)).readall() for name in names}


class TestAzureBlob(FilesCases, ReadBatchSuite, ExportSuite):
    type = "azure_blob"

    @pytest.fixture(autouse=True)
    def _server(self, server: Server) -> None:
        """Runs before every test."""

    @asynccontextmanager
    async def store(self, *, hangs: bool = False) -> AsyncIterator[Container]:
        connection = {"container": f"c-{uuid.uuid4().hex}", "endpoint": ENDPOINT, "access": ACCESS}
        if hangs:
            with silent_port() as port:
                yield Container(connection | {"endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}"})
            return
        store = Container(connection)
        async with store.client() as container:
            await container.create_container()
        yield store

    def unreachable(self) -> dict[str, Any]:
        return {"container": "container", "endpoint": f"http://127.0.0.1:1/{ACCOUNT}", "access": ACCESS}

    def rejected(self, connection: dict[str, Any]) -> dict[str, Any] | None:
        return connection | {"access": ACCESS | {"key": base64.b64encode(b"another-key-of-azure").decode()}}

    @pytest.mark.parametrize("kind", ["sas", "connection string", "connection string with sas"])
    async def test_it_logs_in_by_every_kind_of_access(self, kind: str) -> None:
        async with self.store() as store:
            token = generate_container_sas(
                ACCOUNT,
                store.connection["container"],
                account_key=KEY,
                permission=ContainerSasPermissions(read=True, write=True, list=True, delete=True, create=True),
                expiry=datetime.now(UTC) + timedelta(hours=1),
            )
            text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};BlobEndpoint={ENDPOINT};"
            access, secret = {
                "sas": ({"type": "sas", "account": ACCOUNT, "token": token}, token),
                "connection string": (
                    {"type": "connection_string", "connection_string": f"{text}AccountKey={KEY};"},
                    KEY,
                ),
                "connection string with sas": (
                    {"type": "connection_string", "connection_string": f"{text}SharedAccessSignature={token}"},
                    token,
                ),
            }[kind]
            connection = {"container": store.connection["container"], "access": access}
            if kind == "sas":
                connection["endpoint"] = ENDPOINT
            store.connection = connection
            assert secret in exporter(self.type, connection, {}).secrets()
            await store.put("in/a.jsonl", b"{}\n")
            async with opened(self.export(store, "")) as export:
                await export.commit(await export.begin("b.csv"))
            assert len((await self.read(store))[0]) == 1
            assert await store.everything() == {"b.csv": b"", "in/a.jsonl": b"{}\n"}

    async def test_two_uploads_of_one_name_do_not_mix(self) -> None:
        async with self.store() as store, opened(self.export(store, "")) as export:
            first, second = await export.begin("a.csv"), await export.begin("a.csv")
            await export.write(first, 1, b"first")
            await export.write(second, 1, b"second")
            await export.commit(second)
            assert await store.everything() | {"a.csv": b"second"} == await store.everything()

    async def test_a_container_that_is_missing_is_named(self) -> None:
        async with self.store() as store:
            with pytest.raises(CheckFailedError, match="no-such-container") as failed:
                await self.checked(store.connection | {"container": "no-such-container"})
            assert failed.value.field == "container"


@pytest.mark.parametrize(
    ("access", "address"),
    [
        ({"type": "key", "account": "abc", "key": KEY}, "https://abc.blob.core.windows.net"),
        (
            {
                "type": "connection_string",
                "connection_string": f"AccountName=abc;AccountKey={KEY};EndpointSuffix=core.example",
            },
            "https://abc.blob.core.example",
        ),
    ],
)
def test_the_address_follows_from_the_account(access: dict[str, Any], address: str) -> None:
    connection = AzureConnection.model_validate({"container": "abc", "access": access})
    assert connection.address == address
    assert connection.hosts() == {"access": [address.removeprefix("https://")]}
    assert connection.account_and_key == ("abc", KEY)


@pytest.mark.parametrize("text", ["", "no connection string", "AccountName=abc", f"AccountKey={KEY}"])
def test_what_is_no_connection_string_is_an_error(text: str) -> None:
    access = {"type": "connection_string", "connection_string": text}
    with pytest.raises(ValidationError):
        AzureConnection.model_validate({"container": "abc", "access": access})
