"""The rows of a shared file. It is read over HTTP piece by piece, in a thread, so that little of it is in memory."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

from backend.connectors.delta_sharing.connection import DeltaSharingConnection
from backend.connectors.delta_sharing.protocol import File
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason
from backend.network.http_client import HttpClient, HttpError, Response, TlsSettings

_PIECE_BYTES = 1024 * 1024
"""What is fetched by one request, which is also how much of each column is buffered."""
_CONNECT_SECONDS = 10.0
_PIECE_SECONDS = 60.0
_LEAST_COLUMN_BYTES = 64 * 1024
_BUFFERED_BYTES = 16 * 1024 * 1024
"""Of all columns together."""
_BATCH_BYTES = 4 * 1024 * 1024
"""About how much of a file is documents at the same time."""

Document = dict[str, Any]


class Files:
    """Reads files one after the other. Made, used and closed on one event loop.

    They are often in a public store, and at times in one whose certificate a private authority signed, as it did the
    provider's. The client's certificate is for the provider alone: what authorizes a download is its address.
    """

    def __init__(self, connection: DeltaSharingConnection) -> None:
        tls = TlsSettings(verify=connection.verify_tls, authorities=connection.ca, system_too=True)
        self._client = HttpClient(tls=tls, connect_timeout=_CONNECT_SECONDS, read_timeout=30.0, kept_bytes=_PIECE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="delta-sharing")

    async def close(self) -> None:
        await self._client.close()  # requests fail, so the thread ends
        self._thread.shutdown(wait=False)

    async def documents(
        self, file: File, columns: dict[str, Any], skipped: int, at_a_time: int
    ) -> AsyncIterator[list[Document]]:
        """The rows after the first ``skipped``, as documents of the table's columns. Raises DeliveryError."""
        reader = await self._in_thread(lambda: _Reader(_RemoteFile(self, file), columns))
        partition = partition_values(file, columns)
        batches = reader.documents(skipped, at_a_time)
        while (rows := await self._in_thread(lambda: next(batches, None))) is not None:
            yield [_complete(row, partition, columns) for row in rows]

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        import pyarrow

        try:
            return await self._loop.run_in_executor(self._thread, call)
        except (pyarrow.ArrowException, OSError) as error:
            text = f"A file of the table cannot be read as Parquet: {str(error)[:200]}"
            raise DeliveryError(Reason.ANSWER, text, retryable=False) from None

    def fetch(self, url: str, headers: list[str]) -> Response:
        """Called in the thread. Raises DeliveryError."""
        future = asyncio.run_coroutine_threadsafe(self._fetch(url, headers), self._loop)
        return future.result()

    async def _fetch(self, url: str, headers: list[str]) -> Response:
        """The address is a secret itself, so no error may quote it."""
        try:
            async with asyncio.timeout(_PIECE_SECONDS):
                answer = await self._client.request("GET", url, headers)
        except TimeoutError:
            text = f"The storage of the table did not answer within {_PIECE_SECONDS:g} seconds."
            raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None
        except HttpError as error:
            text = f"The storage of the table: {error}"
            raise DeliveryError(error.kind, text, retryable=error.kind != Reason.FORBIDDEN) from None
        if answer.status in (401, 403):
            text = "The storage of the table rejects the address of a file, which may have expired; reading goes on "
            raise DeliveryError(f"http_{answer.status}", f"{text}with a new one.", retryable=True)
        if answer.status != 206:
            text = f"The storage of the table answered {answer.status} instead of a part of a file."
            raise DeliveryError(f"http_{answer.status}", text, retryable=answer.status >= 500)
        return answer


class _RemoteFile(io.RawIOBase):
    """A file that is read by range requests, from the thread."""

    def __init__(self, files: Files, file: File) -> None:
        self._files = files
        self._url = file.url
        self._size = file.size
        self._position = 0
        self._whole: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        start, end = self._position, self._size
        if size is not None and size >= 0:
            end = min(end, start + size)
        self._position = max(start, end)
        if self._size > _PIECE_BYTES:
            return self._range(start, end)
        if self._whole is None:  # it is no larger than what a single request fetches
            self._whole = self._range(0, self._size)
        return self._whole[start:end]

    def _range(self, start: int, end: int) -> bytes:
        parts = []
        for first in range(start, end, _PIECE_BYTES):
            last = min(end, first + _PIECE_BYTES) - 1
            part = self._files.fetch(self._url, [f"Range: bytes={first}-{last}"]).body
            if len(part) != last - first + 1:
                text = "The storage of the table sent less of a file than was asked for."
                raise DeliveryError(Reason.ANSWER, text, retryable=True)
            parts.append(part)
        return b"".join(parts)


class _Reader:
    """Used in the thread."""

    def __init__(self, remote: _RemoteFile, columns: dict[str, Any]) -> None:
        import pyarrow
        from pyarrow import parquet

        self._columns = columns
        source = pyarrow.PythonFile(remote, mode="r")
        self._metadata = metadata = parquet.read_metadata(source)
        buffered = max(_LEAST_COLUMN_BYTES, min(_PIECE_BYTES, _BUFFERED_BYTES // max(1, metadata.num_columns)))
        self._file = parquet.ParquetFile(
            source, metadata=metadata, buffer_size=buffered, pre_buffer=False, coerce_int96_timestamp_unit="us"
        )

    def documents(self, skipped: int, at_a_time: int) -> Iterator[list[Document]]:
        """The rows after the first ``skipped``, up to ``at_a_time`` together."""
        for group in range(self._metadata.num_row_groups):
            described = self._metadata.row_group(group)
            if skipped >= described.num_rows:
                skipped -= described.num_rows
                continue
            decoded = _fitting(described.num_rows, described.total_byte_size, at_a_time)
            for batch in self._file.iter_batches(decoded, row_groups=[group], use_threads=False):
                rest = batch.slice(skipped)
                skipped = max(0, skipped - batch.num_rows)
                # Values that are stored once and used often take more when they are decoded.
                step = _fitting(batch.num_rows, batch.nbytes, at_a_time)
                for start in range(0, rest.num_rows, step):
                    yield self._documents(rest.slice(start, step))

    def _documents(self, batch: Any) -> list[Document]:
        import pyarrow

        for index, field in enumerate(batch.schema):
            # Old files hold moments without saying that they are of UTC.
            if self._columns.get(field.name) == "timestamp" and pyarrow.types.is_timestamp(field.type):
                utc = batch.column(index).cast(pyarrow.timestamp("us", tz="UTC"))
                batch = batch.set_column(index, field.name, utc)
        documents: list[Document] = batch.to_pylist(maps_as_pydicts="lossy")
        return documents


def _fitting(rows: int, size: int, most: int) -> int:
    """How many of the rows, which are that large together, are taken at a time."""
    return max(1, min(most, rows * _BATCH_BYTES // max(1, size)))


def _complete(row: Document, partition: Document, columns: dict[str, Any]) -> Document:
    """In the order of the table's columns; what a file lacks is null. What else it has, such as the kind of a change,
    comes last."""
    known = row | partition
    return {name: known.pop(name, None) for name in columns} | known


def partition_values(file: File, columns: dict[str, Any]) -> Document:
    """Partition columns are in no file: their values are texts. Raises DeliveryError."""
    try:
        return {name: _partition_value(value, columns.get(name)) for name, value in file.partition.items()}
    except (ValueError, ArithmeticError, TypeError, AttributeError):
        text = f"A partition of the table has values that its columns cannot hold: {str(file.partition)[:200]}"
        raise DeliveryError(Reason.ANSWER, text, retryable=False) from None


def _partition_value(value: str | None, type: Any) -> Any:
    if value is None or value == "":
        return None
    if type in ("byte", "short", "integer", "long"):
        return json.bounded_int(json.loads(value), -(2**63), 2**63 - 1)
    if type == "boolean":
        return value.lower() == "true"
    if type in ("float", "double") or str(type).startswith("decimal"):
        return Decimal(value)
    if type == "timestamp":
        moment = value.replace(" ", "T", 1)
        return moment if moment.endswith("Z") or "+" in moment else f"{moment}Z"
    return value
