"""The proxy's configuration, a YAML file. Seed 002 names its first keys."""

import ssl
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, ValidationError, model_validator

from backend.domain.model import StrictModel


class ConfigError(Exception):
    """The file cannot be used; the message has a line for each fault, with the key's path."""


class Address(StrictModel):
    """Where a server listens."""

    host: str
    port: int = Field(ge=1, le=65535)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError("Write an address as host:port.")
    return {"host": host.removeprefix("[").removesuffix("]"), "port": int(port)}


_Address = Annotated[Address, BeforeValidator(_address)]


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    return path


_File = Annotated[Path, AfterValidator(_file)]


class ListenTls(StrictModel):
    """TLS towards clients."""

    certificate: _File = Field(description="The proxy's certificate, PEM.")
    private_key: _File
    client_authority: _File | None = Field(
        None, description="Clients must show a certificate that this authority signed."
    )

    @cached_property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.private_key)
        if self.client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.client_authority)
        return context


class BrokerTls(StrictModel):
    """TLS towards brokers."""

    authority: _File | None = Field(None, description="Who signed the brokers' certificates; the system's without it.")
    certificate: _File | None = Field(None, description="The proxy's own certificate, where brokers ask for one.")
    private_key: _File | None = None
    verify_hostname: bool = True

    @model_validator(mode="after")
    def _check_pair(self) -> "BrokerTls":
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together.")
        return self

    @cached_property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        context.check_hostname = self.verify_hostname
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.private_key)
        return context


class Tls(StrictModel):
    clients: ListenTls | None = None
    brokers: BrokerTls | None = None


class DelegationTokens(StrictModel):
    """How the proxy makes tokens for users of SCRAM, in its own name."""

    contact_points: list[_Address] = Field(min_length=1, description="Listeners of brokers that know the proxy (mTLS).")
    tls: BrokerTls = Field(description="With the proxy's own certificate.")
    lifetime_seconds: int = Field(86_400, ge=20, description="New ones are made at half of it.")


class Sasl(StrictModel):
    delegation_tokens: DelegationTokens | None = Field(
        None, description="Without it, SCRAM is offered in front of a single broker only."
    )


class ProxyNode(StrictModel):
    """One proxy, as clients and the other proxies reach it."""

    address_for_clients: _Address
    address_for_peers: _Address
    rack: str | None = None
    broker_id: int = Field(ge=0, description="By which clients know it.")


def _nodes(value: Any) -> Any:
    """A plain list of addresses will do."""
    if not isinstance(value, list):
        return value
    return [
        {"address_for_clients": item, "address_for_peers": item, "broker_id": number} if isinstance(item, str) else item
        for number, item in enumerate(value)
    ]


class ProxyConfig(StrictModel):
    """One proxy process."""

    first_contact_points: list[_Address] = Field(min_length=1, description="Brokers to ask for the others.")
    proxy_nodes: Annotated[list[ProxyNode], BeforeValidator(_nodes)] = Field(
        min_length=1,
        validation_alias=AliasChoices("proxy_nodes", "shotover_nodes"),
        description="All proxies of the cluster, this one among them; every proxy has the same list.",
    )
    local_broker_id: int = Field(
        0,
        validation_alias=AliasChoices("local_broker_id", "local_shotover_broker_id"),
        description="Which of the nodes this process is.",
    )
    listen: _Address = Field(description="Where this process takes connections.")
    operations: _Address | None = Field(None, description="Where /health, /ready and /metrics answer.")
    connect_timeout_ms: int = Field(3000, ge=1)
    request_timeout_ms: int = Field(
        60_000, ge=1, description="A broker that answers nothing for so long is taken for dead."
    )
    check_peers_delay_ms: int = Field(3000, ge=1, description="How often the other proxies are looked at.")
    drain_timeout_ms: int = Field(10_000, ge=0, description="How long a stop waits for answers.")
    connection_limit: int = Field(512, ge=1)
    max_frame_bytes: int = Field(100 * 1024 * 1024, ge=1024, description="As the brokers' socket.request.max.bytes.")
    tls: Tls = Tls()
    sasl: Sasl = Sasl()

    @model_validator(mode="after")
    def _check_nodes(self) -> "ProxyConfig":
        ids = [node.broker_id for node in self.proxy_nodes]
        if len(set(ids)) < len(ids):
            raise ValueError("Two proxy_nodes have the same broker_id.")
        if self.local_broker_id not in ids:
            raise ValueError(f"local_broker_id: none of the proxy_nodes has the broker_id {self.local_broker_id}.")
        racks = [node.rack is None for node in self.proxy_nodes]
        if any(racks) and not all(racks):
            raise ValueError("Either all proxy_nodes name their rack or none does.")
        return self

    @property
    def local(self) -> ProxyNode:
        return next(node for node in self.proxy_nodes if node.broker_id == self.local_broker_id)


def load(path: Path) -> ProxyConfig:
    """Raises ConfigError."""
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    try:
        return ProxyConfig.model_validate(found)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in error.errors()]
        raise ConfigError(f"{path} cannot be used.\n" + "\n".join(lines)) from None
