"""A NATS server with JetStream for the tests, with a login."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from backend.runtime.health import is_listening
from tests.certificates import Authority
from tests.infra import VAR, Server
from tests.ports import free_ports
from tests.wheel_programs import program_of

PASSWORD = "planted-password-of-nats"
PORT, TLS_PORT = free_ports(2)
FOLDER = Path(mkdtemp(prefix="nats-", dir=VAR))
AUTHORITY = Authority(FOLDER)
LOGIN = {"type": "password", "username": "headrace", "password": PASSWORD}


def connection(port: int = PORT, **fields: Any) -> dict[str, Any]:
    """A connection of the connector."""
    return {"servers": f"127.0.0.1:{port}", "login": LOGIN, **fields}


def configured_server(name: str, port: int, more: str) -> Server:
    """Not yet started."""
    config = FOLDER / f"{name}.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\nserver_name: {name}\njetstream {{ store_dir: "{FOLDER / name}" }}\n{more}\n'
    )
    program = program_of("nats", "NATS_SERVER_VERSION", "bin/nats-server")
    return Server(name, [program, "--config", str(config)], lambda: is_listening(f"127.0.0.1:{port}"))


def nats_server() -> Server:
    """Not yet started. The user ``reader`` may not publish everything."""
    users = (
        f'{{user: headrace, password: "{PASSWORD}"}}, {{user: reader, password: "{PASSWORD}", '
        'permissions: {publish: {deny: ["forbidden.>"]}}}'
    )
    return configured_server("nats", PORT, f"authorization {{ users: [{users}] }}")
