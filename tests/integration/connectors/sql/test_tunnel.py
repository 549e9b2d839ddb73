"""Databases behind an SSH server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from backend.connectors.parts.database import SqlConnection
from backend.connectors.sql import SqlDatabase
from backend.domain.connector import CheckFailedError, check_connection
from backend.network import outbound
from backend.runtime.health import is_listening
from tests.integration.connectors.sql.databases import Postgresql, numbers, read
from tests.openssh import HOST_KEY, PORT, USER, USER_KEY, authorize, openssh_server, write_private
from tests.ports import free_ports
from tests.waiting import wait_until_async

OTHER_KEY = asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture(scope="module", autouse=True)
def _openssh() -> Iterator[None]:
    server = openssh_server()
    server.start()
    yield
    server.stop()


class TestTunnel(Postgresql):
    """Through OpenSSH's server, which alone may know the database's host."""

    def tunnel(self) -> dict[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": PORT,
            "user": USER,
            # As a one-line text box passes it on.
            "private_key": USER_KEY.export_private_key().decode().replace("\n", " "),
            "host_key": HOST_KEY.export_public_key().decode(),
        }

    async def check(self, tunnel: dict[str, Any], **fields: Any) -> str:
        connection = self.connection(ssh_tunnel=tunnel, **fields)
        return await check_connection(SqlDatabase, SqlConnection.model_validate(connection))

    async def test_rows_are_read_through_it(self) -> None:
        table = self.table()
        self.run(f"INSERT INTO {table} (id) VALUES (1)")
        options = {"source": {"type": "table", "table": table}, "mode": {"type": "bulk"}}
        records, _ = await read(self.connection(ssh_tunnel=self.tunnel()), options)
        assert numbers(records) == [1]

    async def test_a_machine_that_nobody_reaches_lends_its_port(self, tmp_path: Path) -> None:
        """As the guide "A database on your own machine" says it."""
        machine, headrace = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        [port] = free_ports(1)
        authorize(machine, f'restrict,port-forwarding,permitlisten="127.0.0.1:{port}"')
        authorize(headrace, f'restrict,port-forwarding,permitopen="127.0.0.1:{port}"')
        write_private(machine, tmp_path / "my-machine")
        known = [f"[127.0.0.1]:{PORT} {HOST_KEY.export_public_key().decode()}"]
        (tmp_path / "known").write_text("".join(known))
        lending = [
            *("ssh", "-N", "-F", "none", "-i", str(tmp_path / "my-machine"), "-p", str(PORT)),
            *("-o", f"UserKnownHostsFile={tmp_path / 'known'}", "-o", "ExitOnForwardFailure=yes"),
            *("-R", f"127.0.0.1:{port}:127.0.0.1:{self.port}", f"{USER}@127.0.0.1"),
        ]
        tunnel = self.tunnel() | {"private_key": headrace.export_private_key().decode()}
        with pytest.raises(CheckFailedError):
            await self.check(tunnel, port=port)
        process = await asyncio.create_subprocess_exec(*lending)
        try:
            await wait_until_async(lambda: asyncio.to_thread(is_listening, f"127.0.0.1:{port}"))
            assert "PostgreSQL" in await self.check(tunnel, port=port)
            with pytest.raises(CheckFailedError):  # what the key does not allow
                await self.check(tunnel)
        finally:
            process.terminate()
            await process.wait()

    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            ({"host_key": OTHER_KEY.export_public_key().decode()}, "host key"),
            ({"private_key": OTHER_KEY.export_private_key().decode()}, f"rejects the user {USER}"),
            ({"private_key": "no key"}, "not a key"),
            ({"port": 1}, "No SSH connection"),
            ({"host": "nowhere.invalid"}, "not known"),
        ],
        ids=["host key", "private key", "no key", "port", "host"],
    )
    async def test_what_is_wrong_with_the_tunnel_is_explained(self, fields: dict[str, Any], named: str) -> None:
        with pytest.raises(CheckFailedError, match=named) as failed:
            await self.check(self.tunnel() | fields)
        assert failed.value.field == "ssh_tunnel"

    async def test_a_database_that_is_not_behind_it_is_named(self) -> None:
        with pytest.raises(CheckFailedError) as failed:
            await self.check(self.tunnel(), port=1)
        assert failed.value.field == "host"

    async def test_the_address_of_the_tunnel_is_checked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(outbound, "outbound_policy", lambda: outbound.OutboundPolicy([]))
        with pytest.raises(CheckFailedError, match="HEADRACE_OUTBOUND_ALLOW"):
            await self.check(self.tunnel())
