"""The S3 connector, against SeaweedFS."""

import asyncio
import base64
import os
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession
from botocore.exceptions import ClientError

from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError
from tests.certificates import Authority
from tests.infra import Server
from tests.integration.connectors.file_cases import FilesCases, FilesStore, silent_port
from tests.integration.connectors.suites import ExportSuite, ReadBatchSuite, exporter, opened
from tests.seaweedfs import ACCESS_KEY, ENDPOINT, SECRET_KEY, seaweedfs  # noqa: F401
from tests.tls_proxy import tls_proxy

ACCESS = {"type": "access_key", "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}


SESSION = AioSession()


def client() -> Any:
    return SESSION.create_client(
        "s3",
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    writer.close()


class Bucket(FilesStore):
    @property
    def name(self) -> str:
        return str(self.connection["bucket"])

    async def put(self, name: str, body: bytes) -> None:
        async with client() as s3:
            await s3.put_object(Bucket=self.name, Key=name, Body=body)

    async def everything(self) -> dict[str, bytes]:
        async with client() as s3:
            page = await s3.list_objects_v2(Bucket=self.name)
            objects = {}
            for found in page.get("Contents", ()):
                answer = await s3.get_object(Bucket=self.name, Key=found["Key"])
                objects[found["Key"]] = await answer["Body"].read()
        return objects

    async def uploads(self) -> list[str]:
        async with client() as s3:
            page = await s3.list_multipart_uploads(Bucket=self.name)
        return [upload["Key"] for upload in page.get("Uploads", ())]


class TestS3(FilesCases, ReadBatchSuite, ExportSuite):
    type = "s3"

    @pytest.fixture(autouse=True)
    def _server(self, seaweedfs: Server) -> None:  # noqa: F811
        """Runs before every test."""

    @asynccontextmanager
    async def store(self, *, hangs: bool = False) -> AsyncIterator[Bucket]:
        connection = {"bucket": f"b-{uuid.uuid4().hex}", "endpoint": ENDPOINT, "access": ACCESS}
        if hangs:
            with silent_port() as port:
                yield Bucket(connection | {"endpoint": f"http://127.0.0.1:{port}"})
            return
        async with client() as s3:
            await s3.create_bucket(Bucket=connection["bucket"])
        yield Bucket(connection)

    def unreachable(self) -> dict[str, Any]:
        return {"bucket": "bucket", "endpoint": "http://127.0.0.1:1", "access": ACCESS}

    def rejected(self, connection: dict[str, Any]) -> dict[str, Any] | None:
        return connection | {"access": ACCESS | {"secret_access_key": "another-secret"}}

    async def test_nothing_of_an_aborted_upload_stays_in_the_store(self) -> None:
        async with self.store() as store, opened(self.export(store)) as export:
            upload = await export.begin("a.csv")
            await export.write(upload, 1, b"1")
            assert await store.uploads() == ["out/a.csv"]
            await export.abort(upload)
            assert await store.uploads() == []

    async def test_uploads_of_others_are_no_abandoned_ones(self) -> None:
        async with self.store() as store, opened(self.export(store)) as export, client() as s3:
            for name in ("out/orders/theirs.bin", "elsewhere/00000001.csv", "out/other/00000001.csv"):
                await s3.create_multipart_upload(Bucket=store.name, Key=name)
            found = export.unfinished("orders/", lambda name: name.endswith("1.csv"), -3600)
            assert [upload async for upload in found] == []
            assert len(await store.uploads()) == 3

    async def test_objects_are_encrypted_with_a_key_of_ones_own_and_read_with_it_alone(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        key, other = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))
        async with self.store() as store:
            with tls_proxy(int(ENDPOINT.rpartition(":")[2]), *authority.issue("127.0.0.1")) as port:
                store.connection |= {
                    "endpoint": f"https://127.0.0.1:{port}",
                    "ca": authority.certificate.read_text(),
                    "encryption": {"type": "sse_c", "key": key},
                }
                line = b'"%s"\n' % (b"x" * 1023)
                lines = line * (8 * 1024 * 1024 // len(line) + 1)
                async with opened(self.export(store, "in")) as export:
                    upload = await export.begin("a.jsonl")
                    await export.write(upload, 1, lines[: export.part_bytes])
                    await export.write(upload, 2, lines[export.part_bytes :])
                    await export.commit(upload)
                    await export.commit(upload)
                async with client() as s3:
                    with pytest.raises(ClientError):
                        await s3.get_object(Bucket=store.name, Key="in/a.jsonl")
                records, _ = await self.read(store)
                assert len(records) == len(lines) // len(line)
                store.connection["encryption"] = {"type": "sse_c", "key": other}
                with pytest.raises(DeliveryError) as failed:
                    await self.read(store)
                assert key not in str(failed.value)
                assert other not in str(failed.value)

    async def test_objects_are_encrypted_with_keys_of_the_store(self) -> None:
        async with self.store() as store:
            store.connection |= {"encryption": {"type": "sse_s3"}}
            async with opened(self.export(store)) as export:
                upload = await export.begin("a.csv")
                await export.write(upload, 1, b"1")
                await export.commit(upload)
            async with client() as s3:
                found = await s3.head_object(Bucket=store.name, Key="out/a.csv")
            assert found["ServerSideEncryption"] == "AES256"
            assert await store.everything() == {"out/a.csv": b"1"}

    async def test_a_bucket_that_is_missing_is_named(self) -> None:
        async with self.store() as store:
            connection = store.connection | {"bucket": "no-such-bucket"}
            failure = await self._failure(connection, store.options)
            assert failure.reason == "configuration"
            assert "no-such-bucket" in str(failure)
            with pytest.raises(CheckFailedError) as failed:
                await self.checked(connection)
            assert failed.value.field == "bucket"

    async def test_an_unknown_host_is_named(self) -> None:
        failure = await self.export_failure(self.unreachable() | {"endpoint": "http://no-such-host.invalid"})
        assert failure.reason == "dns"
        assert "no-such-host.invalid" in str(failure)

    async def test_without_access_no_credentials_of_this_machine_are_used(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        async with self.store() as store:
            failure = await self.export_failure(store.connection | {"access": {"type": "none"}})
            assert failure.reason == "configuration"
            assert await store.uploads() == []
            assert exporter("s3", store.connection | {"access": {"type": "none"}}, {}).secrets() == []

    async def test_a_private_authority_is_trusted_when_it_is_configured(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        certificate, key = authority.issue("127.0.0.1")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner = await asyncio.open_connection("127.0.0.1", int(ENDPOINT.rpartition(":")[2]))
            await asyncio.gather(pipe(reader, inner[1]), pipe(inner[0], writer))

        async with self.store() as store, await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context) as encrypted:
            endpoint = f"https://127.0.0.1:{encrypted.sockets[0].getsockname()[1]}"
            connection = store.connection | {"endpoint": endpoint}
            failure = await self.export_failure(connection)
            assert failure.reason == "tls"
            await store.put("in/a.jsonl", b"{}\n")
            trusting = connection | {"ca": authority.certificate.read_text()}
            assert await self.checked(trusting) == "Connected; there are files, such as in/a.jsonl."
            store.connection = trusting
            records, _ = await self.read(store)
            assert len(records) == 1
