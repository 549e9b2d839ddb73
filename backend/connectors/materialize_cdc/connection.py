"""The connection: what the records are, and where their changes are sent."""

from typing import Annotated, Literal

from pydantic import Field, HttpUrl, JsonValue, SecretStr, field_validator

from backend.connectors.parts.http_address import HttpAddress
from backend.connectors.parts.kafka_cluster import KafkaConnection, Topic
from backend.connectors.parts.tls import HttpsFields
from backend.domain import cdc
from backend.domain.capabilities import Connection, ConnectorName
from backend.domain.model import StrictModel


class _Registry(StrictModel):
    url: HttpUrl = Field(description="Address of the registry.", examples=["https://registry.example.com"])
    username: str = Field("", description="User name, if the registry asks for one.")
    password: SecretStr = Field(SecretStr(""), description="Password.")


class SchemaRegistry(HttpsFields, _Registry):  # in this order of bases, forms begin with the address
    """A schema registry with Confluent's API."""


class KafkaTransport(KafkaConnection):
    """A Kafka topic, with messages as Avro."""

    type: Literal["kafka"] = "kafka"
    topic: Topic = Field(description="Topic to write to; it must exist.", examples=["orders-cdc"])
    registry: SchemaRegistry = Field(description="Where the messages' schema is registered.")


class HttpTransport(HttpAddress):
    """PUT requests, each with messages that are stored once it is answered with 2xx."""

    type: Literal["http"] = "http"
    format: Literal["json", "avro"] = Field(
        "json", description="Form of the messages: a JSON list, or an Avro object container file."
    )


CollectionName = Annotated[str, Field(min_length=1, max_length=100)]


class MaterializeConnection(Connection):
    """One change stream: its records, and where it is sent."""

    reduce: Literal["deltas", "last_by_key"] = Field(
        "deltas",
        description='What messages say: {"record": {...}, "delta": n}, by how many a record becomes more (deltas); or '
        "the record that replaces the former one with the same key (last_by_key).",
    )
    avro_schema: dict[str, JsonValue] = Field(
        description="Avro schema of a record. It stays as it is: what was sent by it can be taken back by it alone.",
        examples=[{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}],
    )
    transport: Annotated[KafkaTransport | HttpTransport, Field(discriminator="type")] = Field(
        description="Where the change stream is sent."
    )
    collections: list[CollectionName] = Field(
        [],
        max_length=20,
        description="Names of existing collections that feed the stream, with all documents that they have and get. "
        "Outputs may feed it as well.",
        examples=[["orders"]],
    )
    partitions: int = Field(
        1, ge=1, le=100, description="Partitions of the log that keeps messages until they are sent."
    )

    @field_validator("avro_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if schema.get("type") != "record":
            raise ValueError("The schema has to be that of a record.")
        cdc.Format(schema)
        return schema

    @field_validator("collections")
    @classmethod
    def _check_collections(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError("A collection is named twice.")
        return names

    def connectors(self) -> dict[str, ConnectorName]:
        return {
            f"collections.{number}": ConnectorName("collection", name) for number, name in enumerate(self.collections)
        }

    def hosts(self) -> dict[str, list[str]]:
        hosts = {f"transport.{field}": names for field, names in self.transport.hosts().items()}
        if isinstance(self.transport, KafkaTransport):
            hosts["transport.registry.url"] = [self.transport.registry.url.host or ""]
        return hosts
