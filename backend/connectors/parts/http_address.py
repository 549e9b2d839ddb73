"""An address, its credentials, and what they make of a request."""

from typing import Annotated

from pydantic import Field, HttpUrl, field_validator

from backend.connectors.parts.authentication import BasicAuthentication, BearerAuthentication, NoAuthentication
from backend.connectors.parts.oauth import OAuth
from backend.connectors.parts.tls import HttpsFields
from backend.domain.capabilities import Connection
from backend.domain.http_text import HeaderCredential, HeaderName, encoded
from backend.domain.masking import secret_values


class _Address(Connection):
    url: HttpUrl = Field(
        description="Address that messages are sent to.", examples=["https://api.example.com/webhooks"]
    )
    authentication: Annotated[
        NoAuthentication | BearerAuthentication | BasicAuthentication | OAuth, Field(discriminator="type")
    ] = Field(default_factory=NoAuthentication, description="How Headrace identifies itself.")
    secret_headers: dict[HeaderName, HeaderCredential] = Field(
        default_factory=dict, description="Further headers whose values are secrets, such as an API key."
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: HttpUrl) -> HttpUrl:
        if url.username or url.password:
            raise ValueError("Enter user name and password under authentication; addresses are shown to everybody.")
        return url


class HttpAddress(HttpsFields, _Address):  # in this order of bases, forms begin with the address
    """An HTTP address, with credentials."""

    def hosts(self) -> dict[str, list[str]]:
        hosts = {"url": [self.url.host or ""]}
        if isinstance(self.authentication, OAuth):
            hosts["authentication.token_url"] = [self.authentication.token_url.host or ""]
        return hosts

    def address(self, path: str) -> str:
        """The connection's address with a path and a query appended, percent-encoded, always after a slash: otherwise
        they could change the host, and another host would receive the credentials."""
        url = str(self.url)
        if not path:
            return url
        path = encoded(path)
        base, _, own_query = url.partition("?")
        path, _, query = path.partition("?")
        queries = "&".join(filter(None, (own_query, query)))
        return f"{base.rstrip('/')}/{path.lstrip('/')}" + (f"?{queries}" if queries else "")

    def headers(self) -> list[str]:
        """The headers of every request; that of an access token is not known here."""
        # Otherwise libcurl waits for "100 Continue" before it sends a large body.
        headers = [
            "Expect:",
            *(header_line(name, value.get_secret_value()) for name, value in self.secret_headers.items()),
        ]
        if authorization := self.authentication.header():
            headers.append(f"Authorization: {authorization}")
        return headers

    def sent_secrets(self) -> list[str]:
        """Every secret, in each form in which it is sent."""
        sent = list(secret_values(self))
        if isinstance(self.authentication, BasicAuthentication):
            sent.append(self.authentication.header().removeprefix("Basic "))
        if isinstance(self.authentication, OAuth):
            sent += self.authentication.sent_secrets()
        return sent


def header_line(name: str, value: str) -> str:
    """In libcurl's syntax, where an empty value after a colon omits the header."""
    return f"{name}: {value}" if value else f"{name};"
