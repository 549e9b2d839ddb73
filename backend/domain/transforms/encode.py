from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, model_validator

from backend.domain import csv_text, formats, xml_text
from backend.domain.avro.schema import AvroSchema
from backend.domain.transforms.base import Encoded, Step, Transform, transforms

_CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "xml": "application/xml", "avro": "avro/binary"}


@transforms.register
class Encode(Transform):
    """Writes messages in a format other than JSON. Must be the last step."""

    example = {"type": "encode", "format": "csv", "columns": ["id", "total"]}

    type: Literal["encode"] = "encode"
    format: Literal["csv", "xml", "avro"] = Field(
        description="csv: one row, in which missing fields and null are empty. xml: @name becomes an attribute, a list "
        "repeats its element. avro: one binary datum."
    )
    delimiter: csv_text.Delimiter = Field(",", description="For CSV: separator between the values.")
    columns: list[str] = Field(default_factory=list, description="For CSV: fields to write, in order.")
    root: str = Field("message", pattern=r"^[A-Za-z_][\w.-]*$", description="For XML: name of the root element.")
    avro_schema: formats.AvroOption = Field(None, validate_default=True, description="For Avro: schema to write with.")

    @model_validator(mode="after")
    def _check_complete(self) -> "Encode":
        if self.format == "csv" and not self.columns:
            raise ValueError("CSV requires columns: list the fields to write.")
        return self

    def compile(self) -> Step:
        write, content_type = self._writer(), _CONTENT_TYPES[self.format]
        return lambda document: (Encoded(write(document), content_type),)

    def _writer(self) -> Callable[[Any], bytes]:
        if self.format == "csv":
            return lambda document: csv_text.write(document, self.delimiter, self.columns)
        if self.format == "xml":
            return lambda document: xml_text.write(document, self.root)
        return AvroSchema(self.avro_schema).write
