"""The proxy's configuration file, in YAML."""

import ssl
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AliasChoices, BeforeValidator, Field, ValidationError, model_validator

from backend.domain.model import StrictModel
from backend.kafka.server.connections import Limits
from backend.kafka.server.listen import Address, ExistingFile, ListenTls


class ConfigError(Exception):
    """The file cannot be used; the message has a line for each error, with the key's path."""


class BrokerTls(StrictModel):
    """TLS between the proxy and brokers."""

    authority: ExistingFile | None = Field(
        None, description="The authority that signed the brokers' certificates; by default the system's authorities."
    )
    certificate: ExistingFile | None = Field(None, description="The proxy's own certificate, if brokers require one.")
    private_key: ExistingFile | None = None
    verify_hostname: bool = True

    @model_validator(mode="after")
    def _check_pair(self) -> "BrokerTls":
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("Set both certificate and private_key, or neither.")
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
    """How the proxy creates delegation tokens for SCRAM users, under its own identity."""

    contact_points: list[Address] = Field(
        min_length=1, description="Brokers' listeners that authenticate the proxy by its certificate (mTLS)."
    )
    tls: BrokerTls = Field(description="TLS with the proxy's own certificate.")
    lifetime_seconds: int = Field(
        86_400, ge=20, description="Lifetime of a token, in seconds. It is replaced after half of this time."
    )


class Sasl(StrictModel):
    delegation_tokens: DelegationTokens | None = Field(
        None, description="Without it, SCRAM is offered only if the cluster has a single broker."
    )


class ProxyNode(StrictModel):
    """One proxy, as clients and the other proxies reach it."""

    address_for_clients: Address
    address_for_peers: Address
    rack: str | None = None
    broker_id: int = Field(ge=0, description="The broker id that clients see for this proxy.")


def _nodes(value: Any) -> Any:
    """Accepts a plain list of addresses as well."""
    if not isinstance(value, list):
        return value
    return [
        {"address_for_clients": item, "address_for_peers": item, "broker_id": number} if isinstance(item, str) else item
        for number, item in enumerate(value)
    ]


class ProxyConfig(StrictModel):
    """The configuration of one proxy process."""

    first_contact_points: list[Address] = Field(
        min_length=1, description="Brokers from which the proxy learns about all others."
    )
    proxy_nodes: Annotated[list[ProxyNode], BeforeValidator(_nodes)] = Field(
        min_length=1,
        validation_alias=AliasChoices("proxy_nodes", "shotover_nodes"),
        description="All proxies of the cluster, including this one. Every proxy needs the same list.",
    )
    local_broker_id: int = Field(
        0,
        validation_alias=AliasChoices("local_broker_id", "local_shotover_broker_id"),
        description="The broker_id of this process in proxy_nodes.",
    )
    listen: Address = Field(description="The address on which this process accepts connections.")
    operations: Address | None = Field(
        None, description="The address that serves /health, /ready, /metrics and /status."
    )
    connect_timeout_ms: int = Field(3000, ge=1)
    request_timeout_ms: int = Field(
        60_000, ge=1, description="A broker that leaves a request unanswered for this long is considered dead."
    )
    check_peers_delay_ms: int = Field(3000, ge=1, description="Interval between checks of the other proxies.")
    drain_timeout_ms: int = Field(10_000, ge=0, description="How long shutting down waits for pending answers.")
    connection_limit: int = Field(
        512, ge=1, description="Clients' connections. The oldest that has not signed in makes room for a new one."
    )
    connection_limit_per_address: int | None = Field(None, ge=1)
    max_frame_bytes: int = Field(
        100 * 1024 * 1024, ge=1024, description="Largest accepted frame; match the brokers' socket.request.max.bytes."
    )
    request_memory_bytes: int = Field(
        256 * 1024 * 1024, description="Memory for the requests of all clients, until they are answered."
    )
    login_timeout_ms: int = Field(30_000, ge=1, description="How long a client may take to sign in.")
    frame_timeout_ms: int = Field(
        30_000, ge=1, description="How long half a request may wait for its rest; more if it comes steadily."
    )
    idle_timeout_ms: int = Field(600_000, ge=1, description="Connections without requests are closed after this time.")
    tls: Tls = Tls()
    sasl: Sasl = Sasl()

    @model_validator(mode="after")
    def _check_nodes(self) -> "ProxyConfig":
        ids = [node.broker_id for node in self.proxy_nodes]
        if len(set(ids)) < len(ids):
            raise ValueError("Two proxy_nodes have the same broker_id; each needs its own.")
        if self.local_broker_id not in ids:
            raise ValueError(f"local_broker_id: none of the proxy_nodes has the broker_id {self.local_broker_id}.")
        racks = [node.rack is None for node in self.proxy_nodes]
        if any(racks) and not all(racks):
            raise ValueError("Set rack on all proxy_nodes or on none.")
        return self

    @model_validator(mode="after")
    def _check_memory(self) -> "ProxyConfig":
        if self.request_memory_bytes <= self.max_frame_bytes:
            raise ValueError("request_memory_bytes has to be greater than max_frame_bytes.")
        return self

    @property
    def limits(self) -> Limits:
        return Limits(
            connections=self.connection_limit,
            connections_per_address=self.connection_limit_per_address,
            frame_bytes=self.max_frame_bytes,
            memory_bytes=self.request_memory_bytes,
            login_seconds=self.login_timeout_ms / 1000,
            frame_seconds=self.frame_timeout_ms / 1000,
            idle_seconds=self.idle_timeout_ms / 1000,
        )

    @property
    def local(self) -> ProxyNode:
        return next(node for node in self.proxy_nodes if node.broker_id == self.local_broker_id)


def load(path: Path) -> ProxyConfig:
    """Reads and validates the file. Raises ConfigError."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    try:
        return ProxyConfig.model_validate(document)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in error.errors()]
        raise ConfigError(f"{path} cannot be used.\n" + "\n".join(lines)) from None
