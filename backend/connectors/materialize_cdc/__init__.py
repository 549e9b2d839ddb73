"""Change streams for Materialize, in its format CDCv2."""

from functools import cached_property

from backend.connectors.materialize_cdc.connection import HttpTransport, MaterializeConnection
from backend.connectors.parts.documents import CollectDocuments
from backend.connectors.parts.http_endpoint import check_endpoint
from backend.connectors.parts.kafka_cluster import check_cluster
from backend.domain import cdc
from backend.domain.cdc import Format
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.message_templates import TemplateSource


class MaterializeCollect(CollectDocuments[MaterializeConnection]):
    """Sends what each message changes as an update of a change stream, in the format CDCv2 of Materialize.

    Each change is applied exactly once: whatever is sent again after a crash is the same, and readers know it."""

    def target(self) -> str:
        return "change stream"

    @property
    def partitions(self) -> int:
        return self.connection.partitions

    def check_value(self, source: TemplateSource) -> None:
        deltas = self.connection.reduce == "deltas"
        self._format.datum(cdc.delta_of(source.document)[0] if deltas else source.document)

    @cached_property
    def _format(self) -> Format:
        return Format(self.connection.avro_schema)


@connectors.register
class MaterializeCdc(Connector):
    """Feeds Materialize with a change stream, of which every change has a time and is applied exactly once."""

    type = "materialize_cdc"
    title = "Materialize change stream"
    connection_model = MaterializeConnection
    capabilities = (MaterializeCollect,)
    requires = ("deltalake", "pyarrow")
    example = {
        "avro_schema": {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]},
        "transport": {
            "type": "kafka",
            "bootstrap_servers": "broker-1:9092",
            "topic": "orders-cdc",
            "registry": {"url": "https://registry.example.com", "username": "headrace", "password": "s3cret"},
        },
    }

    @staticmethod
    async def check(connection: MaterializeConnection) -> str:
        """Tests the connection to the cluster or to the receiver."""
        transport = connection.transport
        try:
            if isinstance(transport, HttpTransport):
                return await check_endpoint(transport)
            return await check_cluster(transport)
        except CheckFailedError as error:
            raise CheckFailedError(str(error), field=f"transport.{error.field}" if error.field else None) from None
