"""A Java process with the drivers that the operator has installed."""

import asyncio
import logging
import os
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import IO

from backend.connectors.jdbc.connection import URL
from backend.connectors.jdbc.guard import NetworkGuard
from backend.connectors.jdbc.program import MAIN, Program
from backend.connectors.parts.database import ConnectionFailedError
from backend.domain.reasons import Reason
from backend.settings import platform_settings

log = logging.getLogger(__name__)

_PROGRAM = Program()
_START_SECONDS = 60.0
_MEMORY = "256m"
_READ_AHEAD = 1024 * 1024
_READY, _ROW, _DONE, _FAILED = (letter.encode() for letter in "WRDE")


class JdbcError(Exception):
    """What a driver has raised: SQLSTATE, the database's own number, and what the innermost cause says."""

    def __init__(self, state: str, code: str, text: str, cause: str) -> None:
        super().__init__(text)
        self.state = state
        self.code = int(code)
        self.cause = cause


class JdbcProcess:
    """Answers one request at a time. ``guard`` is its way to the network."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        guard: NetworkGuard,
    ) -> None:
        self._process = process
        self._reader, self._writer = streams
        self.guard = guard

    @classmethod
    async def start(cls) -> "JdbcProcess":
        """Raises ConnectionFailedError."""
        drivers = _drivers()
        java = _java()
        guard = NetworkGuard()
        port = await guard.start()
        here, there = socket.socketpair()
        with tempfile.TemporaryFile() as errors:
            try:
                process = await asyncio.to_thread(_started, java, drivers, port, there, errors)
            except BaseException as error:
                guard.close()
                here.close()  # which ends the process, if nobody waits for its start any more
                if isinstance(error, OSError):
                    text = f"Java could not be started: {error}."
                    raise ConnectionFailedError.of(URL, Reason.CONNECTION, text) from None
                raise
            started = cls(process, await asyncio.open_connection(sock=here, limit=_READ_AHEAD), guard)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    assert await started._frame() == (_READY, [])
            except BaseException as error:
                started.kill()
                if isinstance(error, TimeoutError | OSError | asyncio.IncompleteReadError):
                    errors.seek(0)
                    log.error("Java has not started: %s", errors.read(2000).decode(errors="replace"))
                    text = "Java could not be started; the server's log has the details."
                    raise ConnectionFailedError.of(URL, Reason.CONNECTION, text) from None
                raise
        return started

    async def answers(self, *request: str) -> AsyncGenerator[list[str], None]:
        """The rows of the answer. Raises JdbcError."""
        encoded = [text.encode(errors="replace") for text in request]
        parts = [struct.pack("!i", len(encoded)), *(struct.pack("!i", len(text)) + text for text in encoded)]
        try:
            self._writer.write(b"".join(parts))
            await self._writer.drain()
            while True:
                kind, texts = await self._frame()
                if kind == _ROW:
                    yield texts
                    continue
                if kind == _FAILED:
                    raise JdbcError(*texts)
                return
        except (OSError, asyncio.IncompleteReadError):
            raise JdbcError("", "0", "the Java process has ended", "") from None

    async def answer(self, *request: str) -> list[str]:
        """The only row, or nothing. Raises JdbcError."""
        row: list[str] = []
        async for texts in self.answers(*request):
            row = texts
        return row

    def kill(self) -> None:
        self._process.kill()
        self._writer.transport.abort()
        self.guard.close()
        asyncio.get_running_loop().run_in_executor(None, self._process.wait)

    async def _frame(self) -> tuple[bytes, list[str]]:
        kind, size = struct.unpack("!ci", await self._reader.readexactly(5))
        content = await self._reader.readexactly(size)
        texts, at = [], 0
        while at < size:
            (length,) = struct.unpack_from("!i", content, at)
            texts.append(content[at + 4 : at + 4 + length].decode())
            at += 4 + length
        return kind, texts


def installed_drivers() -> list[str]:
    """The names of the jar files."""
    folder = platform_settings().jdbc_drivers
    return sorted(path.name for path in Path(folder).glob("*.jar")) if folder else []


def _drivers() -> str:
    if not installed_drivers():
        text = (
            "This installation has no JDBC drivers: an operator can set HEADRACE_JDBC_DRIVERS to a folder with their "
            "jar files."
        )
        raise ConnectionFailedError.of(URL, Reason.FORBIDDEN, text, retryable=False)
    return platform_settings().jdbc_drivers


def _started(java: str, drivers: str, port: int, there: socket.socket, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """By this module, which starts processes without the handlers that gRPC has for forks, and in a thread, since it
    takes a while. Drivers are given no variables, among which are this process's own passwords."""
    with there:
        command = _command(java, _PROGRAM.classes(java), drivers, port)
        return subprocess.Popen(command, stdin=there.fileno(), stdout=there.fileno(), stderr=errors, env={})


def _java() -> str:
    homes = (platform_settings().java_home, os.environ.get("JAVA_HOME"))
    candidates = [Path(home) / "bin/java" for home in homes if home]
    java = next((str(path) for path in candidates if path.exists()), None) or shutil.which("java")
    if java is None:
        text = "There is no Java on this server: an operator can install it, or set HEADRACE_JAVA_HOME."
        raise ConnectionFailedError.of(URL, Reason.CONFIGURATION, text)
    return java


def _command(java: str, classes: str, drivers: str, port: int) -> list[str]:
    properties = {
        "socksProxyHost": "127.0.0.1",
        "socksProxyPort": port,
        "socksNonProxyHosts": "",
        "user.timezone": "UTC",
        "file.encoding": "UTF-8",
    }
    return [
        java,
        f"-Xmx{_MEMORY}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # most processes have ended before more would have paid
        *(f"-D{name}={value}" for name, value in properties.items()),
        *("-cp", os.pathsep.join([classes, f"{drivers}/*"]), MAIN),
    ]
