"""PostgreSQL with TLS, named by several hosts of which one is down."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.runtime import servers
from backend.settings import ROOT
from tests.certificates import Authority
from tests.infra import PASSWORD, POSTGRESQL_PORT, Server
from tests.ports import free_ports
from tests.tls_proxy import tls_proxy

QUESTION = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT 1")
    print("encrypted:", connection.connection.pgconn.ssl_in_use)
"""


@pytest.fixture
def encrypted(postgresql: Server, tmp_path: Path) -> Iterator[tuple[int, Authority]]:
    authority = Authority(tmp_path)
    with tls_proxy(POSTGRESQL_PORT, *authority.issue("postgresql"), "postgresql") as port:
        yield port, authority


def asked(hosts: str, authority: Authority) -> "subprocess.CompletedProcess[str]":
    parameters = "target_session_attrs=read-write&sslmode=verify-full&sslnegotiation=direct"
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "backend.config.settings.dev",
        "HEADRACE_DATABASE_URL": f"postgresql://{servers.DATABASE}@{hosts}/postgres?{parameters}"
        f"&sslrootcert={authority.certificate}",
        "HEADRACE_DATABASE_PASSWORD": PASSWORD,
    }
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", QUESTION]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_tls_and_several_hosts(encrypted: tuple[int, Authority]) -> None:
    port, authority = encrypted
    [nobody] = free_ports(1)
    answer = asked(f"127.0.0.1:{nobody},127.0.0.1:{port}", authority)
    assert "encrypted: True" in answer.stdout, answer.stderr


def test_a_server_of_another_authority_is_refused(encrypted: tuple[int, Authority], tmp_path: Path) -> None:
    port, _ = encrypted
    answer = asked(f"127.0.0.1:{port}", Authority(tmp_path, "other"))
    assert "certificate verify failed" in answer.stderr, answer.stderr
