"""Converts message bodies in CSV, XML and Avro to documents and back.

Every function raises ValueError, with a sentence, for data that it cannot read or write.
"""

import csv
import io
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any
from xml.parsers import expat

from pydantic import AfterValidator, JsonValue, ValidationInfo

from backend.domain import json, limits
from backend.domain.avro.schema import AvroSchema

_CONFLUENT_HEADER = 5
"""The bytes that a Confluent serializer writes before a datum: zero, and the schema's id in four bytes."""


def _check_avro(schema: JsonValue, info: ValidationInfo) -> JsonValue:
    if info.data.get("format") == "avro":
        AvroSchema(schema)
    return schema


AvroOption = Annotated[JsonValue, AfterValidator(_check_avro)]
"""The schema that a model with the field ``format`` needs for Avro."""


def read_csv(data: bytes, delimiter: str, columns: list[str]) -> list[dict[str, str]]:
    """One document per row, with all values as text. Without ``columns`` the first row names them."""
    rows = csv.reader(io.StringIO(_text(data), newline=""), delimiter=delimiter, strict=True)
    try:
        names = columns or next(rows, [])
        documents, made = [], limits.FanOut()
        least = sum(map(len, names))  # of a document, which has all names, however short its row is
        for row in rows:
            if row:
                made.add(least)
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
    """The root element as an object: attributes as ``@name``, text next to them as ``#text``. Declarations of entities
    and of attributes are rejected, since a few bytes of them could stand for any number."""
    import xmltodict

    try:
        _check_xml(data)
        return dict(xmltodict.parse(data))
    except limits.TooLargeError:
        raise
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise ValueError(f"This is not valid XML: {error}.") from None


def _check_xml(data: bytes) -> None:
    """The library keeps all open elements before it makes the first object of them."""
    depth = 0

    def start(_name: str, _attributes: Any) -> None:
        nonlocal depth
        depth += 1
        limits.check_depth(depth)

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(problem: str) -> Callable[..., None]:
        def handler(*_declaration: Any) -> None:
            raise ValueError(problem)

        return handler

    parser = expat.ParserCreate()
    parser.ordered_attributes = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.EntityDeclHandler, parser.AttlistDeclHandler = (
        refuse("entities are disabled"),
        refuse("declarations of attributes are disabled"),
    )
    parser.Parse(data, True)


def write_xml(document: Any, root: str) -> bytes:
    """The inverse of read_xml; the document is placed below the element ``root``."""
    import xmltodict

    try:
        return str(xmltodict.unparse({root: _texts(document)})).encode()
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"This cannot be written as XML: {error}.") from None


def confluent_header(schema_id: int) -> bytes:
    """The bytes before a datum whose schema has this id in the registry."""
    return struct.pack(">bI", 0, schema_id)


def read_avro(data: bytes, schema: AvroSchema) -> Any:
    """Reads one binary datum, with or without the header of a Confluent serializer."""
    behind_header: ValueError | None = None
    if data[:1] == b"\0" and len(data) > _CONFLUENT_HEADER:
        try:
            return json_values(schema.read(data[_CONFLUENT_HEADER:]))
        except ValueError as error:
            behind_header = error  # the zero byte may be part of the datum
    try:
        return json_values(schema.read(data))
    except ValueError as error:
        raise behind_header if isinstance(behind_header, limits.TooLargeError) else error from None


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
