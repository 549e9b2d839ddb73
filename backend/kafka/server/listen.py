"""Where a service listens, and its TLS."""

import ssl
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from backend.domain.model import StrictModel


class HostPort(StrictModel):
    """A host and a port."""

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


Address = Annotated[HostPort, BeforeValidator(_address)]
"""A host and a port, written host:port."""


def parse_address(text: str) -> HostPort:
    """Raises ValueError."""
    return TypeAdapter(Address).validate_python(text)


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"The file {path} does not exist.")
    return path


ExistingFile = Annotated[Path, AfterValidator(_file)]


class ListenTls(StrictModel):
    """TLS between clients and the service."""

    certificate: ExistingFile = Field(description="The service's certificate, a PEM file.")
    private_key: ExistingFile
    client_authority: ExistingFile | None = Field(
        None, description="If set, clients must present a certificate that this authority has signed."
    )

    @cached_property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.private_key)
        if self.client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.client_authority)
        return context
