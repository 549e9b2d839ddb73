from typing import Literal

from pydantic import Field, SecretStr, model_validator

from backend.connectors.parts.tls import NoTls, Tls, TlsSetting
from backend.domain.capabilities import Connection
from backend.domain.model import ADVANCED


class MqttConnection(Connection):
    """An MQTT broker."""

    host: str = Field(
        pattern=r"^[^\s/]+$", description="Host name or address of the broker.", examples=["mqtt.example.com"]
    )
    port: int | None = Field(
        None, ge=1, le=65_535, description="Port of the broker; 1883, or 8883 with TLS, by default."
    )
    version: Literal["5", "3.1.1"] = Field("5", description="Version of MQTT.")
    username: str = Field("", description="User name; empty if the broker needs none.")
    password: SecretStr | None = Field(None, description="Password.")
    tls: TlsSetting = Field(default_factory=NoTls, description="How the connection is encrypted.")
    keep_alive_seconds: int = Field(
        30,
        ge=5,
        le=3600,
        description="After this time without traffic, the connection is checked.",
        json_schema_extra=ADVANCED,
    )

    @model_validator(mode="after")
    def _check_login(self) -> "MqttConnection":
        if self.password is not None and not self.username:
            raise ValueError("A password needs a user name.")
        return self

    def hosts(self) -> dict[str, list[str]]:
        return {"host": [self.host]}

    @property
    def server_port(self) -> int:
        return self.port or (8883 if isinstance(self.tls, Tls) else 1883)

    @property
    def shown(self) -> str:
        """For people, without credentials."""
        return f"{self.host}:{self.server_port}"
