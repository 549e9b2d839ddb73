"""Converts message bodies in CSV, XML and Avro to documents and back.

Every function raises ValueError, with a sentence, for data that it cannot read or write.
"""

import csv
import io
import struct
from decimal import Decimal
from typing import Any
from xml.parsers.expat import ExpatError

import fastavro

from backend.domain import json, limits

_CONFLUENT_HEADER = 5
"""The bytes that a Confluent serializer writes before a datum: zero, and the schema's id in four bytes."""


def read_csv(data: bytes, delimiter: str, columns: list[str]) -> list[dict[str, str]]:
    """One document per row, with all values as text. Without ``columns`` the first row names them."""
    rows = csv.reader(io.StringIO(_text(data), newline=""), delimiter=delimiter, strict=True)
    try:
        names = columns or next(rows, [])
        documents, made = [], limits.FanOut()
        for row in rows:
            if row:
                made.add(0)
                documents.append(_named(names, row, rows.line_num))
        return documents
    except csv.Error as error:
        raise ValueError(f"This is not valid CSV: {error}.") from None


def write_csv(document: Any, delimiter: str, columns: list[str]) -> bytes:
    """One row without a line ending. Missing fields become empty values."""
    if not isinstance(document, dict):
        raise ValueError("Only an object can be written as CSV.")
    written = io.StringIO()
    texts: list[str] = []
    size = 0
    for name in columns:
        value = document.get(name)
        text = "" if value is None else json.text(value)
        size += len(text)
        limits.check_body(size)
        texts.append(text)
    csv.writer(written, delimiter=delimiter, lineterminator="").writerow(texts)
    return written.getvalue().encode()


def read_xml(data: bytes) -> dict[str, Any]:
    """The root element as an object: attributes as ``@name``, text next to them as ``#text``. Entities are rejected."""
    import xmltodict

    try:
        return dict(xmltodict.parse(data))
    except (ExpatError, ValueError, LookupError) as error:
        raise ValueError(f"This is not valid XML: {error}.") from None


def write_xml(document: Any, root: str) -> bytes:
    """The inverse of read_xml; the document is placed below the element ``root``."""
    import xmltodict

    try:
        return str(xmltodict.unparse({root: _texts(document)})).encode()
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"This cannot be written as XML: {error}.") from None


def avro_schema(schema: Any) -> Any:
    """Parses a schema for use with read_avro and write_avro."""
    try:
        return fastavro.parse_schema(schema)
    except Exception as error:  # fastavro raises many kinds of errors
        raise ValueError(f"This is not a valid Avro schema: {error}.") from None


def confluent_header(schema_id: int) -> bytes:
    """The bytes before a datum whose schema has this id in the registry."""
    return struct.pack(">bI", 0, schema_id)


def read_avro(data: bytes, schema: Any) -> Any:
    """Reads one binary datum, with or without the header of a Confluent serializer."""
    if data[:1] == b"\0" and len(data) > _CONFLUENT_HEADER:
        try:
            return read_avro_datum(data[_CONFLUENT_HEADER:], schema)
        except ValueError:
            pass  # the zero byte may be part of the datum
    return read_avro_datum(data, schema)


def write_avro(document: Any, schema: Any) -> bytes:
    """Writes one binary datum without a header. Fields that have a default may be missing."""
    written = io.BytesIO()
    try:
        fastavro.schemaless_writer(written, schema, _floats(document), strict_allow_default=True)
    except Exception as error:
        raise ValueError(f"This does not fit the Avro schema: {error!r:.300}.") from None
    return written.getvalue()


def read_avro_datum(data: bytes, schema: Any) -> Any:
    """Reads one binary datum without a header."""
    source = io.BytesIO(data)
    try:
        datum = fastavro.schemaless_reader(source, schema, None)
    except Exception as error:
        raise ValueError(f"This is not Avro data of the given schema: {error!r:.300}.") from None
    if source.tell() != len(data):
        raise ValueError("This is not Avro data of the given schema: there are bytes after the datum.")
    return json_values(datum)


def json_values(datum: Any) -> Any:
    """Converts Avro's values to those of JSON: bytes to text, times to ISO 8601."""
    if isinstance(datum, dict):
        return {str(key): json_values(value) for key, value in datum.items()}
    if isinstance(datum, list | tuple):
        return [json_values(value) for value in datum]
    if isinstance(datum, bytes):
        return datum.decode("latin-1")
    if datum is None or isinstance(datum, str | bool | int | float | Decimal):
        return datum
    return datum.isoformat() if hasattr(datum, "isoformat") else str(datum)


def _floats(document: Any) -> Any:
    """Converts decimals to floats, which Avro's float and double require."""
    if isinstance(document, dict):
        return {key: _floats(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_floats(value) for value in document]
    return float(document) if isinstance(document, Decimal) else document


def _texts(value: Any) -> Any:
    """Converts scalars to their text in JSON."""
    if isinstance(value, dict):
        return {key: _texts(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_texts(part) for part in value]
    return None if value is None else json.text(value)


def _named(names: list[str], row: list[str], line: int) -> dict[str, str]:
    if len(row) != len(names):
        raise ValueError(f"Line {line} has {len(row)} values for {len(names)} columns.")
    return dict(zip(names, row, strict=True))


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"This is not valid UTF-8: {error.reason} at byte {error.start}.") from None
