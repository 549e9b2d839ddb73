from typing import Annotated

from pydantic import Field

from backend.connectors.parts.authentication import BasicAuthentication, BearerAuthentication, NoAuthentication
from backend.connectors.parts.server_address import ServerAddress
from backend.connectors.parts.tls import HttpsFields
from backend.domain.capabilities import Connection

Authentication = Annotated[NoAuthentication | BasicAuthentication | BearerAuthentication, Field(discriminator="type")]


class _Worker(Connection):
    url: ServerAddress = Field(
        description="Address of a worker's REST API.", examples=["https://connect.example.com:8083"]
    )
    authentication: Authentication = Field(
        default_factory=NoAuthentication, description="How Headrace proves who it is."
    )


class KafkaConnectConnection(HttpsFields, _Worker):  # in this order of bases, forms begin with the address
    """The REST API of a Kafka Connect cluster."""

    def hosts(self) -> dict[str, list[str]]:
        return {"url": [self.url.host or ""]}
