"""Connects the driver with its lane tasks, by one connection from each task.

Through it a task reports its progress every two seconds, so that the driver notices one that hangs, and the driver
tells it to drain. A connection that breaks is made again: only a driver that stays unreachable for a minute ends its
tasks, so that none outlives it for long. Both ends prove by HMAC that they have the installation's service token,
which is never sent.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import SecretStr

log = logging.getLogger(__name__)

Address = tuple[str, int]
Lost = tuple[int, int, int]
"""A partition, the first offset that was lost, and the number of messages."""

_BACKLOG: Final = 128
_REPORT_SECONDS: Final = 2.0
_HANDSHAKE_SECONDS: Final = 10.0
_RECONNECT_SECONDS: Final = 1.0
_UNREACHABLE_SECONDS: Final = 60.0
_SILENCE_SECONDS: Final = 20
"""A peer whose machine answers nothing for so long is unreachable."""
_STOP: Final = b"stop\n"
_LONGEST_LINE: Final = 4096
"""Of the handshake."""


@dataclass(frozen=True)
class SlotReport:
    """What a task last reported. ``task`` is Spark's id of the attempt; ``progress`` is the task's own."""

    slot: int
    task: int | None
    progress: dict[str, Any]
    received: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        """In seconds."""
        return time.monotonic() - self.received


class _ForeignPeerError(Exception):
    """The other end has not proved that it belongs to this installation."""


class StopChannel:
    """The driver's end. Tasks on any executor connect to ``address``, and prove that they have the token."""

    def __init__(self, host: str, token: SecretStr) -> None:
        self._token = token
        self._server = socket.create_server((host, 0), backlog=_BACKLOG)
        self._connections: list[socket.socket] = []
        self._reports: dict[int, SlotReport] = {}
        self._losses: set[Lost] = set()
        self._losses_taken: set[Lost] = set()
        self._lock = threading.Lock()
        self.stopped = threading.Event()
        threading.Thread(target=self._accept, name="stop-channel", daemon=True).start()

    @property
    def address(self) -> Address:
        host, port = self._server.getsockname()[:2]
        return host, port

    def report(self, slot: int) -> SlotReport | None:
        """The last report of the slot's task; None while no task is connected."""
        return self._reports.get(slot)

    def take_losses(self) -> set[Lost]:
        """What tasks have reported as lost since the last call."""
        new = self._losses - self._losses_taken
        self._losses_taken |= new
        return new

    def stop(self) -> None:
        """Stops every task, including those that connect later."""
        with self._lock:
            self.stopped.set()
            for connection in self._connections:
                _tell_to_stop(connection)

    def close(self) -> None:
        """Once no task runs any more."""
        with self._lock:
            for connection in self._connections:
                _shut_down(connection)
        _shut_down(self._server)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), name="slot-reports", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._authenticate(connection)
            except (OSError, ValueError, _ForeignPeerError):
                log.warning("A connection to the stop channel is refused: it comes from no task of this installation.")
                return
            with self._lock:
                self._connections.append(connection)
                if self.stopped.is_set():
                    _tell_to_stop(connection)
            self._read(connection)

    def _authenticate(self, connection: socket.socket) -> None:
        """Raises _ForeignPeerError, OSError and ValueError."""
        _keep_alive(connection)
        connection.settimeout(_HANDSHAKE_SECONDS)
        challenge = secrets.token_hex()
        connection.sendall(challenge.encode() + b"\n")
        with connection.makefile("rb", buffering=0) as lines:  # nothing may be read beyond the line
            answer = lines.readline(_LONGEST_LINE).decode().split()
        if len(answer) != 2 or not _is_proof(answer[1], self._token, "task", challenge, answer[0]):
            raise _ForeignPeerError
        connection.sendall(_proof(self._token, "driver", challenge, answer[0]).encode() + b"\n")
        connection.settimeout(None)

    def _read(self, connection: socket.socket) -> None:
        report: SlotReport | None = None
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    report = SlotReport(**json.loads(line))
                    self._reports[report.slot] = report
                    self._losses.update(map(tuple, report.progress.get("losses", ())))
        except (OSError, ValueError):  # the connection broke, perhaps within a line
            pass
        finally:
            with self._lock:
                self._connections.remove(connection)
                if report is not None and self._reports.get(report.slot) is report:
                    del self._reports[report.slot]  # its successor has not reported yet


def _tell_to_stop(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the task is told once it has connected again
        connection.sendall(_STOP)


def _shut_down(connection: socket.socket) -> None:
    """Wakes the thread that waits in it, too, which closing alone does not."""
    with contextlib.suppress(OSError):  # the task has closed it already
        connection.shutdown(socket.SHUT_RDWR)


def _proof(token: SecretStr, role: str, *nonces: str) -> str:
    return hmac.digest(token.get_secret_value().encode(), " ".join((role, *nonces)).encode(), "sha256").hex()


def _is_proof(text: str, token: SecretStr, role: str, *nonces: str) -> bool:
    return hmac.compare_digest(text.encode(), _proof(token, role, *nonces).encode())


def _keep_alive(connection: socket.socket) -> None:
    """Lets the connection break when the other end's machine is gone, whether anything is sent or not."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE_SECONDS // 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE_SECONDS // 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_SECONDS * 1000)


async def watched(
    address: Address, token: SecretStr, slot: int = 0, progress: Callable[[], dict[str, Any]] = dict[str, Any]
) -> asyncio.Task[None]:
    """The task's end: reports ``progress``, and ends when the driver stops the task, or has been unreachable for a
    minute.

    It is returned once the first report is sent. Only since then does the driver notice that the task hangs, so that
    what may hang is to be begun afterwards.
    """
    is_reported = asyncio.Event()
    stop = asyncio.create_task(_report_until_stopped(address, token, slot, progress, is_reported))
    first_report = asyncio.create_task(is_reported.wait())
    try:
        await asyncio.wait([stop, first_report], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        stop.cancel()
        raise
    finally:
        first_report.cancel()
    return stop


async def _report_until_stopped(
    address: Address, token: SecretStr, slot: int, progress: Callable[[], dict[str, Any]], is_reported: asyncio.Event
) -> None:
    reached = time.monotonic()
    while time.monotonic() - reached < _UNREACHABLE_SECONDS:
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                reader, writer = await _connected(address, token)
        except (OSError, ValueError, _ForeignPeerError):
            await asyncio.sleep(_RECONNECT_SECONDS)
            continue
        if await _is_stopped(reader, writer, slot, progress, is_reported):
            return
        reached = time.monotonic()
        log.warning("The connection to the driver is lost; the task goes on, and connects again.")
    log.error("The driver has been unreachable for %.0f s.", _UNREACHABLE_SECONDS)


async def _connected(address: Address, token: SecretStr) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError, ValueError and _ForeignPeerError."""
    connection = await asyncio.to_thread(socket.create_connection, address, _HANDSHAKE_SECONDS)
    connection.setblocking(False)
    _keep_alive(connection)
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        challenge, own = (await reader.readline()).decode().strip(), secrets.token_hex()
        writer.write(f"{own} {_proof(token, 'task', challenge, own)}\n".encode())
        if not _is_proof((await reader.readline()).decode().strip(), token, "driver", challenge, own):
            raise _ForeignPeerError
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _is_stopped(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    slot: int,
    progress: Callable[[], dict[str, Any]],
    is_reported: asyncio.Event,
) -> bool:
    """Reports until the driver stops the task: True, or the connection breaks: False."""
    from pyspark import TaskContext  # here, since only a task of Spark needs it

    context = TaskContext.get()
    identity: dict[str, Any] = {"slot": slot, "task": context.taskAttemptId() if context is not None else None}
    order = asyncio.create_task(reader.readline())
    try:
        while not order.done():
            writer.write(json.dumps(identity | {"progress": progress()}).encode() + b"\n")
            is_reported.set()
            await asyncio.wait([order], timeout=_REPORT_SECONDS)
        return order.result() == _STOP
    except (OSError, ValueError):
        return False
    finally:
        order.cancel()
        writer.close()
