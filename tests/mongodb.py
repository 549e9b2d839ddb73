"""FerretDB as a MongoDB server for the tests: a replica set of one, with a user, and with TLS at another port."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.certificates import Authority
from tests.go_programs import built
from tests.infra import VAR, Server
from tests.ports import free_ports

PORT, TLS_PORT = free_ports(2)
# Not the address that tests connect to in order to be led to it.
HOST = "127.0.0.2"
USER, PASSWORD = "headrace", "planted-password-of-mongodb"
FOLDER = Path(mkdtemp(prefix="mongodb-", dir=VAR))
AUTHORITY = Authority(FOLDER)
CONNECTION: dict[str, Any] = {"servers": f"{HOST}:{PORT}", "username": USER, "password": PASSWORD}


def mongodb_server() -> Server:
    """Not yet started."""
    certificate, key = AUTHORITY.issue("mongodb")
    data = FOLDER / "data"
    data.mkdir(exist_ok=True)
    options = {
        "listen": f"{HOST}:{PORT}",
        "listen-tls": f"127.0.0.1:{TLS_PORT}",
        "certificate": certificate,
        "key": key,
        "ca": AUTHORITY.certificate,
        "folder": data,
        "replica-set": "rs0",
        "username": USER,
        "password": PASSWORD,
    }
    command = [str(built("ferretdb")), *(f"-{name}={value}" for name, value in options.items())]
    return Server("mongodb", command, _ready)


def direct() -> MongoClient[dict[str, Any]]:
    """A client of pymongo's own."""
    return MongoClient(
        HOST,
        PORT,
        username=USER,
        password=PASSWORD,
        serverSelectionTimeoutMS=2000,
        tz_aware=True,
        directConnection=True,
    )


def _ready() -> bool:
    try:
        with direct() as client:
            return bool(client.list_database_names())
    except PyMongoError:
        return False
