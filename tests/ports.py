"""Ports for the servers of tests. Test processes that run at the same time never get the same ones."""

import fcntl
import json
import os
import random
import socket
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

# Below the system's ephemeral ports: an outgoing connection could take one of those from a server that is started
# later, or restarted.
_RANGE = range(15_000, 31_000)

_CLAIMS = Path(tempfile.gettempdir()) / f"headrace-test-ports-{os.getuid()}.json"
"""Each claimed port with the process that claimed it: a port is free again when that process has ended."""


@contextmanager
def _claims() -> Iterator[dict[str, int]]:
    with _CLAIMS.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        try:
            known = json.loads(file.read())
        except ValueError:  # it is new, or a process was killed while it wrote
            known = {}
        claims = {port: process for port, process in known.items() if psutil.pid_exists(process)}
        yield claims
        file.seek(0)
        file.truncate()
        json.dump(claims, file)


def _is_free(port: int, claims: dict[str, int]) -> bool:
    if str(port) in claims:
        return False
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports that are this process's until it ends, all different."""
    ports: list[int] = []
    with _claims() as claims:
        for port in random.sample(_RANGE, len(_RANGE)):
            if _is_free(port, claims):
                claims[str(port)] = os.getpid()
                ports.append(port)
            if len(ports) == count:
                return ports
    raise AssertionError("No free ports were found.")


def free_offset(ports: Collection[int]) -> int:
    """An offset that moves all these ports to ones that are this process's until it ends."""
    with _claims() as claims:
        for first in random.sample(_RANGE, len(_RANGE)):
            offset = first - min(ports)
            if all(_is_free(port + offset, claims) for port in ports):
                claims.update({str(port + offset): os.getpid() for port in ports})
                return offset
    raise AssertionError("No free range of ports was found.")
