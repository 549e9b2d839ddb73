"""The hand-over to stream processing: messages as Avro, in a topic of the pipeline's own."""

from collections.abc import Callable
from typing import Any

from pydantic import Field, JsonValue, field_validator

from backend.domain import formats
from backend.domain.model import StrictModel
from backend.domain.transforms.base import TransformError

CONTENT_TYPE = "avro/binary"


class StreamProcessing(StrictModel):
    """Messages go to stream processing as Avro before they go on."""

    avro_schema: dict[str, JsonValue] = Field(
        description="Avro schema of a message, a record. It is kept in the schema registry; a new one must be able to "
        "read what was written with those before.",
        examples=[{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}],
    )

    @field_validator("avro_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
        formats.avro_schema(schema)
        if schema.get("type") != "record":
            raise ValueError("The schema of a message is a record.")
        return schema

    def compile(self, schema_id: int) -> Callable[[Any], bytes]:
        """A document as Avro, in the form of Confluent's serializers. It raises TransformError."""
        schema: Any = formats.avro_schema(self.avro_schema)

        def write(document: Any) -> bytes:
            try:
                return formats.confluent_header(schema_id) + formats.write_avro(document, schema)
            except ValueError as error:
                raise TransformError(f"Stream processing: {error}") from None

        return write
