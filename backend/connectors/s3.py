from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import uuid4

from pydantic import ConfigDict, Field, HttpUrl, ValidationInfo, field_validator

from backend.connectors.parts.aws import AwsClient, AwsConnection, Region
from backend.connectors.parts.field_error import FieldError
from backend.connectors.parts.files.exporting import ExportFiles
from backend.connectors.parts.files.reading import ReadFiles
from backend.connectors.parts.files.store import (
    CALL_SECONDS,
    FileStore,
    ReadRange,
    StoredFile,
    changed,
    check_store,
    read_up_to,
    upload_gone,
)
from backend.connectors.parts.s3_encryption import BucketDefault, CustomerKey, Encryption, is_about_encryption
from backend.domain.capabilities import Connection, DeliveryError
from backend.domain.connector import Connector, connectors
from backend.domain.model import ADVANCED
from backend.domain.reasons import Reason

_UPLOAD = "headrace-upload"
"""Metadata of an object: which upload has made it."""
_GONE = {"404", "NoSuchKey", "412", "PreconditionFailed", "InvalidRange", "NoSuchUpload"}
_ELSEWHERE = {"301", "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


class _Bucket(Connection):
    bucket: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{1,253}$",
        description="Name of the bucket; it must exist.",
        examples=["my-bucket"],
    )


class S3Connection(AwsConnection, _Bucket):  # in this order of bases, forms begin with the bucket
    """A bucket of Amazon S3 or of a compatible store."""

    model_config = ConfigDict(title="S3 connection")

    region: Region = Field("us-east-1", description="Region of the bucket.", examples=["sa-east-1"])
    endpoint: HttpUrl | None = Field(
        None,
        description="Address of a compatible store, such as MinIO, Ceph or Cloudflare R2. Without it, Amazon S3.",
        examples=["https://minio.example.com:9000"],
    )
    path_style: bool = Field(
        True,
        description="The bucket is named in the path of addresses, not in the host. Most compatible stores need it.",
        json_schema_extra=ADVANCED,
    )
    encryption: Encryption = Field(
        default_factory=BucketDefault,
        description="How the store encrypts the objects that are written. A key of your own is also used for reading.",
        json_schema_extra=ADVANCED,
    )

    @field_validator("encryption")
    @classmethod
    def _check_encrypted(cls, encryption: Encryption, info: ValidationInfo) -> Encryption:
        endpoint = info.data.get("endpoint")
        if isinstance(encryption, CustomerKey) and endpoint is not None and endpoint.scheme == "http":
            raise ValueError("The key would be sent in the clear: give an endpoint with https:// for it.")
        return encryption


class S3Store(FileStore):
    """Objects of one bucket. Parts are those of S3's multipart uploads, which are invisible until they are complete."""

    def __init__(self, connection: S3Connection) -> None:
        self._connection = connection
        self._bucket = connection.bucket
        self._encryption = connection.encryption
        self._client = AwsClient(
            connection,
            "s3",
            "S3",
            seconds=CALL_SECONDS,
            # Compatible stores know no newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if connection.path_style else "virtual"},
        )

    async def open(self) -> None:
        self._s3 = await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def files(self, prefix: str) -> AsyncGenerator[StoredFile, None]:
        token: dict[str, str] = {}
        while True:
            with self._as_delivery_errors():
                page = await self._s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix, **token)
            for found in page.get("Contents", ()):
                yield StoredFile(_microseconds(found["LastModified"]), found["Key"], found["ETag"], found["Size"])
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    @asynccontextmanager
    async def opened(self, file: StoredFile) -> AsyncIterator[ReadRange]:
        async def read(offset: int, size: int) -> bytes:
            with self._as_delivery_errors(if_missing=changed(file.name)):
                answer = await self._s3.get_object(
                    Bucket=self._bucket,
                    Key=file.name,
                    IfMatch=file.version,
                    Range=f"bytes={offset}-{offset + size - 1}",
                    **self._encryption.of_requests(),
                )
                async with answer["Body"] as body:
                    return await read_up_to(size, body.read)

        yield read

    async def begin(self, name: str) -> dict[str, Any]:
        number = uuid4().hex
        with self._as_delivery_errors():
            answer = await self._s3.create_multipart_upload(
                Bucket=self._bucket, Key=name, Metadata={_UPLOAD: number}, **self._encryption.of_new_object()
            )
        return {"name": name, "id": answer["UploadId"], "number": number}

    async def write(self, upload: dict[str, Any], number: int, part: bytes, offset: int) -> None:
        with self._as_delivery_errors(if_missing=upload_gone(upload["name"])):
            await self._write(upload, number, part)

    async def commit(self, upload: dict[str, Any]) -> None:
        try:
            with self._as_delivery_errors(if_missing=upload_gone(upload["name"])):
                parts = await self._parts(upload)
                if not parts:  # a multipart upload has at least one part, which may be empty
                    await self._write(upload, 1, b"")
                    parts = await self._parts(upload)
                await self._s3.complete_multipart_upload(**self._of(upload), MultipartUpload={"Parts": parts})
        except DeliveryError as error:
            if error.reason != "upload_gone" or not await self._is_committed(upload):
                raise

    async def _write(self, upload: dict[str, Any], number: int, part: bytes) -> None:
        encryption = self._encryption.of_requests()
        await self._s3.upload_part(**self._of(upload), **encryption, PartNumber=number, Body=part)

    async def _parts(self, upload: dict[str, Any]) -> list[dict[str, Any]]:
        """Of several with the same number, which some stores list, the last one counts."""
        tags: dict[int, tuple[datetime, str]] = {}
        marker: dict[str, int] = {}
        while True:
            page = await self._s3.list_parts(**self._of(upload), **marker)
            for part in page.get("Parts", ()):
                entry = part["LastModified"], part["ETag"]
                tags[part["PartNumber"]] = max(entry, tags.get(part["PartNumber"], entry))
            if not page.get("IsTruncated"):
                return [{"PartNumber": number, "ETag": tag} for number, (_, tag) in sorted(tags.items())]
            marker = {"PartNumberMarker": page["NextPartNumberMarker"]}

    async def _is_committed(self, upload: dict[str, Any]) -> bool:
        with self._as_delivery_errors(if_missing=upload_gone(upload["name"])):
            answer = await self._s3.head_object(
                Bucket=self._bucket, Key=upload["name"], **self._encryption.of_requests()
            )
        return bool(answer["Metadata"].get(_UPLOAD) == upload["number"])

    async def abort(self, upload: dict[str, Any]) -> None:
        try:
            with self._as_delivery_errors(if_missing=upload_gone(upload["name"])):
                await self._s3.abort_multipart_upload(**self._of(upload))
        except DeliveryError as error:
            if error.reason != "upload_gone":
                raise

    async def uploads(
        self, prefix: str, is_ours: Callable[[str], bool]
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """Those of the whole bucket may be of anybody, so there have to be folders of our own."""
        if not prefix:
            return
        marker: dict[str, str] = {}
        while True:
            with self._as_delivery_errors():
                page = await self._s3.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix, **marker)
            for found in page.get("Uploads", ()):
                if found["Key"].startswith(prefix) and is_ours(found["Key"]):
                    yield _microseconds(found["Initiated"]), {"name": found["Key"], "id": found["UploadId"]}
            if not page.get("IsTruncated"):
                return
            marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def _of(self, upload: dict[str, Any]) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": upload["name"], "UploadId": upload["id"]}

    def _as_delivery_errors(self, if_missing: DeliveryError | None = None) -> AbstractContextManager[None]:
        """``if_missing`` is raised when the object or the upload does not exist."""

        def meaning(code: str, text: str) -> DeliveryError | None:
            if code == "NoSuchBucket":
                return FieldError.at("bucket", Reason.CONFIGURATION, f"There is no bucket {self._bucket}.")
            if code in _ELSEWHERE:
                text = f"The bucket is in another region: {text} ({code})."
                return FieldError.at("region", Reason.CONFIGURATION, text)
            if is_about_encryption(code, text):
                return FieldError.at("encryption", Reason.CONFIGURATION, f"S3 does not encrypt this: {text} ({code}).")
            return if_missing if code in _GONE else None

        return self._client.as_delivery_errors(meaning)


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


class S3ReadFiles(ReadFiles[S3Connection]):
    __doc__ = ReadFiles.__doc__

    store_type = S3Store


class S3Export(ExportFiles[S3Connection]):
    """Writes objects that appear when they are complete, by multipart uploads. An object of the same name is replaced.

    What a crash has left of an upload is invisible. It is removed after a day where files have a folder of their own;
    a lifecycle rule of the bucket can remove it as well (AbortIncompleteMultipartUpload)."""

    store_type = S3Store


@connectors.register
class S3(Connector):
    """Reads and writes objects of Amazon S3 and compatible stores."""

    type = "s3"
    title = "Amazon S3"
    connection_model = S3Connection
    capabilities = (S3ReadFiles, S3Export)
    requires = ("aiobotocore", "pyarrow", "ijson", "fastavro")
    example = {
        "bucket": "my-bucket",
        "region": "sa-east-1",
        "access": {"type": "access_key", "access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "s3cret"},
    }

    @staticmethod
    async def check(connection: S3Connection) -> str:
        """Lists an object."""
        return await check_store(S3Store(connection), "endpoint")
