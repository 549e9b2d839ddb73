import random
import socket

# Below those that the system gives to outgoing connections: one of these could take the port of a
# server that is started later, or is down for a while.
_RANGE = range(15_000, 31_000)


def free_ports(count: int) -> list[int]:
    """Ports that were free just now, all different."""
    found: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("No free ports were found.")
