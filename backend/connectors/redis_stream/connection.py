from pydantic import Field, SecretStr

from backend.connectors.parts.tls import NoTls, TlsSetting
from backend.domain.capabilities import Connection
from backend.domain.model import ADVANCED


class RedisStreamConnection(Connection):
    """A Redis or Valkey server."""

    host: str = Field(
        pattern=r"^[^\s/]+$", description="Host name or address of the server.", examples=["redis.example.com"]
    )
    port: int = Field(6379, ge=1, le=65535, description="Port of the server.")
    username: str = Field("", description="User name; without it, the default user.")
    password: SecretStr | None = Field(None, description="Password.")
    database: int = Field(0, ge=0, description="Number of the database.", json_schema_extra=ADVANCED)
    tls: TlsSetting = Field(default_factory=NoTls, description="How the connection is encrypted.")

    def hosts(self) -> dict[str, list[str]]:
        return {"host": [self.host]}
