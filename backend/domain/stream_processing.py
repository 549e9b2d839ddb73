"""The hand-over to stream processing: messages are written as Avro to a topic of the pipeline."""

from collections.abc import Callable
from typing import Any, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from backend.domain import formats
from backend.domain.avro.schema import AvroSchema
from backend.domain.model import StrictModel
from backend.domain.transforms.base import TransformError

CONTENT_TYPE = "avro/binary"


class StreamProcessing(StrictModel):
    """Messages are handed over to stream processing as Avro, and go on as its SQL says."""

    avro_schema: dict[str, JsonValue] = Field(
        description="Avro schema of a message: a record. It is registered in the schema registry. A new schema "
        "must be able "
        "to read data written with the earlier ones.",
        examples=[{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}],
    )

    sql: str | None = Field(
        None,
        max_length=20_000,
        description="A SELECT over the messages, such as SELECT id, total FROM messages WHERE total > 10. Each row of "
        "its result goes on to the indexed fields and outputs as the message, in JSON. It may join tables of Connect "
        "SQL. Without it, messages end in the topic.",
        json_schema_extra={"format": "sql"},
    )

    @model_validator(mode="after")
    def _check_sql(self) -> Self:
        if self.sql is not None:
            from backend.domain.connect_sql.stage import check_stage  # few pipelines have SQL

            check_stage(self.sql, self.avro_schema)
        return self

    @field_validator("avro_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
        AvroSchema(schema)
        if schema.get("type") != "record":
            raise ValueError("The schema of a message must be a record.")
        return schema

    def compile(self, schema_id: int) -> Callable[[Any], bytes]:
        """Returns a function that writes a document as Avro, in the format of Confluent's serializers. It raises
        TransformError."""
        schema = AvroSchema(self.avro_schema)

        def write(document: Any) -> bytes:
            try:
                return formats.confluent_header(schema_id) + schema.write(document)
            except ValueError as error:
                raise TransformError(f"Stream processing: {error}") from None

        return write
