"""Converts message bodies in Avro to documents and back.

Every function raises ValueError, with a sentence, for data that it cannot read or write.
"""

import struct
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, JsonValue, ValidationInfo

from backend.domain import limits
from backend.domain.avro.schema import AvroSchema

_CONFLUENT_HEADER = 5
"""The bytes that a Confluent serializer writes before a datum: zero, and the schema's id in four bytes."""


def _check_avro(schema: JsonValue, info: ValidationInfo) -> JsonValue:
    if info.data.get("format") == "avro":
        AvroSchema(schema)
    return schema


AvroOption = Annotated[JsonValue, AfterValidator(_check_avro)]
"""The schema that a model with the field ``format`` needs for Avro."""


def confluent_header(schema_id: int) -> bytes:
    """The bytes before a datum whose schema has this id in the registry."""
    return struct.pack(">bI", 0, schema_id)


def read_avro(data: bytes, schema: AvroSchema) -> Any:
    """Reads one binary datum, with or without the header of a Confluent serializer."""
    behind_header: ValueError | None = None
    if data[:1] == b"\0" and len(data) > _CONFLUENT_HEADER:
        try:
            return schema.read_json(data[_CONFLUENT_HEADER:])
        except ValueError as error:
            behind_header = error  # the zero byte may be part of the datum
    try:
        return schema.read_json(data)
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
