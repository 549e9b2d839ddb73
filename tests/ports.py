import random
import socket

# Below the system's ephemeral ports: an outgoing connection could take one of those from a server that is started
# later, or restarted.
_RANGE = range(15_000, 31_000)


def free_ports(count: int) -> list[int]:
    """Different ports that are free at the moment."""
    ports: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError("No free ports were found.")
