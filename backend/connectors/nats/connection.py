from typing import Annotated, Literal

from pydantic import Field, SecretStr

from backend.connectors.parts.tls import NoTls, TlsSetting
from backend.domain.capabilities import Connection
from backend.domain.model import StrictModel


class NoLogin(StrictModel):
    """No login."""

    type: Literal["none"] = "none"

    def arguments(self) -> dict[str, str]:
        return {}


class PasswordLogin(StrictModel):
    """User name and password."""

    type: Literal["password"] = "password"
    username: str = Field(min_length=1, description="User name.")
    password: SecretStr = Field(description="Password.")

    def arguments(self) -> dict[str, str]:
        return {"user": self.username, "password": self.password.get_secret_value()}


class TokenLogin(StrictModel):
    """A token."""

    type: Literal["token"] = "token"
    token: SecretStr = Field(min_length=1, description="Token.")

    def arguments(self) -> dict[str, str]:
        return {"token": self.token.get_secret_value()}


class NatsConnection(Connection):
    """A NATS server or cluster with JetStream."""

    servers: str = Field(
        pattern=r"^[^\s,:/]+:\d+(,[^\s,:/]+:\d+)*$",
        description="Servers, as host:port, separated by commas; they are tried one after the other.",
        examples=["nats-1.example.com:4222,nats-2.example.com:4222"],
    )
    login: Annotated[NoLogin | PasswordLogin | TokenLogin, Field(discriminator="type")] = Field(
        default_factory=NoLogin, description="How Headrace identifies itself."
    )
    tls: TlsSetting = Field(default_factory=NoTls, description="How the connection is encrypted.")

    def hosts(self) -> dict[str, list[str]]:
        return {"servers": [server.rpartition(":")[0] for server in self.servers.split(",")]}
