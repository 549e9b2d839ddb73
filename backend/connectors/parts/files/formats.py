"""Formats of files, read as rows: each is an iterator of JSON documents that reads no further than it has to."""

import csv
import io
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, model_validator

from backend.connectors.parts.files.sources import MOST_ROW_BYTES, SizedRows, decompressed
from backend.domain import json
from backend.domain.model import ADVANCED, StrictModel

_SAMPLE_BYTES = 512 * 1024
"""Of a file as it is stored, which may be compressed: much more than is read ahead of a row."""
_SAMPLE_ROW_BYTES = 8 * 1024 * 1024
_PARQUET_ROWS = 256
_PARQUET_BYTES = 1024 * 1024


class BadFileError(Exception):
    """The contents of a file are at fault; the message says how."""


class Row(NamedTuple):
    document: bytes
    """JSON."""
    fault: str = ""
    """What is wrong with a row that does not fit the file's columns; the document is then what could be read of it."""


class Format(StrictModel, ABC):
    @abstractmethod
    def rows(self, file: io.RawIOBase, skip: int) -> Iterator[Row]:
        """The rows after the first ``skip`` ones. Whatever is raised is about the file's contents, except what the
        file's own methods raise."""

    def estimated_rows(self, file: io.RawIOBase, size: int) -> float:
        """About how many rows a file of that size has, as its beginning lets expect. Raises what ``rows`` does."""
        rows = sample = 0
        for row in self.rows(file, 0):
            rows, sample = rows + 1, sample + len(row.document)
            if file.tell() >= _SAMPLE_BYTES or sample >= _SAMPLE_ROW_BYTES:
                return rows * size / file.tell()
        return rows


class _Streamed(Format, ABC):
    """A format that is read from the beginning; compression is recognized by the content."""

    def rows(self, file: io.RawIOBase, skip: int) -> Iterator[Row]:
        sized = SizedRows(decompressed(file))
        for row in itertools.islice(self._rows(io.BufferedReader(sized, 64 * 1024)), skip, None):
            yield row
            sized.row_ended()

    @abstractmethod
    def _rows(self, file: io.BufferedReader) -> Iterator[Row]: ...


class Csv(_Streamed):
    """Rows of separated values; each becomes an object."""

    type: Literal["csv"] = "csv"
    delimiter: str = Field(
        ",",
        pattern=r"^([^\r\n\x00]|tab)$",
        description="Character between two values, or the word tab.",
        examples=[";"],
    )
    header: bool = Field(True, description="The first row names the columns.")
    columns: list[str] = Field(
        default_factory=list,
        max_length=2000,
        description="Names of the columns of files without a header; column_1, column_2 and so on by default.",
        examples=[["id", "total"]],
    )
    types: dict[str, Literal["text", "integer", "number", "boolean", "json"]] = Field(
        default_factory=dict,
        description="Types of columns by their names. The others are text. An empty value of another type than text "
        "becomes null. A row with a value that is not of its type becomes a dead letter.",
        examples=[{"id": "integer"}],
    )
    quote: str = Field(
        '"',
        pattern=r"^[^\r\n\x00]?$",
        description="Character around values that hold a delimiter or a line break; twice within them it stands for "
        "itself. Empty for none.",
        json_schema_extra=ADVANCED,
    )
    encoding: Literal["utf-8", "utf-16", "latin-1", "windows-1252"] = Field(
        "utf-8", description="Encoding of the characters.", json_schema_extra=ADVANCED
    )

    @model_validator(mode="after")
    def _check_columns(self) -> "Csv":
        if self.header and self.columns:
            raise ValueError("Files with a header name their columns themselves.")
        if self.quote == self.delimiter:
            raise ValueError("The delimiter and the quote have to be different characters.")
        return self

    def _rows(self, file: io.BufferedReader) -> Iterator[Row]:
        csv.field_size_limit(MOST_ROW_BYTES)
        encoding = {"utf-8": "utf-8-sig", "windows-1252": "cp1252"}.get(self.encoding, self.encoding)
        text = _Lines(io.TextIOWrapper(file, encoding, newline=""))
        lines = csv.reader(
            text,
            delimiter="\t" if self.delimiter == "tab" else self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            strict=True,
        )
        rows = filter(None, lines)  # an empty line is no row
        first = next(rows, None)
        if first is None:
            return
        columns = self._columns(first)
        readers = [_CSV_TYPES[self.types.get(column, "text")] for column in columns]
        fits = False
        for row in rows if self.header else itertools.chain([first], rows):
            try:
                document = {name: read(value) for name, read, value in zip(columns, readers, row, strict=True)}
            except (ValueError, InvalidOperation):
                fault = f"line {lines.line_num}: {self._fault(columns, row)}"
                # Where no row fits, the file has other columns, and where the last line has no end, it is incomplete.
                if not fits or not text.ended:
                    raise BadFileError(fault) from None
                yield Row(json.dumps(dict(zip(columns, row, strict=True)) if len(row) == len(columns) else row), fault)
            else:
                fits = True
                yield Row(json.dumps(document))

    def _columns(self, first: list[str]) -> list[str]:
        columns = first if self.header else self.columns or [f"column_{number + 1}" for number in range(len(first))]
        if repeated := next((name for name, count in Counter(columns).items() if count > 1), None):
            raise BadFileError(f"There are several columns with the name {repeated!r}.")
        if unknown := self.types.keys() - set(columns):
            raise BadFileError(f"There is no column {min(unknown)!r}, which has a type; there are {columns!s:.1000}.")
        return columns

    def _fault(self, columns: list[str], row: list[str]) -> str:
        if len(row) != len(columns):
            return f"the number of values is {len(row)} instead of {len(columns)}"
        for column, value in zip(columns, row, strict=True):
            kind = self.types.get(column, "text")
            try:
                _CSV_TYPES[kind](value)
            except (ValueError, InvalidOperation):
                return f"the value of column {column!r} is not of the type {kind}"
        raise AssertionError


class _Lines(Iterator[str]):
    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.ended = False
        """The last line had an end, so that it was written as a whole."""

    def __next__(self) -> str:
        line = next(self._lines)
        self.ended = line.endswith(("\n", "\r"))
        return line


def _number(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError
    return number


_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False, "yes": True, "no": False}


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError
    return _BOOLEANS[text.lower()]


def _or_null(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: read(text) if text else None


_CSV_TYPES: dict[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "integer": _or_null(int),
    "number": _or_null(_number),
    "boolean": _or_null(_boolean),
    "json": _or_null(json.loads),
}


def _row(document: Any) -> Row:
    return Row(json.dumps(document))


class JsonLines(_Streamed):
    """A JSON document on each line."""

    model_config = ConfigDict(title="JSON lines")

    type: Literal["json_lines"] = "json_lines"

    def _rows(self, file: io.BufferedReader) -> Iterator[Row]:
        first = True
        for line in iter(lambda: file.readline(MOST_ROW_BYTES), b""):
            # A line in the midst that is not JSON becomes a dead letter as any message does. The first one says that
            # the file has another format, and a last one without its end that the file is incomplete.
            if first or not line.endswith(b"\n"):
                try:
                    json.loads(line.strip() or b"null")
                except json.InvalidJsonError as error:
                    raise BadFileError(f"A line is not JSON: {error}") from None
            if document := line.strip():
                first = False
                yield Row(document)


class Json(_Streamed):
    """An array, each item of which becomes a message, or one document."""

    model_config = ConfigDict(title="JSON")

    type: Literal["json"] = "json"

    def _rows(self, file: io.BufferedReader) -> Iterator[Row]:
        import ijson

        if _first_character(file) == b"[":
            yield from map(_row, ijson.items(file, "item", use_float=False))
            return
        document = file.read()
        try:
            json.loads(document)
        except json.InvalidJsonError as error:
            raise BadFileError(f"It is not JSON: {error}") from None
        yield Row(document.strip())


def _first_character(file: io.BufferedReader) -> bytes:
    """That is no space; it is not consumed."""
    while (begin := file.peek(1)) and not begin.strip():
        file.read(len(begin))
    return begin.strip()[:1]


class Parquet(Format):
    """Rows of Parquet files. Binary values become Base64."""

    type: Literal["parquet"] = "parquet"

    def estimated_rows(self, file: io.RawIOBase, size: int) -> float:
        import pyarrow
        from pyarrow import parquet

        return float(parquet.ParquetFile(pyarrow.PythonFile(file, mode="r")).metadata.num_rows)

    def rows(self, file: io.RawIOBase, skip: int) -> Iterator[Row]:
        import pyarrow
        from pyarrow import parquet

        # Pages are read one after the other, so that memory does not grow with the row groups.
        table = parquet.ParquetFile(
            pyarrow.PythonFile(file, mode="r"), buffer_size=_PARQUET_BYTES, coerce_int96_timestamp_unit="us"
        )
        for group in range(table.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            if skip >= rows:
                skip -= rows
                continue
            for batch in table.iter_batches(_PARQUET_ROWS, row_groups=[group], use_threads=False):
                for row in _readable(batch.slice(min(skip, batch.num_rows))).to_pylist(maps_as_pydicts="strict"):
                    yield _row(row)
                skip = max(0, skip - batch.num_rows)


def _readable(batch: Any) -> Any:
    """With times in microseconds, the finest that Python has; what is finer is cut off."""
    import pyarrow

    fields = [field.with_type(_in_microseconds(field.type)) for field in batch.schema]
    schema = pyarrow.schema(fields)
    return batch if schema.equals(batch.schema) else batch.cast(schema, safe=False)


def _in_microseconds(kind: Any) -> Any:
    import pyarrow
    from pyarrow import types

    if types.is_timestamp(kind):
        return pyarrow.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if types.is_time64(kind):
        return pyarrow.time64("us")
    if types.is_duration(kind):
        return pyarrow.duration("us") if kind.unit == "ns" else kind
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    return kind


class Avro(_Streamed):
    """Records of Avro files. Binary values become Base64."""

    type: Literal["avro"] = "avro"

    def _rows(self, file: io.BufferedReader) -> Iterator[Row]:
        from backend.domain.avro.files import read_file

        yield from map(_row, read_file(file))


FileFormat = Annotated[Csv | JsonLines | Json | Parquet | Avro, Field(discriminator="type")]
