"""Message bodies in other formats than JSON: CSV, XML and Avro, to documents and back.

Every function raises ValueError, with a sentence, on data that it cannot read or write.
"""

import csv
import io
import struct
from decimal import Decimal
from typing import Any
from xml.parsers.expat import ExpatError

import fastavro
import xmltodict

from backend.domain import json

_CONFLUENT_HEADER = 5
"""A zero byte and the schema's id in four, before what a Confluent serializer writes."""


def read_csv(data: bytes, delimiter: str, columns: list[str]) -> list[dict[str, str]]:
    """One document per row, all values as text. Without ``columns`` the first row names them."""
    rows = csv.reader(io.StringIO(_text(data), newline=""), delimiter=delimiter, strict=True)
    try:
        names = columns or next(rows, [])
        return [_named(names, row, rows.line_num) for row in rows if row]
    except csv.Error as error:
        raise ValueError(f"This is not CSV: {error}.") from None


def write_csv(document: Any, delimiter: str, columns: list[str]) -> bytes:
    """One row without its end. Fields that are missing are empty."""
    if not isinstance(document, dict):
        raise ValueError("Only an object can be written as CSV.")
    written = io.StringIO()
    values = [document.get(name) for name in columns]
    csv.writer(written, delimiter=delimiter, lineterminator="").writerow(
        "" if value is None else json.text(value) for value in values
    )
    return written.getvalue().encode()


def read_xml(data: bytes) -> dict[str, Any]:
    """The root element as an object: attributes as ``@name``, text beside them as ``#text``. Entities are refused."""
    try:
        return dict(xmltodict.parse(data))
    except (ExpatError, ValueError, LookupError) as error:
        raise ValueError(f"This is not XML: {error}.") from None


def write_xml(document: Any, root: str) -> bytes:
    """The inverse, with the document below the element ``root``."""
    try:
        return str(xmltodict.unparse({root: _texts(document)})).encode()
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"This cannot be written as XML: {error}.") from None


def avro_schema(schema: Any) -> Any:
    """The schema, ready for use."""
    try:
        return fastavro.parse_schema(schema)
    except Exception as error:  # whatever is wrong with a schema, fastavro finds it in its own way
        raise ValueError(f"This is not an Avro schema: {error}.") from None


def confluent_header(schema_id: int) -> bytes:
    """What stands before a datum whose schema the registry knows by that id."""
    return struct.pack(">bI", 0, schema_id)


def read_avro(data: bytes, schema: Any) -> Any:
    """One binary datum, with or without the header of a Confluent serializer."""
    if data[:1] == b"\0" and len(data) > _CONFLUENT_HEADER:
        try:
            return _avro_datum(data[_CONFLUENT_HEADER:], schema)
        except ValueError:
            pass  # it may begin with a zero byte of its own
    return _avro_datum(data, schema)


def write_avro(document: Any, schema: Any) -> bytes:
    written = io.BytesIO()
    try:
        fastavro.schemaless_writer(written, schema, _floats(document), strict=True)
    except Exception as error:
        raise ValueError(f"This does not fit the Avro schema: {error!r:.300}.") from None
    return written.getvalue()


def _avro_datum(data: bytes, schema: Any) -> Any:
    source = io.BytesIO(data)
    try:
        datum = fastavro.schemaless_reader(source, schema, None)
    except Exception as error:
        raise ValueError(f"This is not Avro of the given schema: {error!r:.300}.") from None
    if source.tell() != len(data):
        raise ValueError("This is not Avro of the given schema: something follows it.")
    return _json_values(datum)


def _json_values(datum: Any) -> Any:
    """Avro's values as JSON has them: bytes as text, times as ISO 8601."""
    if isinstance(datum, dict):
        return {str(key): _json_values(value) for key, value in datum.items()}
    if isinstance(datum, list | tuple):
        return [_json_values(value) for value in datum]
    if isinstance(datum, bytes):
        return datum.decode("latin-1")
    if datum is None or isinstance(datum, str | bool | int | float | Decimal):
        return datum
    return datum.isoformat() if hasattr(datum, "isoformat") else str(datum)


def _floats(document: Any) -> Any:
    """Decimals as floats, which Avro's float and double want."""
    if isinstance(document, dict):
        return {key: _floats(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_floats(value) for value in document]
    return float(document) if isinstance(document, Decimal) else document


def _texts(value: Any) -> Any:
    """Scalars as JSON writes them."""
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
        raise ValueError(f"This is not UTF-8: {error.reason} at byte {error.start}.") from None
