"""TLS of connections: private authorities and client certificates."""

import contextlib
import dataclasses
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from typing import Annotated, Literal

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator

from backend.domain.model import ADVANCED, StrictModel
from backend.network.http_client import TlsSettings

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----")


def wrapped_pem(text: object) -> object:
    """The PEM text with its line breaks, which a one-line text box removes when it is pasted."""

    def wrapped(match: re.Match[str]) -> str:
        body = "".join(match[2].split())
        lines = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {match[1]}-----", *lines, f"-----END {match[1]}-----", ""])

    return _PEM.sub(wrapped, text.strip()) if isinstance(text, str) else text


def _certificates(text: str) -> str:
    if text:
        try:
            x509.load_pem_x509_certificates(text.encode())
        except ValueError:
            raise ValueError(
                "Enter certificates in PEM format; each begins with -----BEGIN CERTIFICATE-----."
            ) from None
    return text


Certificates = Annotated[str, BeforeValidator(wrapped_pem), AfterValidator(_certificates)]
"""Certificates in PEM format, or nothing."""


class NoTls(StrictModel):
    """No encryption."""

    type: Literal["none"] = "none"


class ClientCertificate(StrictModel):
    """The certificate that the client shows."""

    certificate: Certificates = Field(
        "", description="Client certificate for mutual TLS, in PEM format.", json_schema_extra=ADVANCED
    )
    key_password: SecretStr | None = Field(
        None, description="Password of the private key, if it has one.", json_schema_extra=ADVANCED
    )
    key: Annotated[SecretStr | None, BeforeValidator(wrapped_pem)] = Field(
        None,
        description="Private key of the client certificate, in PEM format.",
        json_schema_extra=ADVANCED,
        validate_default=True,
    )

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        certificate, password = info.data.get("certificate"), info.data.get("key_password")
        if key is None:
            if certificate:
                raise ValueError("Enter the private key of the client certificate.")
            return None
        try:
            private = serialization.load_pem_private_key(
                key.get_secret_value().encode(), password.get_secret_value().encode() if password else None
            )
        except (ValueError, TypeError):
            raise ValueError(
                "Enter a private key in PEM format; it begins with -----BEGIN PRIVATE KEY-----. "
                "If it is encrypted, its password is needed too."
            ) from None
        if not certificate:
            raise ValueError("A private key needs the client certificate that belongs to it.")
        if x509.load_pem_x509_certificates(certificate.encode())[0].public_key() != private.public_key():
            raise ValueError("This private key belongs to another certificate.")
        return key

    def load_into(self, context: ssl.SSLContext) -> None:
        """Adds the certificate, if there is one."""
        if self.key is not None:
            with pem_file(self.key.get_secret_value() + self.certificate) as file:
                context.load_cert_chain(file, password=self.plain_key_password)

    @property
    def plain_key_password(self) -> str:
        return self.key_password.get_secret_value() if self.key_password else ""


class _Authorities(StrictModel):
    ca: Certificates = Field(
        "",
        description="Certificates of the authorities that may sign the server's certificate, in PEM format. Without "
        "them, those that the operating system trusts.",
    )


class TlsFields(ClientCertificate, _Authorities):  # in this order of bases, forms begin with the authorities
    """How a server's certificate is verified, and the certificate that the client shows."""

    def tls_settings(self) -> TlsSettings:
        """For the HTTP client."""
        return TlsSettings(
            authorities=self.ca,
            certificate=self.certificate,
            key=self.key.get_secret_value() if self.key else "",
            key_password=self.plain_key_password,
        )

    def context(self) -> ssl.SSLContext:
        """For Python's clients."""
        context = ssl.create_default_context(cadata=self.ca or None)
        self.load_into(context)
        return context


@contextlib.contextmanager
def pem_file(text: str) -> Iterator[str]:
    """The path of a file with that text, for what is read from files only, such as OpenSSL's keys. It is readable by
    its owner alone, and removed afterwards."""
    with tempfile.NamedTemporaryFile("w", prefix="headrace-", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield os.fspath(file.name)


class HttpsFields(TlsFields):
    """Those of an HTTP server, whose address says whether connections are encrypted."""

    verify_tls: bool = Field(True, description="Refuse a server whose certificate is not trusted.")

    def tls_settings(self) -> TlsSettings:
        return dataclasses.replace(super().tls_settings(), verify=self.verify_tls)


class _TlsType(StrictModel):
    type: Literal["tls"] = "tls"


class Tls(TlsFields, _TlsType):  # in this order of bases, the type comes first
    """Encrypted with TLS; the server's certificate is verified."""


TlsSetting = Annotated[NoTls | Tls, Field(discriminator="type")]
