"""Lets the driver stop its lane tasks: each task drains when its connection to the driver closes.

The connection also closes when the driver dies, so that no task outlives it.
"""

import asyncio
import socket
import threading
from typing import Final

Address = tuple[str, int]

_BACKLOG: Final = 128


class StopChannel:
    """The driver's end. Tasks on any executor connect to ``address``."""

    def __init__(self, host: str) -> None:
        self._server = socket.create_server((host, 0), backlog=_BACKLOG)
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._stopped = False
        threading.Thread(target=self._accept, name="stop-channel", daemon=True).start()

    @property
    def address(self) -> Address:
        host, port = self._server.getsockname()[:2]
        return host, port

    def stop(self) -> None:
        """Stops every task, including those that connect later."""
        with self._lock:
            self._stopped = True
            for connection in self._connections:
                connection.close()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed by stop()
                return
            with self._lock:
                if self._stopped:
                    connection.close()
                else:
                    self._connections.append(connection)


async def wait_for_stop(address: Address) -> None:
    """The task's end: returns when the driver stops the task or has died."""
    try:
        reader, writer = await asyncio.open_connection(*address)
    except OSError:
        return
    try:
        await reader.read()
    except OSError:
        pass
    finally:
        writer.close()
