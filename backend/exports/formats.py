"""The formats of files. An encoder takes documents and gives bytes, piece by piece, so that a file of any size needs
little memory. The same documents make the same bytes."""

import csv
import hashlib
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.export_policy import ColumnType, ExportPolicy, is_avro_name
from backend.domain.message_maker import is_json
from backend.domain.reasons import Reason
from backend.exports.documents import Column, Document, converted

_GZIP_LEVEL = 6
_GZIP_FORMAT = 31
"""Makes zlib write gzip's header, without a time."""
_ZSTD_LEVEL = 3
_ROW_GROUP = 50_000
_ROW_GROUP_BYTES = 16 * 1024 * 1024
"""Of message bodies."""


class Encoder(ABC):
    """Writes one file. Works in threads, one call at a time."""

    @abstractmethod
    def add(self, rows: Sequence[Document]) -> bytes:
        """What the file grows by, as far as it is known. Raises DeliveryError for a value that does not fit."""

    @abstractmethod
    def finish(self) -> bytes:
        """The end of the file."""


def encoder_for(policy: ExportPolicy, columns: Sequence[Column], name: str) -> Encoder:
    """``name`` distinguishes the file from others."""
    match policy.format:
        case "csv":
            return _Text(policy, _CsvRows(policy, columns).text)
        case "jsonl":
            return _Text(policy, _JsonLines(policy, columns).text)
        case "parquet":
            return _Parquet(policy, columns)
        case "avro":
            return _Avro(policy, columns, name)


class _Text(Encoder):
    """Lines, and the compression of the whole file. ``text`` makes the lines of some rows."""

    def __init__(self, policy: ExportPolicy, text: Callable[[Sequence[Document]], bytes]) -> None:
        self._text = text
        self._compressor = _compressor(policy.compression)

    def add(self, rows: Sequence[Document]) -> bytes:
        text = self._text(rows)
        return self._compressor.compress(text) if self._compressor else text

    def finish(self) -> bytes:
        begin = self.add([])  # a file without rows has a header, too
        return begin + self._compressor.flush() if self._compressor else begin


def _compressor(compression: str) -> Any:
    if compression == "gzip":
        return zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)
    if compression == "zstd":
        from backports.zstd import ZstdCompressor

        return ZstdCompressor(level=_ZSTD_LEVEL)
    return None


class _CsvRows:
    """Lines as RFC 4180 has them."""

    def __init__(self, policy: ExportPolicy, columns: Sequence[Column]) -> None:
        self._policy = policy
        self._columns = columns
        # Nearly always all are fields of the document itself, which can be read several times as fast.
        steps = [column.steps or () for column in columns]
        self._names = [step[0] for step in steps if len(step) == 1]
        self._is_flat = len(self._names) == len(columns)
        self._begun = not policy.header
        # Python's writer writes these as JSON would, and nothing for null.
        self._plain = {int, type(None)} if policy.spreadsheet_safe else {int, type(None), str}

    def text(self, rows: Sequence[Document]) -> bytes:
        written = io.StringIO()
        # The end of lines also decides which characters make Python's writer quote a value.
        writer = csv.writer(written, delimiter=self._policy.delimiter, lineterminator="\r\n")
        if not self._begun and (rows or self._columns):
            writer.writerow([self._cell(column.title) for column in self._columns])
            self._begun = True
        names, columns, plain, cell = self._names, self._columns, self._plain, self._cell
        values = (
            (map(row.content.get, names) for row in rows)
            if self._is_flat
            else ([row.value(column) for column in columns] for row in rows)
        )
        writer.writerows([[value if type(value) in plain else cell(value) for value in row] for row in values])
        return written.getvalue().encode()

    def _cell(self, value: Any) -> str:
        if not isinstance(value, str):
            return json.dumps(value).decode()
        return f"'{value}" if self._policy.spreadsheet_safe and value.startswith(_FORMULAS) else value


_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What spreadsheets take for the beginning of a formula, as OWASP lists it for CSV injection."""


class _JsonLines:
    def __init__(self, policy: ExportPolicy, columns: Sequence[Column]) -> None:
        self._columns = columns if policy.columns else None
        self._own = [column for column in columns if column.steps is None]

    def text(self, rows: Sequence[Document]) -> bytes:
        return b"".join([self._line(row) + b"\n" for row in rows])

    def _line(self, row: Document) -> bytes:
        if self._columns is not None:
            return json.dumps({column.title: row.value(column) for column in self._columns})
        if self._own:
            own = {column.title: row.value(column) for column in self._own}
            return json.dumps(own | row.content | own)
        message = row.message
        if (
            message.body[:1] == b"{"
            and b"\n" not in message.body
            and b"\r" not in message.body
            and is_json(message.content_type)
        ):
            return message.body
        return json.dumps(row.content)


class _Sink(io.RawIOBase):
    """Collects what a library writes."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._length += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._length

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class _Parquet(Encoder):
    def __init__(self, policy: ExportPolicy, columns: Sequence[Column]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {
            ColumnType.TEXT: pa.string(),
            ColumnType.JSON: pa.string(),
            ColumnType.INTEGER: pa.int64(),
            ColumnType.NUMBER: pa.float64(),
            ColumnType.BOOLEAN: pa.bool_(),
            ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
        }
        self._columns = columns
        self._schema = pa.schema([(column.title, types[column.type]) for column in columns])
        self._sink = _Sink()
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression=policy.compression)
        self._values: list[list[Any]] = [[] for _ in columns]
        self._rows = self._bytes = 0

    def add(self, rows: Sequence[Document]) -> bytes:
        for values, column in zip(self._values, self._columns, strict=True):
            values += [converted(row, column) for row in rows]
        self._rows += len(rows)
        self._bytes += sum([len(row.message.body) for row in rows])
        if self._rows >= _ROW_GROUP or self._bytes >= _ROW_GROUP_BYTES:
            self._write_group()
        return self._sink.take()

    def finish(self) -> bytes:
        if self._rows:
            self._write_group()
        self._writer.close()
        return self._sink.take()

    def _write_group(self) -> None:
        import pyarrow as pa

        arrays = [pa.array(values, field.type) for values, field in zip(self._values, self._schema, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=_ROW_GROUP)
        self._values = [[] for _ in self._columns]
        self._rows = self._bytes = 0


_AVRO_TYPES: dict[ColumnType, Any] = {
    ColumnType.TEXT: "string",
    ColumnType.JSON: "string",
    ColumnType.INTEGER: "long",
    ColumnType.NUMBER: "double",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
}


class _Avro(Encoder):
    def __init__(self, policy: ExportPolicy, columns: Sequence[Column], name: str) -> None:
        from fastavro.write import Writer

        if unfit := [column.title for column in columns if not is_avro_name(column.title)]:
            raise DeliveryError(
                Reason.UNFIT_VALUE,
                f"Avro's names consist of letters, digits and _, which the field {unfit[0]!r} does not keep: choose "
                "columns with other names, publish, and retry with the published version.",
                retryable=False,
            )
        fields = [
            {"name": column.title, "type": ["null", _AVRO_TYPES[column.type]], "default": None} for column in columns
        ]
        schema = {"type": "record", "name": "Message", "fields": fields}
        codec = "zstandard" if policy.compression == "zstd" else "null"
        self._columns = columns
        self._sink = _Sink()
        # The marker is random unless it is given.
        marker = hashlib.md5(name.encode(), usedforsecurity=False).digest()
        self._writer = Writer(cast(Any, self._sink), schema, codec, sync_marker=marker)

    def add(self, rows: Sequence[Document]) -> bytes:
        for row in rows:
            self._writer.write({column.title: converted(row, column) for column in self._columns})
        return self._sink.take()

    def finish(self) -> bytes:
        self._writer.flush()
        return self._sink.take()
