"""The health check of a container: ``python -m backend.runtime.health URL`` exits with 0 if the URL answers 2xx."""

import socket
import sys
import urllib.error
import urllib.request

_SECONDS = 2.0


def http_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS):
            return True
    except (urllib.error.URLError, OSError):
        return False


def is_listening(address: str) -> bool:
    """Whether ``host:port`` accepts connections, which may be encrypted."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _SECONDS).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(not http_ready(sys.argv[1]))
