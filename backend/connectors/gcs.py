import contextlib
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote
from uuid import uuid4

from pydantic import Field

from backend.connectors.parts.connection_text import connection_text
from backend.connectors.parts.error_text import error_text
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
    read_up_to,
    upload_gone,
)
from backend.connectors.parts.google import Emulator, ServiceAccount
from backend.domain import json
from backend.domain.capabilities import Connection, DeliveryError
from backend.domain.connector import Connector, connectors
from backend.domain.model import ADVANCED
from backend.domain.reasons import Reason
from backend.network.guarded_sockets import GuardedSockets
from backend.network.outbound import ForbiddenAddressError

_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_UPLOAD = "headrace-upload"
"""Metadata of an object: which upload has made it."""
_COMPOSED_AT_ONCE = 32
"""Objects that Google puts together by one request."""
_ANSWER_BYTES = 8 * 1024 * 1024
"""Limit of an answer other than an object's contents."""
_LISTED_FIELDS = "nextPageToken,items(name,size,updated,generation)"


class GcsConnection(Connection):
    """A bucket of Google Cloud Storage."""

    bucket: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{1,220}$",
        description="Name of the bucket; it must exist.",
        examples=["my-bucket"],
    )
    access: Annotated[ServiceAccount | Emulator, Field(discriminator="type")] = Field(
        description="How Headrace identifies itself."
    )
    kms_key: str | None = Field(
        None,
        title="KMS key",
        pattern=r"^projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+$",
        max_length=500,
        description="Key of Cloud KMS that encrypts the objects that are written; the service agent of Cloud Storage "
        "has to be permitted to use it. Without it, objects are encrypted as the bucket has it.",
        examples=["projects/my-project/locations/us/keyRings/my-ring/cryptoKeys/my-key"],
        json_schema_extra=ADVANCED,
    )

    def hosts(self) -> dict[str, list[str]]:
        return {"access": [self.access.host]} if isinstance(self.access, Emulator) else {}


class GcsStore(FileStore):
    """Objects of one bucket, by Google's JSON API.

    Its uploads take parts only one after the other. So each part is an object of its own in a folder beside all others,
    and Google puts them together when the upload is committed.
    """

    def __init__(self, connection: GcsConnection) -> None:
        self._connection = connection
        self._sockets = GuardedSockets()
        self._http: Any = None
        self._credentials: Any = None

    async def open(self) -> None:
        from aiohttp import ClientSession, ClientTimeout, TCPConnector

        access = self._connection.access
        if isinstance(access, Emulator):
            try:
                self._address = f"http://{await access.target()}"
            except ForbiddenAddressError as error:
                raise FieldError.at("access", Reason.FORBIDDEN, str(error), retryable=False) from None
            except OSError:
                raise FieldError.at("access", Reason.DNS, f"The host {access.host} is not known.") from None
        else:
            self._address = "https://storage.googleapis.com"
            self._credentials = access.credentials(_SCOPE)
        self._http = ClientSession(
            connector=TCPConnector(socket_factory=self._sockets),
            timeout=ClientTimeout(sock_connect=CALL_SECONDS, sock_read=CALL_SECONDS),
            auto_decompress=False,
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def files(self, prefix: str) -> AsyncGenerator[StoredFile, None]:
        token: dict[str, str] = {}
        while True:
            page = await self._call("GET", self._objects, params={"prefix": prefix, "fields": _LISTED_FIELDS, **token})
            for found in page.get("items", ()):
                yield listed(found)
            if not page.get("nextPageToken"):
                return
            token = {"pageToken": page["nextPageToken"]}

    @asynccontextmanager
    async def opened(self, file: StoredFile) -> AsyncIterator[ReadRange]:
        async def read(offset: int, size: int) -> bytes:
            async with self._answered(
                "GET",
                self._object(file.name),
                if_missing=changed(file.name),
                params={"alt": "media", "generation": file.version, "ifGenerationMatch": file.version},
                # Otherwise an object that is stored compressed would be sent in another form.
                headers={"Range": f"bytes={offset}-{offset + size - 1}", "Accept-Encoding": "gzip"},
            ) as answer:
                return await read_up_to(size, answer.content.read)

        yield read

    async def begin(self, name: str) -> dict[str, Any]:
        upload = {"name": name, "number": uuid4().hex}
        await self._put(self._part(upload, 0), b"")
        return upload

    async def write(self, upload: dict[str, Any], number: int, part: bytes, offset: int) -> None:
        if not await self._parts(upload, "0" * 5):
            raise upload_gone(upload["name"])
        await self._put(self._part(upload, number), part)

    async def commit(self, upload: dict[str, Any]) -> None:
        if not await self._is_committed(upload):
            parts = await self._parts(upload)
            if not parts:
                raise upload_gone(upload["name"])
            parts = parts[1:] or parts  # the first one only marks the upload
            level = 0
            while len(parts) > _COMPOSED_AT_ONCE:
                level += 1
                groups = [parts[start : start + _COMPOSED_AT_ONCE] for start in range(0, len(parts), _COMPOSED_AT_ONCE)]
                parts = [f"{self._folder(upload)}{level}-{number:05d}" for number, _ in enumerate(groups)]
                for target, group in zip(parts, groups, strict=True):
                    await self._compose(target, group, {})
            await self._compose(upload["name"], parts, {_UPLOAD: upload["number"]})
        await self.abort(upload)

    async def abort(self, upload: dict[str, Any]) -> None:
        for name in reversed([file.name async for file in self.files(self._folder(upload))]):
            with contextlib.suppress(_MissingError):
                await self._call("DELETE", self._object(name), if_missing=_MissingError())

    async def uploads(
        self, prefix: str, is_ours: Callable[[str], bool]
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        written: dict[str, int] = {}
        async for file in self.files(f"{UNFINISHED}/"):
            number = file.name.split("/")[1]
            if UPLOAD_NUMBER.fullmatch(number):
                written[number] = max(file.time, written.get(number, 0))
        for number, time in written.items():
            yield time, {"number": number}

    async def _parts(self, upload: dict[str, Any], number: str = "") -> list[str]:
        prefix = f"{self._folder(upload)}0-{number}"
        return sorted([file.name async for file in self.files(prefix)])

    async def _is_committed(self, upload: dict[str, Any]) -> bool:
        try:
            stored = await self._call("GET", self._object(upload["name"]), if_missing=_MissingError())
        except _MissingError:
            return False
        return bool(stored.get("metadata", {}).get(_UPLOAD) == upload["number"])

    def _folder(self, upload: dict[str, Any]) -> str:
        return f"{UNFINISHED}/{upload['number']}/"

    def _part(self, upload: dict[str, Any], number: int) -> str:
        return f"{self._folder(upload)}0-{number:05d}"

    async def _put(self, name: str, body: bytes) -> None:
        path = f"/upload{self._objects}"
        params = {"uploadType": "media", "name": name} | self._encryption
        await self._call("POST", path, params=params, data=io.BytesIO(body))

    async def _compose(self, name: str, parts: list[str], metadata: dict[str, str]) -> None:
        body = {"sourceObjects": [{"name": part} for part in parts], "destination": {"metadata": metadata}}
        await self._call("POST", f"{self._object(name)}/compose", params=self._encryption, data=json.dumps(body))

    @property
    def _encryption(self) -> dict[str, str]:
        """Of an object that is made."""
        return {"kmsKeyName": self._connection.kms_key} if self._connection.kms_key else {}

    @property
    def _objects(self) -> str:
        return f"/storage/v1/b/{self._connection.bucket}/o"

    def _object(self, name: str) -> str:
        return f"{self._objects}/{quote(name, safe='')}"

    async def _call(self, method: str, path: str, if_missing: DeliveryError | None = None, **request: Any) -> Any:
        """The answer, which is JSON or nothing."""
        request.setdefault("headers", {"Content-Type": "application/json"})
        async with self._answered(method, path, if_missing, **request) as answer:
            body = await read_up_to(_ANSWER_BYTES, answer.content.read)
        return json.loads(body) if body else {}

    @asynccontextmanager
    async def _answered(
        self, method: str, path: str, if_missing: DeliveryError | None = None, **request: Any
    ) -> AsyncIterator[Any]:
        """``if_missing`` is raised when the object does not exist."""
        from aiohttp import ClientError
        from yarl import URL

        if self._credentials is not None:
            if not self._credentials.valid:
                self._credentials.refresh(None)  # signs a token, without a request
            request["headers"] = request["headers"] | {"Authorization": f"Bearer {self._credentials.token}"}
        try:
            url = URL(self._address + path, encoded=True)
            async with self._http.request(method, url, allow_redirects=False, **request) as answer:
                if answer.status >= 300:
                    raise self._refusal(answer.status, await read_up_to(_ANSWER_BYTES, answer.content.read), if_missing)
                yield answer
        except (ClientError, OSError) as error:
            if self._sockets.forbidden:
                raise FieldError.at("access", Reason.FORBIDDEN, self._sockets.forbidden, retryable=False) from None
            raise FieldError.at(
                "access", Reason.CONNECTION, f"No connection to the store: {connection_text(error)}."
            ) from None

    def _refusal(self, status: int, body: bytes, if_missing: DeliveryError | None) -> DeliveryError:
        text = error_text(body, "error", "message") or "no explanation"
        if if_missing is not None and status in (404, 412, 416):
            return if_missing
        if self._connection.kms_key and status in (400, 403, 404) and "KMS" in text:
            text = f"The store cannot use the key: {text}."
            return FieldError.at("kms_key", Reason.CONFIGURATION, text)
        if status == 404:
            return FieldError.at("bucket", Reason.CONFIGURATION, f"There is no bucket {self._connection.bucket}.")
        if status in (401, 403):
            text = f"The service account is not permitted to do this: {text}."
            return FieldError.at("access", Reason.CONFIGURATION, text)
        retryable = status >= 500 or status in (408, 429)
        return DeliveryError(f"gcs_{status}", f"The store answers with {status}: {text}.", retryable=retryable)


def listed(found: dict[str, Any]) -> StoredFile:
    """An object of a list, whose size is an integer that is written as a text. Raises DeliveryError."""
    try:
        time = round(datetime.fromisoformat(found["updated"]).timestamp() * 1_000_000)
        size = json.bounded_int(json.loads(json.text(found["size"])), 0, 2**63 - 1)
        return StoredFile(time, found["name"], str(found["generation"]), size)
    except (KeyError, TypeError, ValueError, OverflowError):
        text = "The store's list has an object without a name, a time or a size."
        raise DeliveryError(Reason.ANSWER, text, retryable=True) from None


class _MissingError(DeliveryError):
    def __init__(self) -> None:
        super().__init__("gcs_404", "There is no such object.", retryable=False)


class GcsReadFiles(ReadFiles[GcsConnection]):
    __doc__ = ReadFiles.__doc__

    store_type = GcsStore


class GcsExport(ExportFiles[GcsConnection]):
    """Writes objects that appear when they are complete: parts are objects in the folder .headrace-unfinished of the
    bucket, which are put together and then deleted. An object of the same name is replaced.

    What a crash has left in that folder is removed after a day."""

    store_type = GcsStore


@connectors.register
class Gcs(Connector):
    """Reads and writes objects of Google Cloud Storage."""

    type = "gcs"
    title = "Google Cloud Storage"
    connection_model = GcsConnection
    capabilities = (GcsReadFiles, GcsExport)
    requires = ("google.oauth2", "aiohttp", "pyarrow", "ijson", "fastavro")
    example = {"bucket": "my-bucket", "access": {"type": "emulator", "endpoint": "localhost:4443"}}

    @staticmethod
    async def check(connection: GcsConnection) -> str:
        """Lists an object."""
        return await check_store(GcsStore(connection), "access")
