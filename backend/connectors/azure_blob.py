import base64
import contextlib
import io
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import Field, HttpUrl, SecretStr, field_validator

from backend.connectors.parts.connection_text import connection_text
from backend.connectors.parts.field_error import FieldError
from backend.connectors.parts.files.exporting import ExportFiles
from backend.connectors.parts.files.reading import ReadFiles
from backend.connectors.parts.files.store import (
    CALL_SECONDS,
    UNFINISHED,
    UPLOAD_NUMBER,
    FileStore,
    ReadRange,
    StoredFile,
    changed,
    check_store,
    upload_gone,
)
from backend.domain.capabilities import Connection, DeliveryError
from backend.domain.connector import Connector, connectors
from backend.domain.masking import secret_values
from backend.domain.model import StrictModel
from backend.domain.reasons import Reason
from backend.network.guarded_sockets import GuardedSockets

_UPLOAD = "headrace_upload"
"""Metadata of a blob: which upload has made it."""
_PARTS = {"AccountName", "AccountKey", "SharedAccessSignature", "BlobEndpoint", "EndpointSuffix"}


class AzureKey(StrictModel):
    """A key of the storage account."""

    type: Literal["key"] = "key"
    account: str = Field(
        pattern=r"^[a-z0-9]{3,24}$", description="Name of the storage account.", examples=["mystorage"]
    )
    key: SecretStr = Field(description="Key of the storage account.")

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: SecretStr) -> SecretStr:
        try:
            base64.b64decode(key.get_secret_value(), validate=True)
        except ValueError:
            raise ValueError("Enter a key of the storage account; it is Base64.") from None
        return key


class AzureSas(StrictModel):
    """A shared access signature (SAS)."""

    type: Literal["sas"] = "sas"
    account: str = Field(
        pattern=r"^[a-z0-9]{3,24}$", description="Name of the storage account.", examples=["mystorage"]
    )
    token: SecretStr = Field(min_length=1, description="Token of the signature, such as sv=…&sig=….")


class AzureConnectionString(StrictModel):
    """A connection string."""

    type: Literal["connection_string"] = "connection_string"
    connection_string: SecretStr = Field(description="Connection string of the storage account.")

    @field_validator("connection_string")
    @classmethod
    def _check_parts(cls, text: SecretStr) -> SecretStr:
        parts = connection_parts(text.get_secret_value())
        if (
            not {"AccountKey", "SharedAccessSignature"} & parts.keys()
            or not {"AccountName", "BlobEndpoint"} & parts.keys()
        ):
            raise ValueError(
                "Enter a whole connection string: with AccountName, and AccountKey or SharedAccessSignature."
            )
        return text


def connection_parts(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.strip().split(";"))
    return {name: value for name, _, value in pairs if value and (name in _PARTS or name == "DefaultEndpointsProtocol")}


class AzureConnection(Connection):
    """A container of Azure Blob Storage."""

    container: str = Field(
        pattern=r"^[a-z0-9$][a-z0-9-]{1,62}$",
        description="Name of the container; it must exist.",
        examples=["my-container"],
    )
    access: Annotated[AzureKey | AzureSas | AzureConnectionString, Field(discriminator="type")] = Field(
        description="How Headrace identifies itself."
    )
    endpoint: HttpUrl | None = Field(
        None,
        description="Address of the blob service, for other clouds and the emulator Azurite. Without it, that of the "
        "storage account.",
        examples=["http://localhost:10000/devstoreaccount1"],
    )

    def hosts(self) -> dict[str, list[str]]:
        field = "endpoint" if self.endpoint else "access"
        return {field: [urlsplit(self.address).hostname or ""]}

    @property
    def address(self) -> str:
        """Of the blob service."""
        if self.endpoint:
            return str(self.endpoint).rstrip("/")
        if not isinstance(self.access, AzureConnectionString):
            return f"https://{self.access.account}.blob.core.windows.net"
        parts = connection_parts(self.access.connection_string.get_secret_value())
        if "BlobEndpoint" in parts:
            return parts["BlobEndpoint"].rstrip("/")
        protocol, suffix = (
            parts.get("DefaultEndpointsProtocol", "https"),
            parts.get("EndpointSuffix", "core.windows.net"),
        )
        return f"{protocol}://{parts['AccountName']}.blob.{suffix}"

    @property
    def account_and_key(self) -> tuple[str, str] | None:
        if isinstance(self.access, AzureKey):
            return self.access.account, self.access.key.get_secret_value()
        if isinstance(self.access, AzureConnectionString):
            parts = connection_parts(self.access.connection_string.get_secret_value())
            if "AccountKey" in parts:
                return parts.get("AccountName", ""), parts["AccountKey"]
        return None

    @property
    def token(self) -> str:
        """The shared access signature, where there is no key."""
        if isinstance(self.access, AzureSas):
            return self.access.token.get_secret_value().removeprefix("?")
        assert isinstance(self.access, AzureConnectionString)
        parts = connection_parts(self.access.connection_string.get_secret_value())
        return parts.get("SharedAccessSignature", "").removeprefix("?")

    def sent_secrets(self) -> list[str]:
        """In the forms in which they are sent."""
        return [self.account_and_key[1]] if self.account_and_key else [self.token]


class AzureStore(FileStore):
    """Blobs of one container. Parts are blocks, which are invisible until a list of them is committed."""

    def __init__(self, connection: AzureConnection) -> None:
        self._connection = connection
        self._sockets = GuardedSockets()
        self._session: Any = None

    async def open(self) -> None:
        from aiohttp import ClientSession, ClientTimeout, TCPConnector
        from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
        from azure.core.pipeline.transport import AioHttpTransport
        from azure.storage.blob.aio import ContainerClient

        logging.getLogger("azure").setLevel(logging.WARNING)  # it would log every request
        named = self._connection.account_and_key
        self._session = ClientSession(
            connector=TCPConnector(socket_factory=self._sockets),
            timeout=ClientTimeout(sock_connect=CALL_SECONDS, sock_read=CALL_SECONDS),
            auto_decompress=False,
        )
        self._container: Any = ContainerClient(
            self._connection.address,
            self._connection.container,
            credential=AzureNamedKeyCredential(*named) if named else AzureSasCredential(self._connection.token),
            transport=AioHttpTransport(session=self._session, session_owner=False, use_env_settings=False),
            retry_total=0,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def files(self, prefix: str) -> AsyncGenerator[StoredFile, None]:
        with self._as_delivery_errors():
            async for blob in self._container.list_blobs(name_starts_with=prefix or None):
                time = round(blob.last_modified.timestamp() * 1_000_000)
                yield StoredFile(time, blob.name, blob.etag, blob.size)

    @asynccontextmanager
    async def opened(self, file: StoredFile) -> AsyncIterator[ReadRange]:
        from azure.core import MatchConditions

        blob = self._container.get_blob_client(file.name)

        async def read(offset: int, size: int) -> bytes:
            with self._as_delivery_errors(if_missing=changed(file.name)):
                answer = await blob.download_blob(
                    offset, size, etag=file.version, match_condition=MatchConditions.IfNotModified, max_concurrency=1
                )
                data: bytes = await answer.readall()
            return data

        yield read

    async def begin(self, name: str) -> dict[str, Any]:
        upload = {"name": name, "number": uuid4().hex}
        with self._as_delivery_errors():
            await self._mark(upload).upload_blob(b"")
        return upload

    async def write(self, upload: dict[str, Any], number: int, part: bytes, offset: int) -> None:
        with self._as_delivery_errors():
            await self._blob(upload).stage_block(_block(upload, number), io.BytesIO(part), len(part))

    async def commit(self, upload: dict[str, Any]) -> None:
        from azure.storage.blob import BlobBlock

        with self._as_delivery_errors():
            if await self._is_committed(upload):
                return await self.abort(upload)
            if not await self._mark(upload).exists():
                raise upload_gone(upload["name"])
            blocks = [BlobBlock(block) for block in await self._blocks(upload)]
            await self._blob(upload).commit_block_list(blocks, metadata={_UPLOAD: upload["number"]})
        await self.abort(upload)

    async def _is_committed(self, upload: dict[str, Any]) -> bool:
        from azure.core.exceptions import ResourceNotFoundError

        try:
            properties = await self._blob(upload).get_blob_properties()
        except ResourceNotFoundError:
            return False
        return bool(properties.metadata.get(_UPLOAD) == upload["number"])

    async def _blocks(self, upload: dict[str, Any]) -> list[str]:
        """Those of this upload, in order: several may be under way for a name."""
        from azure.core.exceptions import ResourceNotFoundError

        try:
            _, blocks = await self._blob(upload).get_block_list("uncommitted")
        except ResourceNotFoundError:  # nothing was written
            return []
        return sorted(block.id for block in blocks if block.id.startswith(_blocks_of(upload)))

    async def abort(self, upload: dict[str, Any]) -> None:
        """Blocks cannot be removed; without the mark, they are never committed."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._as_delivery_errors(), contextlib.suppress(ResourceNotFoundError):
            await self._mark(upload).delete_blob()

    async def uploads(
        self, prefix: str, is_ours: Callable[[str], bool]
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        async for mark in self.files(f"{UNFINISHED}/"):
            number = mark.name.partition("/")[2]
            if UPLOAD_NUMBER.fullmatch(number):
                yield mark.time, {"number": number}

    def _blob(self, upload: dict[str, Any]) -> Any:
        return self._container.get_blob_client(upload["name"])

    def _mark(self, upload: dict[str, Any]) -> Any:
        """An empty blob that exists as long as the upload may be committed."""
        return self._container.get_blob_client(f"{UNFINISHED}/{upload['number']}")

    @contextmanager
    def _as_delivery_errors(self, if_missing: DeliveryError | None = None) -> Iterator[None]:
        """``if_missing`` is raised when the blob does not exist."""
        from azure.core import exceptions

        host = urlsplit(self._connection.address).hostname
        address_field = next(iter(self._connection.hosts()))
        try:
            yield
        except exceptions.HttpResponseError as error:
            if error.status_code is None:
                raise FieldError.at(address_field, Reason.CONNECTION, f"The answer of {host} is broken.") from None
            raise self._refusal(error, if_missing) from None
        except (exceptions.AzureError, OSError) as error:
            if self._sockets.forbidden:
                raise FieldError.at(address_field, Reason.FORBIDDEN, self._sockets.forbidden, retryable=False) from None
            text = f"No connection to {host}: {connection_text(error, _first_line(error))}."
            reason = Reason.DNS if "Name or service not known" in text else Reason.CONNECTION
            raise FieldError.at(address_field, reason, text) from None

    def _refusal(self, error: Any, if_missing: DeliveryError | None) -> DeliveryError:
        code, status = str(getattr(error.error_code, "value", error.error_code)), error.status_code
        if code == "ContainerNotFound":
            text = f"There is no container {self._connection.container}."
            return FieldError.at("container", Reason.CONFIGURATION, text)
        if status in (401, 403):
            text = f"The store does not permit this: {_first_line(error)} ({code})."
            return FieldError.at("access", Reason.CONFIGURATION, text)
        if if_missing is not None and status in (404, 412, 416):
            return if_missing
        text = f"The store answers with {status}: {_first_line(error)} ({code})."
        return DeliveryError(f"azure_{status}", text, retryable=status >= 500 or status in (408, 429))


def _blocks_of(upload: dict[str, Any]) -> str:
    """How the ids of its blocks begin: Base64 of 30 bytes, so that the number stands apart."""
    return base64.b64encode(upload["number"][:30].encode()).decode()


def _block(upload: dict[str, Any], number: int) -> str:
    """All ids of a blob's blocks have the same length."""
    return _blocks_of(upload) + base64.b64encode(f"{number:06d}".encode()).decode()


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0].strip().rstrip(".")


class _Login:
    """What both directions hide in answers."""

    connection: AzureConnection

    def secrets(self) -> list[str]:
        return [*secret_values(self.connection), *self.connection.sent_secrets()]


class AzureReadFiles(_Login, ReadFiles[AzureConnection]):
    __doc__ = ReadFiles.__doc__

    store_type = AzureStore


class AzureExport(_Login, ExportFiles[AzureConnection]):
    """Writes blobs that appear when they are complete, by blocks. A blob of the same name is replaced.

    While a file is written, an empty blob in the folder .headrace-unfinished marks it. Azure removes the blocks of an
    upload that was aborted, or left by a crash, after a week; until then they are invisible."""

    store_type = AzureStore


@connectors.register
class AzureBlob(Connector):
    """Reads and writes blobs of Azure Blob Storage."""

    type = "azure_blob"
    title = "Azure Blob Storage"
    connection_model = AzureConnection
    capabilities = (AzureReadFiles, AzureExport)
    requires = ("azure.storage.blob", "aiohttp", "pyarrow", "ijson", "fastavro")
    example = {"container": "my-container", "access": {"type": "key", "account": "mystorage", "key": "czNjcmV0"}}

    @staticmethod
    async def check(connection: AzureConnection) -> str:
        """Lists a blob."""
        return await check_store(AzureStore(connection), next(iter(connection.hosts())))
