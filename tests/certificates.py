"""Certificates for tests: an authority, and certificates for 127.0.0.1 that it signs."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority. ``certificate`` is its own certificate, a PEM file in the folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, password: str = "", *, expired: bool = False) -> tuple[Path, Path]:
        """Issues a certificate and its key, as PEM files; the key is encrypted when there is a password."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        builder = self._builder(subject, key, expired=expired)
        signed = builder.add_extension(address, critical=False).sign(self._key, hashes.SHA256())
        certificate_file, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate_file.write_bytes(_pem(signed))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        key_file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return certificate_file, key_file

    def server_context(self, clients: "Authority | None" = None, *, required: bool = True) -> ssl.SSLContext:
        """Of a server, which asks for a client certificate of that authority if there is one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server"))
        if clients is not None:
            context.load_verify_locations(clients.certificate)
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(minutes=-1 if expired else 24 * 60))
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
