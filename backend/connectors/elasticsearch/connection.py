"""The connection: address, login and encryption."""

from typing import Annotated, Literal

from pydantic import Field, HttpUrl, field_validator

from backend.connectors.parts.authentication import BasicAuthentication, BearerAuthentication, NoAuthentication
from backend.connectors.parts.tls import HttpsFields
from backend.domain.capabilities import Connection
from backend.domain.http_text import HeaderCredential
from backend.domain.masking import secret_values
from backend.domain.model import StrictModel


class ApiKeyAuthentication(StrictModel):
    """An API key of Elasticsearch."""

    type: Literal["api_key"] = "api_key"
    key: HeaderCredential = Field(
        min_length=1, description="API key as Elasticsearch encodes it, sent as 'Authorization: ApiKey …'."
    )

    def header(self) -> str:
        return f"ApiKey {self.key.get_secret_value()}"


class _Cluster(Connection):
    url: HttpUrl = Field(
        description="Address of the cluster, or of a load balancer before its nodes.",
        examples=["https://search.example.com:9200"],
    )
    authentication: Annotated[
        NoAuthentication | BasicAuthentication | ApiKeyAuthentication | BearerAuthentication,
        Field(discriminator="type"),
    ] = Field(default_factory=NoAuthentication, description="How Headrace identifies itself.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: HttpUrl) -> HttpUrl:
        if url.username or url.password:
            raise ValueError("Enter user name and password under authentication; addresses are shown to everybody.")
        if url.query or url.fragment:
            raise ValueError("Enter the address without a query, such as https://search.example.com:9200.")
        return url


class ElasticsearchConnection(HttpsFields, _Cluster):  # in this order of bases, forms begin with the address
    """An Elasticsearch or OpenSearch cluster."""

    test_index: str = Field(
        "",
        max_length=255,
        pattern=r"^[^\s\"*\\<>|,/?#A-Z]*$",
        description="Index for which the connection test verifies that this login may write. Nothing is written. "
        "Without it, only address and login are tested.",
        examples=["orders"],
    )

    @property
    def server(self) -> str:
        """Host and port."""
        return f"{self.url.host}:{self.url.port}"

    def hosts(self) -> dict[str, list[str]]:
        return {"url": [self.url.host or ""]}

    def sent_secrets(self) -> list[str]:
        """Every secret, in each form in which it is sent."""
        secrets = list(secret_values(self))
        if isinstance(self.authentication, BasicAuthentication):
            secrets.append(self.authentication.header().removeprefix("Basic "))
        return secrets
