from typing import Literal

from pydantic import Field

from backend.domain import csv_text, formats, xml_text
from backend.domain.avro.schema import AvroSchema
from backend.domain.transforms.base import MetadataStep, Step, Transform, transforms


@transforms.register
class Decode(Transform):
    """Reads messages that are not JSON. Must be the first step."""

    example = {"type": "decode", "format": "csv", "delimiter": ";"}

    type: Literal["decode"] = "decode"
    format: Literal["csv", "xml", "avro"] = Field(
        description="csv: one message per row, all values as text. xml: attributes are named @name, an element that is "
        "there more than once is a list. avro: one binary datum."
    )
    delimiter: csv_text.Delimiter = Field(",", description="For CSV: separator between the values.")
    columns: csv_text.Columns = Field(
        default_factory=list, description="For CSV: names of the columns; if empty, the first row names them."
    )
    trim: bool = Field(False, description="For XML: remove white space at both ends of texts.")
    avro_schema: formats.AvroOption = Field(
        None, validate_default=True, description="For Avro: schema that the messages were written with."
    )

    @property
    def uses_metadata(self) -> bool:
        """The content type says in which encoding a text is."""
        return self.format != "avro"

    def compile(self) -> Step:
        """Unlike other steps, this one takes the body as bytes."""
        schema = AvroSchema(self.avro_schema)
        return lambda body: (formats.read_avro(body, schema),)

    def compile_with_metadata(self) -> MetadataStep:
        """As ``compile``, of a format of text."""
        if self.format == "csv":
            return lambda body, metadata: csv_text.read(body, self.delimiter, self.columns, metadata.charset)
        return lambda body, metadata: (xml_text.read(body, metadata.charset, trim=self.trim),)
