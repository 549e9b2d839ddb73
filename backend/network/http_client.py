"""An asyncio HTTP client on libcurl: keep-alive, HTTP/2 where offered, and little time spent in Python."""

import asyncio
import select
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import pycurl

from backend.network.outbound import ForbiddenAddressError, outbound_policy

_READ_BYTES = 1024 * 1024
"""The transfer of a longer response body is aborted."""
_IDLE_HANDLES = 512

_EPOLL = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_ON_DEMAND = {pycurl.E_WRITE_ERROR}  # the transfer was aborted by _Exchange._write
_TLS = {pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_SSL_CONNECT_ERROR}


class HttpError(Exception):
    """No response. The message gives the reason; ``kind`` is ``dns``, ``tls``, ``timeout``, ``forbidden`` or
    ``connection``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Response:
    """A response. ``retry_after`` is in seconds. ``body`` holds at most the client's ``kept_bytes``; ``complete`` tells
    whether that is the whole body."""

    status: int
    body: bytes
    retry_after: float | None
    complete: bool = True


class _Exchange:
    """One request in progress on a reusable handle."""

    __slots__ = ("body", "forbidden", "future", "handle", "kept", "read")

    def __init__(self, handle: Any, kept: int) -> None:
        self.handle = handle
        self.kept = kept
        handle.setopt(pycurl.WRITEFUNCTION, self._write)
        handle.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)

    def begin(self, future: asyncio.Future[Response]) -> None:
        self.future = future
        self.body = bytearray()
        self.forbidden = ""
        self.read = 0

    def _open_socket(self, _purpose: int, address: Any) -> Any:
        """Checks the address that libcurl is about to connect to, since a name may resolve differently each time."""
        try:
            outbound_policy().check_address(address.addr[0])
        except ForbiddenAddressError as error:
            self.forbidden = str(error)
            return pycurl.SOCKET_BAD
        return socket.socket(address.family, address.socktype, address.protocol)

    def _write(self, chunk: bytes) -> int | None:
        self.read += len(chunk)
        if len(self.body) < self.kept:
            self.body += chunk[: self.kept - len(self.body)]
        return None if self.read <= _READ_BYTES else 0


class HttpClient:
    """Sends requests to one receiver. Must be created, used and closed on the same event loop.

    Times are in seconds. ``read_timeout`` limits how long no data may arrive; callers limit the whole exchange by
    cancelling it. ``kept_bytes`` is how much of a response body is kept.
    """

    def __init__(
        self,
        *,
        verify_tls: bool = True,
        connect_timeout: float = 10.0,
        read_timeout: float | None = None,
        kept_bytes: int = 2048,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._verify_tls = verify_tls
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._kept_bytes = kept_bytes
        self._idle: list[_Exchange] = []
        self._running: dict[Any, _Exchange] = {}
        # libcurl registers and removes sockets with each request, which costs the event loop much more than it costs
        # epoll. So the loop watches this epoll object only.
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, _IDLE_HANDLES)
        self._loop.add_reader(self._epoll.fileno(), self._act_on_ready)

    async def request(self, method: str, url: str, headers: list[str], body: bytes | None = None) -> Response:
        """Sends a request and awaits the response; redirects are not followed. Raises HttpError."""
        exchange = self._idle.pop() if self._idle else _Exchange(self._new_handle(), self._kept_bytes)
        handle = exchange.handle
        handle.setopt(pycurl.URL, url)
        handle.setopt(pycurl.HTTPHEADER, headers)
        if body is not None:
            handle.setopt(pycurl.POSTFIELDS, body)
        else:
            handle.setopt(pycurl.HTTPGET, 1)  # otherwise the previous request's body would be sent again
        handle.setopt(pycurl.CUSTOMREQUEST, method)
        future: asyncio.Future[Response] = self._loop.create_future()
        exchange.begin(future)
        self._running[handle] = exchange
        self._multi.add_handle(handle)
        try:
            return await future
        except asyncio.CancelledError:
            if self._running.pop(handle, None) is not None:
                self._multi.remove_handle(handle)
                handle.close()
            raise

    async def close(self) -> None:
        """Closes all connections; pending requests fail with HttpError."""
        if self._timer is not None:
            self._timer.cancel()
        for handle, exchange in self._running.items():
            self._multi.remove_handle(handle)
            if not exchange.future.done():
                exchange.future.set_exception(HttpError("connection", "The connection was closed."))
        self._running.clear()
        for exchange in self._idle:
            exchange.handle.close()
        self._idle.clear()
        self._multi.close()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _new_handle(self) -> Any:
        handle = pycurl.Curl()
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        handle.setopt(pycurl.PROXY, "")
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, int(self._connect_timeout * 1000))
        handle.setopt(pycurl.TCP_NODELAY, 1)
        if self._read_timeout is not None:
            handle.setopt(pycurl.LOW_SPEED_LIMIT, 1)
            handle.setopt(pycurl.LOW_SPEED_TIME, max(1, round(self._read_timeout)))
        if self._verify_tls:
            trusted = ssl.get_default_verify_paths()
            if trusted.cafile:
                handle.setopt(pycurl.CAINFO, trusted.cafile)
            if trusted.capath:
                handle.setopt(pycurl.CAPATH, trusted.capath)
        else:
            handle.setopt(pycurl.SSL_VERIFYPEER, 0)
            handle.setopt(pycurl.SSL_VERIFYHOST, 0)
        return handle

    # -- libcurl's callbacks and the loop's ------------------------------------

    def _watch(self, what: int, fd: int, _multi: Any, _data: Any) -> None:
        if what == pycurl.POLL_REMOVE:
            if fd in self._watched:
                self._watched.remove(fd)
                self._epoll.unregister(fd)
        elif fd in self._watched:
            self._epoll.modify(fd, _EPOLL[what])
        else:
            self._watched.add(fd)
            self._epoll.register(fd, _EPOLL[what])

    def _set_timer(self, milliseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if milliseconds >= 0:
            self._timer = self._loop.call_later(milliseconds / 1000, self._act_on_time)

    def _act_on_time(self) -> None:
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._settle_finished()

    def _act_on_ready(self) -> None:
        for fd, event in self._epoll.poll(0):
            # Errors are reported by a read.
            ready = pycurl.CSELECT_IN if event & ~select.EPOLLOUT else 0
            self._multi.socket_action(fd, ready | (pycurl.CSELECT_OUT if event & select.EPOLLOUT else 0))
        self._settle_finished()

    def _settle_finished(self) -> None:
        while True:
            left, finished, failed = self._multi.info_read()
            for handle in finished:
                self._settle(handle, 0, "")
            for handle, code, text in failed:
                self._settle(handle, code, text)
            if not left:
                return

    def _settle(self, handle: Any, code: int, text: str) -> None:
        exchange = self._running.pop(handle)
        self._multi.remove_handle(handle)
        if not exchange.future.done():
            if code == 0 or code in _ON_DEMAND:
                retry_after = handle.getinfo(pycurl.RETRY_AFTER)
                status = handle.getinfo(pycurl.RESPONSE_CODE)
                complete = len(exchange.body) == exchange.read
                exchange.future.set_result(
                    Response(status, bytes(exchange.body), float(retry_after) if retry_after else None, complete)
                )
            elif exchange.forbidden:
                exchange.future.set_exception(HttpError("forbidden", exchange.forbidden))
            else:
                exchange.future.set_exception(HttpError(_kind(code), text or f"libcurl error {code}"))
        if code == 0 and len(self._idle) < _IDLE_HANDLES:
            self._idle.append(exchange)
        else:
            handle.close()


def _kind(code: int) -> str:
    if code == pycurl.E_COULDNT_RESOLVE_HOST:
        return "dns"
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return "timeout"
    return "tls" if code in _TLS else "connection"
