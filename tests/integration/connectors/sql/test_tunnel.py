"""Databases behind an SSH server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncssh
import pytest

from backend.connectors.parts.database import SqlConnection
from backend.connectors.sql import SqlDatabase
from backend.domain.connector import CheckFailedError, check_connection
from backend.network import outbound
from tests.integration.connectors.sql.databases import Postgresql, numbers, read


class _SshServer(asyncssh.SSHServer):
    def connection_requested(self, *_: Any) -> bool:
        return True


class TestTunnel(Postgresql):
    """Through a real SSH server, which alone may know the database's host."""

    @asynccontextmanager
    async def tunnel(self) -> AsyncIterator[dict[str, Any]]:
        host_key, user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        allowed = asyncssh.import_authorized_keys(user_key.export_public_key().decode())
        server = await asyncssh.create_server(
            _SshServer, "127.0.0.1", 0, server_host_keys=[host_key], authorized_client_keys=allowed
        )
        async with server:
            yield {
                "host": "127.0.0.1",
                "port": server.get_port(),
                "user": "somebody",
                # As a one-line text box passes it on.
                "private_key": user_key.export_private_key().decode().replace("\n", " "),
                "host_key": host_key.export_public_key().decode(),
            }

    async def check(self, tunnel: dict[str, Any], **fields: Any) -> str:
        connection = self.connection(ssh_tunnel=tunnel, **fields)
        return await check_connection(SqlDatabase, SqlConnection.model_validate(connection))

    async def test_rows_are_read_through_it(self) -> None:
        table = self.table()
        self.run(f"INSERT INTO {table} (id) VALUES (1)")
        options = {"source": {"type": "table", "table": table}, "mode": {"type": "bulk"}}
        async with self.tunnel() as tunnel:
            records, _ = await read(self.connection(ssh_tunnel=tunnel), options)
        assert numbers(records) == [1]

    async def test_what_is_wrong_is_explained(self) -> None:
        other = asyncssh.generate_private_key("ssh-ed25519")
        async with self.tunnel() as tunnel:
            for fields, named in (
                ({"host_key": other.export_public_key().decode()}, "host key"),
                ({"private_key": other.export_private_key().decode()}, "rejects the user somebody"),
                ({"private_key": "no key"}, "not a key"),
                ({"port": 1}, "No SSH connection"),
                ({"host": "nowhere.invalid"}, "not known"),
            ):
                with pytest.raises(CheckFailedError, match=named) as failed:
                    await self.check(tunnel | fields)
                assert failed.value.field == "ssh_tunnel"
            with pytest.raises(CheckFailedError) as failed:
                await self.check(tunnel, port=1)
            assert failed.value.field == "host"

    async def test_the_address_of_the_tunnel_is_checked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(outbound, "outbound_policy", lambda: outbound.OutboundPolicy([]))
        async with self.tunnel() as tunnel:
            with pytest.raises(CheckFailedError, match="HEADRACE_OUTBOUND_ALLOW"):
                await self.check(tunnel)
