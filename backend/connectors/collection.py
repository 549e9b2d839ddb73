import asyncio
from functools import cached_property
from typing import Literal
from uuid import uuid4

from pydantic import Field, JsonValue, ValidationInfo, field_validator

from backend.collections.location import Location
from backend.connectors.parts.documents import CollectDocuments
from backend.domain.avro.schema import AvroSchema
from backend.domain.capabilities import Connection
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.message_templates import TemplateSource
from backend.domain.model import ADVANCED
from backend.settings import platform_settings


class CollectionConnection(Connection):
    """One collection: how its documents are spread, and how long they are kept."""

    partitions: int = Field(
        1,
        ge=1,
        le=100,
        description="Partitions. Documents with the same key are in the same partition, in their order. The number may "
        "be raised later; documents of a key are then appended to another partition than before.",
    )
    reduce: Literal["none", "last_by_key"] = Field(
        "none",
        description="Whether all documents are kept (none), or, of those older than an hour, only the last one with "
        "each key (last_by_key).",
    )
    keep_hours: int | None = Field(
        None, ge=1, le=24 * 3660, description="Removes documents after this many hours; without it they are kept."
    )
    keep_bytes: int | None = Field(
        None,
        ge=1024 * 1024,
        le=1024**5,
        description="Removes the oldest documents when the collection's files are larger than this, in bytes.",
    )
    avro_schema: dict[str, JsonValue] | None = Field(
        None,
        description="Avro schema of a document: a record. Messages that do not fit it become dead letters; deletions "
        "need not fit it.",
        examples=[{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}],
        json_schema_extra=ADVANCED,
    )
    values: Literal["json", "avro"] = Field(
        "json",
        description="How Kafka consumers get the values of documents: as they were received, or as Avro, with the id "
        "of their schema in the gateway's schema registry. Avro needs a schema.",
        json_schema_extra=ADVANCED,
    )
    deletions: Literal["kafka", "cdc"] = Field(
        "kafka",
        description="How Kafka consumers get deletions: as records without a value (kafka), or with their value (cdc), "
        "in which _meta.is_deleted is 1, as it is 0 in all other values.",
        json_schema_extra=ADVANCED,
    )

    @field_validator("avro_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        if schema is not None:
            AvroSchema(schema)
            if schema.get("type") != "record":
                raise ValueError("The schema of a document must be a record.")
        return schema

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: str, info: ValidationInfo) -> str:
        if values == "avro" and info.data.get("avro_schema", "") is None:
            raise ValueError("Values as Avro need a schema: set the Avro schema as well.")
        return values

    @field_validator("deletions")
    @classmethod
    def _check_deletions(cls, deletions: str, info: ValidationInfo) -> str:
        if deletions == "cdc" and info.data.get("values") == "avro":
            raise ValueError("Values as Avro have no place for _meta.is_deleted: choose kafka.")
        return deletions


class CollectionCollect(CollectDocuments[CollectionConnection]):
    """Appends each message as a document, exactly once: its offset is committed together with it. Documents with the
    same key are in the order in which they were accepted."""

    def target(self) -> str:
        return f"document with the key {self.options.key}"

    @property
    def partitions(self) -> int:
        return self.connection.partitions

    def check_value(self, source: TemplateSource) -> None:
        if self._schema is not None:
            self._schema.write(source.document)

    @cached_property
    def _schema(self) -> AvroSchema | None:
        return AvroSchema(self.connection.avro_schema) if self.connection.avro_schema else None


@connectors.register
class Collection(Connector):
    """Keeps messages as a collection: a durable log of documents that Kafka consumers and lakehouse engines read."""

    type = "collection"
    title = "Collection"
    connection_model = CollectionConnection
    capabilities = (CollectionCollect,)
    requires = ("deltalake", "pyarrow")
    example = {"partitions": 4, "keep_hours": 720}

    @staticmethod
    async def check(connection: CollectionConnection) -> str:
        """Writes a file to where collections are stored, and removes it."""
        try:
            await asyncio.to_thread(_write_and_remove, Location.of(platform_settings().collections_url))
        except OSError as error:
            text = (
                f"Collections cannot be stored at HEADRACE_COLLECTIONS_URL: {error.strerror or type(error).__name__}."
            )
            raise CheckFailedError(text) from None
        return "Documents can be stored."


def _write_and_remove(location: Location) -> None:
    if location.folder is not None:
        location.folder.mkdir(parents=True, exist_ok=True)
    files = location.files()
    name = f".check-{uuid4().hex}"
    with files.open_output_stream(name) as stream:
        stream.write(b"headrace")
    files.delete_file(name)
