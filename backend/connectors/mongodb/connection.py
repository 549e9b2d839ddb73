"""The connection: servers, login and encryption."""

from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from backend.connectors.parts.tls import NoTls, TlsSetting
from backend.domain.capabilities import Connection
from backend.domain.model import ADVANCED

_SERVER = r"(\[[0-9A-Fa-f:.]+\]|[^\s,:/@\[\]]+)(:\d{1,5})?"
_PORT = 27017


class MongodbConnection(Connection):
    """A MongoDB server or replica set."""

    servers: str = Field(
        pattern=rf"^{_SERVER}(,{_SERVER})*$",
        description="Servers as host:port, separated by commas; the port is 27017 by default. The other members of a "
        "replica set are discovered; of a mongodb+srv address, enter the servers that it stands for.",
        examples=["mongo-1.example.com:27017,mongo-2.example.com:27017"],
    )
    replica_set: str = Field(
        "", description="Name of the replica set, if it is to be verified.", json_schema_extra=ADVANCED
    )
    direct: bool = Field(
        False,
        description="Connect to the one server alone, even if it is a member of a replica set.",
        json_schema_extra=ADVANCED,
    )
    username: str = Field("", description="User name; without it, there is no login.")
    password: SecretStr | None = Field(None, description="Password.")
    mechanism: Literal["SCRAM", "SCRAM-SHA-256", "SCRAM-SHA-1"] = Field(
        "SCRAM",
        description="Mechanism of the login; with SCRAM, the server chooses the hash.",
        json_schema_extra=ADVANCED,
    )
    login_database: str = Field(
        "admin", min_length=1, description="Database that holds the user.", json_schema_extra=ADVANCED
    )
    tls: TlsSetting = Field(default_factory=NoTls, description="How the connection is encrypted.")

    @field_validator("servers")
    @classmethod
    def _check_servers(cls, servers: str) -> str:
        for host, port in _parsed(servers):
            if not 0 < port < 65_536:
                raise ValueError(f"{port} is not a port.")
            if host.endswith(".sock"):  # would be taken for a Unix socket
                raise ValueError(f"{host} is not a host.")
        return servers

    @model_validator(mode="after")
    def _check_together(self) -> "MongodbConnection":
        if bool(self.username) != (self.password is not None):
            raise ValueError("A login needs a user name and a password; without a login, leave out both.")
        if self.direct and "," in self.servers:
            raise ValueError("Only one server can be connected to directly.")
        return self

    def addresses(self) -> list[tuple[str, int]]:
        return _parsed(self.servers)

    def hosts(self) -> dict[str, list[str]]:
        return {"servers": [host for host, _ in self.addresses()]}


def _parsed(servers: str) -> list[tuple[str, int]]:
    """Host and port of each server; IPv6 addresses without their brackets."""
    addresses = []
    for server in servers.split(","):
        host, colon, port = server.rpartition(":")
        if not colon or server.endswith("]"):
            host, port = server, str(_PORT)
        addresses.append((host.strip("[]"), int(port)))
    return addresses
