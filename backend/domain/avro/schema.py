"""A schema with the bounds of its data, and how data are read and written by it."""

import io
import math
from typing import Any

import fastavro

from backend.domain import limits
from backend.domain.avro.builder import types_of
from backend.domain.avro.plain_types import DECIMAL_BYTES, LongDecimal
from backend.domain.avro.scalars import MisfitError
from backend.domain.avro.types import Preparation, Scan, wrong

_SCHEMA_DEPTH = 4 * limits.DEPTH
"""Of a schema as JSON: a record, its list of fields, a field and a union are four levels for one of the data."""
_OWN_MARKS = ("__fastavro_parsed", "__named_schemas")
"""By these the library knows schemas that it has parsed, which it does not check again."""


class SchemaError(ValueError):
    """What should be a schema is none, or its data would not be within the limits; the message is a sentence."""


class AvroSchema:
    """A parsed schema, and how much its data can become."""

    def __init__(self, schema: Any) -> None:
        """``schema`` is JSON as it was decoded. Raises SchemaError."""
        try:
            _check_json(schema)
            self.parsed: Any = fastavro.parse_schema(schema)
            self._type = types_of(self.parsed)
            depth = self._type.depth()
            if limits.DEPTH < depth < math.inf:
                raise ValueError(f"it is nested more than {limits.DEPTH} deep")
        except RecursionError:
            raise SchemaError("This is not a valid Avro schema: it is nested too deeply.") from None
        except Exception as error:  # fastavro raises many kinds of errors
            raise SchemaError(f"This is not a valid Avro schema: {error!s:.300}.") from None
        types = self._type.all()
        # Up to this size data are within the limits, whatever is in them: each byte makes a value at most, and those
        # that need none. Most data are smaller, so that they are read without being passed over first.
        self._harmless = min(
            math.inf if depth < math.inf else limits.DEPTH,
            limits.VALUES // (1 + max(type_.free() for type_ in types)),
            DECIMAL_BYTES if any(isinstance(type_, LongDecimal) for type_ in types) else math.inf,
        )

    def read(self, data: bytes) -> Any:
        """The datum that the bytes are, as native values. Raises ValueError, TooLargeError among them."""
        source = io.BytesIO(data)
        datum = self.read_next(source)
        _check_end(source, data)
        return datum

    def read_json(self, data: bytes) -> Any:
        """The datum as JSON, of which ``write`` makes the same bytes again, except that an integer or a float may be of
        another width where a union has both. Raises as ``read`` does."""
        source = io.BytesIO(data)
        datum = self.read_next(source, named=True)
        _check_end(source, data)
        try:
            return self._type.plain(datum, Preparation())
        except MisfitError as error:
            raise ValueError(f"This Avro datum cannot be shown as JSON: {error}.") from None

    def read_next(self, source: io.BytesIO, *, named: bool = False) -> Any:
        """The datum that begins at the position, which is then behind it. With ``named``, values of named types in
        unions are pairs of the type's name and the value. Raises as ``read`` does."""
        with source.getbuffer() as data:
            if len(data) - source.tell() > self._harmless:
                Scan(data, source.tell()).pass_over(self._type)
        try:
            return fastavro.schemaless_reader(source, self.parsed, None, return_named_type=named)
        except MisfitError as error:
            raise wrong(str(error)) from None
        except Exception as error:
            raise ValueError(f"This is not Avro data of the given schema: {error!r:.300}.") from None

    def write(self, document: Any) -> bytes:
        """The datum of a JSON value, in which fields that have a default may be missing. Raises ValueError,
        TooLargeError among them."""
        written = io.BytesIO()
        try:
            prepared = self._type.prepared(document, Preparation(), 0)
            fastavro.schemaless_writer(written, self.parsed, prepared, strict_allow_default=True)
        except limits.TooLargeError:
            raise
        except MisfitError as error:
            place = ".".join(error.path) or "The message"
            raise ValueError(f"{place} does not fit the Avro schema: {error}.") from None
        except Exception as error:
            raise ValueError(f"This does not fit the Avro schema: {error!r:.300}.") from None
        return written.getvalue()


def _check_end(source: io.BytesIO, data: bytes) -> None:
    if source.tell() != len(data):
        raise ValueError("This is not Avro data of the given schema: there are bytes after the datum.")


def _check_json(schema: Any) -> None:
    """Bounds what the library follows when it parses a schema."""
    level = [schema]
    for _ in range(_SCHEMA_DEPTH):
        parts: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if marks := [mark for mark in _OWN_MARKS if mark in value]:
                    raise ValueError(f"it has the property {marks[0]}")
                parts += value.values()
            elif isinstance(value, list):
                parts += value
        if not parts:
            return
        level = parts
    raise ValueError("it is nested too deeply")
