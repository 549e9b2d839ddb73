"""Encrypted connections to databases."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.connectors.parts.database import SqlConnection
from backend.connectors.sql import SqlDatabase
from backend.domain.connector import CheckFailedError, check_connection
from tests import mariadb
from tests.certificates import Authority
from tests.infra import PASSWORD, POSTGRESQL_PORT
from tests.integration.connectors.sql.databases import Database, Mariadb, Postgresql, pipe
from tests.mariadb import running_mariadb
from tests.ports import free_ports

(ENCRYPTED_PORT, ENCRYPTED_MARIADB_PORT) = free_ports(2)


class _Encrypted(Database):
    """A second server of the dialect, with a certificate that an authority of the test's own signed."""

    @pytest.mark.parametrize("mode", ["require", "verify"])
    async def test_a_connection_is_encrypted(self, encrypted: Authority, mode: str) -> None:
        reached = await self.check(tls=mode, ca=encrypted.certificate.read_text().replace("\n", " "))
        assert reached.startswith("Connected to ")

    async def test_a_client_certificate_is_shown(self, encrypted: Authority, only_certified: str) -> None:
        fields = {"tls": "verify", "ca": encrypted.certificate.read_text(), "user": only_certified}
        with pytest.raises(CheckFailedError):
            await self.check(**fields)
        for password in ("", "key-pass-word"):
            certificate, key = encrypted.issue(f"client-{password}", password)
            shown = {"certificate": certificate.read_text(), "key": key.read_text()}
            reached = await self.check(**fields, **shown, **({"key_password": password} if password else {}))
            assert reached.startswith("Connected to ")

    async def test_a_certificate_of_another_authority_is_refused(self, encrypted: Authority, tmp_path: Path) -> None:
        for ca in (Authority(tmp_path, "other").certificate.read_text(), ""):
            with pytest.raises(CheckFailedError, match="certificate") as failed:
                await self.check(tls="verify", ca=ca)
            assert failed.value.field == "tls"

    async def test_an_authority_that_is_no_certificate_is_named(self, encrypted: Authority) -> None:
        with pytest.raises(CheckFailedError, match="certificate"):
            await self.check(tls="verify", ca="no certificate")

    async def test_a_certificate_of_another_host_is_refused(self, encrypted: Authority) -> None:
        with pytest.raises(CheckFailedError) as failed:
            await self.check(tls="verify", ca=encrypted.certificate.read_text(), host="localhost")
        assert failed.value.field == "tls"

    async def check(self, **fields: Any) -> str:
        return await check_connection(SqlDatabase, SqlConnection.model_validate(self.connection(**fields)))


class TestPostgresqlEncryption(Postgresql, _Encrypted):
    """The embedded PostgreSQL is built without TLS, so a proxy takes its part of the handshake."""

    port = ENCRYPTED_PORT

    @pytest.fixture
    async def encrypted(self, tmp_path: Path) -> AsyncIterator[Authority]:
        authority = Authority(tmp_path)
        self.context = authority.server_context(authority, required=False)

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await reader.readexactly(8)  # the request for TLS
                writer.write(b"S")
                await writer.start_tls(self.context)
                there, back = await asyncio.open_connection("127.0.0.1", POSTGRESQL_PORT)
                await asyncio.gather(pipe(reader, back), pipe(there, writer))

        server = await asyncio.start_server(forward, "127.0.0.1", self.port)
        yield authority
        server.close()

    @pytest.fixture
    def only_certified(self, encrypted: Authority) -> str:
        """A user who has to show a client certificate."""
        self.context.verify_mode = ssl.CERT_REQUIRED
        return "headrace"

    @pytest.fixture
    def last_week(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Certificates are issued then."""
        clock = SimpleNamespace(now=lambda zone: datetime.now(zone) - timedelta(days=7))
        monkeypatch.setattr("tests.certificates.datetime", clock)

    async def test_an_expired_certificate_is_named(self, last_week: None, encrypted: Authority) -> None:
        with pytest.raises(CheckFailedError, match="expired") as failed:
            await self.check(tls="verify", ca=encrypted.certificate.read_text())
        assert failed.value.field == "tls"


class TestMariadbEncryption(Mariadb, _Encrypted):
    port = ENCRYPTED_MARIADB_PORT

    @pytest.fixture(scope="class")
    def encrypted(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
        authority = Authority(tmp_path_factory.mktemp("certificates"))
        certificate, key = authority.issue("server")
        options = [f"--ssl-cert={certificate}", f"--ssl-key={key}", f"--ssl-ca={authority.certificate}"]
        with running_mariadb("mariadb-tls", self.port, *options):
            yield authority

    @pytest.fixture
    def only_certified(self, encrypted: Authority) -> str:
        """A user who has to show a client certificate."""
        with mariadb.connected(self.port) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE USER certified@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE X509")
            cursor.execute("GRANT ALL ON *.* TO certified@'%'")
        return "certified"
