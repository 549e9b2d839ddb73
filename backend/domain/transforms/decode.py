from typing import Literal

from pydantic import Field

from backend.domain import csv_text, formats, xml_text
from backend.domain.avro.schema import AvroSchema
from backend.domain.transforms.base import Step, Transform, transforms


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

    def compile(self) -> Step:
        """Unlike other steps, this one takes the body as bytes."""
        if self.format == "csv":
            return lambda body: csv_text.read(body, self.delimiter, self.columns)
        if self.format == "xml":
            return lambda body: (xml_text.read(body, trim=self.trim),)
        schema = AvroSchema(self.avro_schema)
        return lambda body: (formats.read_avro(body, schema),)
