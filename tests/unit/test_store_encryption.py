"""What the connectors of object stores ask of their stores' encryption, against stand-ins that refuse requests which
do not say it, as the real ones do."""

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import ValidationError

from backend.connectors.gcs import GcsConnection, GcsStore
from backend.connectors.parts.field_error import FieldError
from backend.connectors.parts.files.store import opened_store
from backend.connectors.s3 import S3Connection, S3Store
from tests.certificates import Authority

KEY = base64.b64encode(bytes(range(32))).decode()
ACCESS = {"type": "access_key", "access_key_id": "AK", "secret_access_key": "SK"}
_CUSTOMER = "x-amz-server-side-encryption-customer-"
_KEY_HEADERS = {
    f"{_CUSTOMER}algorithm": "AES256",
    f"{_CUSTOMER}key": KEY,
    f"{_CUSTOMER}key-md5": base64.b64encode(hashlib.md5(bytes(range(32)), usedforsecurity=False).digest()).decode(),
}


class S3StandIn:
    """One object of S3, encrypted as its upload asked."""

    def __init__(self) -> None:
        self.encryption: dict[str, str] = {}
        self.refusal: tuple[int, str, str] | None = None
        self._marks: dict[str, str] = {}
        self._parts: dict[int, bytes] = {}
        self._object: bytes | None = None

    async def handle(self, request: web.Request) -> web.Response:
        query, stated = request.query, self._stated(request)
        if self.refusal is not None:
            status, code, text = self.refusal
            return _xml(f"<Error><Code>{code}</Code><Message>{text}</Message></Error>", status)
        if request.method == "POST" and "uploads" in query:
            self.encryption = stated
            self._marks = {name: value for name, value in request.headers.items() if "x-amz-meta" in name.lower()}
            return _xml("<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
        if request.method == "POST":
            self._object = b"".join(part for _, part in sorted(self._parts.items()))
            return _xml("<CompleteMultipartUploadResult/>")
        if request.method == "GET" and "uploadId" in query:
            if self._object is not None:
                return _xml("<Error><Code>NoSuchUpload</Code></Error>", 404)
            time = "2026-01-01T00:00:00.000Z"
            parts = "".join(
                f'<Part><PartNumber>{number}</PartNumber><ETag>"e"</ETag><LastModified>{time}</LastModified></Part>'
                for number in self._parts
            )
            return _xml(f"<ListPartsResult>{parts}</ListPartsResult>")
        if request.method == "GET" and "list-type" in query:
            return _xml(
                "<ListBucketResult><Contents><Key>a.csv</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f'<ETag>"e"</ETag><Size>{len(self._object or b"")}</Size></Contents></ListBucketResult>'
            )
        # What is left writes or reads content or metadata.
        needed = self.encryption if f"{_CUSTOMER}key" in self.encryption else {}
        if stated != needed:
            return _xml("<Error><Code>InvalidRequest</Code><Message>The key is missing</Message></Error>", 400)
        if request.method == "PUT":
            self._parts[int(query["partNumber"])] = await request.read()
            return web.Response(headers={"ETag": '"e"'})
        return web.Response(body=self._object, headers={"ETag": '"e"', **self._marks})

    @staticmethod
    def _stated(request: web.Request) -> dict[str, str]:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return {name: value for name, value in headers.items() if "server-side-encryption" in name}


def _xml(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="application/xml")


@asynccontextmanager
async def s3(folder: Path, encryption: dict[str, Any]) -> AsyncIterator[tuple[S3StandIn, S3Store]]:
    authority, stand_in, app = Authority(folder), S3StandIn(), web.Application()
    app.router.add_route("*", "/{path:.*}", stand_in.handle)
    server = TestServer(app, scheme="https", host="127.0.0.1")
    await server.start_server(ssl=authority.server_context())
    try:
        connection = {
            "bucket": "bucket",
            "endpoint": f"https://127.0.0.1:{server.port}",
            "access": ACCESS,
            "ca": authority.certificate.read_text(),
            "encryption": encryption,
        }
        async with opened_store(S3Store(S3Connection.model_validate(connection))) as store:
            yield stand_in, store  # type: ignore[misc]
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("encryption", "headers"),
    [
        ({"type": "bucket_default"}, {}),
        ({"type": "sse_s3"}, {"x-amz-server-side-encryption": "AES256"}),
        ({"type": "sse_kms"}, {"x-amz-server-side-encryption": "aws:kms"}),
        (
            {"type": "sse_kms", "key_id": "alias/orders", "bucket_key": True},
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "alias/orders",
                "x-amz-server-side-encryption-bucket-key-enabled": "true",
            },
        ),
        ({"type": "sse_c", "key": KEY}, _KEY_HEADERS),
    ],
)
async def test_objects_are_written_and_read_with_the_encryption(
    tmp_path: Path, encryption: dict[str, Any], headers: dict[str, str]
) -> None:
    async with s3(tmp_path, encryption) as (stand_in, store):
        upload = await store.begin("a.csv")
        assert stand_in.encryption == headers
        await store.write(upload, 1, b"1", 0)
        await store.write(upload, 2, b"2", 1)
        await store.commit(upload)
        await store.commit(upload)  # which looks at the object's metadata
        [file] = [file async for file in store.files("")]
        async with store.opened(file) as read:
            assert await read(0, 2) == b"12"


async def test_an_empty_object_is_encrypted_as_well(tmp_path: Path) -> None:
    async with s3(tmp_path, {"type": "sse_c", "key": KEY}) as (_, store):
        upload = await store.begin("a.csv")
        await store.commit(upload)
        [file] = [file async for file in store.files("")]
        assert file.size == 0


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (400, "KMS.NotFoundException", "Key 'alias/x' does not exist"),
        (403, "AccessDenied", "User: u is not authorized to perform: kms:GenerateDataKey on this resource"),
        (400, "InvalidEncryptionAlgorithmError", "The encryption request that you specified is not valid"),
    ],
)
async def test_a_refused_encryption_is_named(tmp_path: Path, status: int, code: str, text: str) -> None:
    async with s3(tmp_path, {"type": "sse_kms", "key_id": "alias/x"}) as (stand_in, store):
        stand_in.refusal = (status, code, text)
        with pytest.raises(FieldError, match="S3 does not encrypt this") as failed:
            await store.begin("a.csv")
        assert failed.value.field == "encryption"


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"encryption": {"type": "sse_c", "key": "c2hvcnQ="}}, "key", "a key of 32 bytes in Base64"),
        ({"encryption": {"type": "sse_c", "key": "no base64!"}}, "key", "a key of 32 bytes in Base64"),
        (
            {"encryption": {"type": "sse_c", "key": KEY}, "endpoint": "http://minio.example.com"},
            "encryption",
            "sent in the clear",
        ),
        ({"encryption": {"type": "sse_kms", "key_id": "a key"}}, "key_id", "should match pattern"),
    ],
)
def test_an_encryption_that_cannot_be_is_refused_at_its_field(
    fields: dict[str, Any], field: str, sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence) as refused:
        S3Connection.model_validate({"bucket": "bucket", "access": ACCESS, **fields})
    [error] = refused.value.errors(include_url=False)
    assert error["loc"][-1] == field
    assert KEY not in str(refused.value)


KMS_KEY = "projects/p/locations/us/keyRings/r/cryptoKeys/k"


@asynccontextmanager
async def gcs(answer: Any, **fields: Any) -> AsyncIterator[GcsStore]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        access = {"type": "emulator", "endpoint": f"127.0.0.1:{server.port}"}
        connection = GcsConnection.model_validate({"bucket": "bucket", "access": access, **fields})
        async with opened_store(GcsStore(connection)) as store:
            yield store  # type: ignore[misc]


@pytest.mark.parametrize("key", [KMS_KEY, None])
async def test_google_encrypts_parts_and_the_object_with_the_key(key: str | None) -> None:
    made: list[tuple[str, str | None]] = []
    parts: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        if request.method == "POST":
            made.append((request.path.rpartition("/")[2], request.query.get("kmsKeyName")))
            parts.extend(name for name in [request.query.get("name")] if name)
        if request.method == "GET" and request.path.endswith("/o"):
            found = [name for name in parts if name.startswith(request.query["prefix"])]
            stored = {"size": "0", "updated": "2026-01-01T00:00:00Z", "generation": "1"}
            return web.json_response({"items": [{"name": name, **stored} for name in found]})
        return web.json_response({}, status=404 if request.method == "GET" else 200)

    async with gcs(answer, kms_key=key) as store:
        upload = await store.begin("a.csv")
        await store.write(upload, 1, b"1", 0)
        await store.commit(upload)
    assert made == [("o", key), ("o", key), ("compose", key)]


async def test_a_key_that_google_refuses_is_named() -> None:
    async def answer(request: web.Request) -> web.Response:
        text = "Permission denied on Cloud KMS key. Please ensure that your service account has been authorized."
        return web.json_response({"error": {"message": text}}, status=403)

    async with gcs(answer, kms_key=KMS_KEY) as store:
        with pytest.raises(FieldError, match="cannot use the key") as failed:
            await store.begin("a.csv")
        assert failed.value.field == "kms_key"


def test_the_name_of_a_key_of_google_is_checked() -> None:
    access = {"type": "emulator", "endpoint": "localhost:1"}
    with pytest.raises(ValidationError, match="should match pattern"):
        GcsConnection.model_validate({"bucket": "bucket", "access": access, "kms_key": "my-key"})
