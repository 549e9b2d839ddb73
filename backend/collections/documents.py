"""A document, and documents as Parquet."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes], ...]

ROW_GROUP_BYTES = 1024 * 1024
"""About how much is read and decoded at a time."""


class Document(NamedTuple):
    """A document of a collection. ``timestamp`` is when it was appended, in milliseconds since 1970. A ``deleted``
    document says that what has its key is deleted."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: Headers = ()
    deleted: bool = False

    @property
    def size(self) -> int:
        """Its bytes without the place that it takes in a format."""
        size = len(self.key or b"") + len(self.value)
        return size + sum(len(name.encode()) + len(value) for name, value in self.headers) if self.headers else size


def arrow_schema(*, partition: bool) -> Any:
    """The table's columns. Files have no column for the partition, which their place tells."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
    fields = [
        pa.field("offset", pa.int64(), False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", header, False))),
        pa.field("deleted", pa.bool_(), False),
    ]
    return pa.schema([pa.field("partition", pa.int32(), False), *fields] if partition else fields)


def encode(documents: Sequence[Document]) -> bytes:
    """Documents, in the order of their offsets, as a Parquet file."""
    import pyarrow as pa

    columns: list[list[Any]] = [
        [document.offset for document in documents],
        [document.timestamp * 1000 for document in documents],
        [document.key for document in documents],
        [document.value for document in documents],
        [[{"key": name, "value": value} for name, value in document.headers] for document in documents],
        [document.deleted for document in documents],
    ]
    schema = arrow_schema(partition=False)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return encode_table(pa.Table.from_arrays(arrays, schema=schema))


def encode_table(table: Any) -> bytes:
    """The same for an Arrow table with the columns of a file."""
    import pyarrow.parquet as pq

    rows = max(1, table.num_rows * ROW_GROUP_BYTES // max(1, table.nbytes))
    written = io.BytesIO()
    pq.write_table(table, written, compression="zstd", row_group_size=rows, write_statistics=["offset", "timestamp"])
    return written.getvalue()


def decode(rows: Any) -> list[Document]:
    """The documents of an Arrow table. Column by column: most of the time that reading takes is spent here."""
    import pyarrow as pa

    milliseconds = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    offsets, keys, values, deleted = (rows.column(name).to_pylist() for name in ("offset", "key", "value", "deleted"))
    headers = _headers(rows.column("headers").combine_chunks())
    return list(map(Document._make, zip(offsets, milliseconds, keys, values, headers, deleted, strict=True)))


def _headers(column: Any) -> list[Headers]:
    entries = column.flatten()  # without those of rows that are null
    if not len(entries):
        return [()] * len(column)
    pairs = list(zip(entries.field("key").to_pylist(), entries.field("value").to_pylist(), strict=True))
    headers, begin = [], 0
    for length in column.value_lengths().to_pylist():
        end = begin + (length or 0)
        headers.append(tuple(pairs[begin:end]))
        begin = end
    return headers
