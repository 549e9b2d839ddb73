"""A PostgreSQL server for the tests whose log can be read by logical replication, beside the platform's own."""

import signal

from backend.runtime import servers, stack
from tests.infra import VAR, Server
from tests.ports import free_ports

PASSWORD = "planted-password-of-cdc"
PORT, PLAIN_PORT = free_ports(2)
CONNECTION = {
    "host": "127.0.0.1",
    "port": PORT,
    "database": "postgres",
    "user": "headrace",
    "password": PASSWORD,
    "tls": "disable",
}
"""A connection of the connector."""


def url(port: int = PORT) -> str:
    return f"postgresql://headrace:{PASSWORD}@127.0.0.1:{port}/postgres"


def configured_server(name: str, port: int, *settings: str) -> Server:
    """Not yet started."""
    data = VAR / name
    servers.postgresql_prepare(data, PASSWORD)
    command = servers.postgresql_command(data, port)
    for setting in ("fsync=off", *settings):
        command += ["-c", setting]
    return Server(name, command, lambda: stack.postgresql_ready(url(port)), servers.postgresql_user(), signal.SIGINT)


def logical_server() -> Server:
    """Not yet started. It keeps little of its log, so that tests can fill what a slot may hold."""
    return configured_server(
        "postgres-cdc",
        PORT,
        "wal_level=logical",
        "max_wal_senders=20",
        "max_replication_slots=40",
        "max_slot_wal_keep_size=64MB",
        "wal_keep_size=0",
        "min_wal_size=32MB",
        "max_wal_size=64MB",
        "logical_decoding_work_mem=1MB",
    )
