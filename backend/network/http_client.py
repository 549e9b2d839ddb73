"""An asyncio HTTP client on libcurl: keep-alive, HTTP/2 where offered, and little time spent in Python."""

import asyncio
import re
import select
import socket
import ssl
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import pycurl

from backend.network.files import file_limit
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_READ_BYTES = 1024 * 1024
"""The transfer of a longer response body is aborted, unless more of it is to be kept."""
_IDLE_HANDLES = 512
_IDLE_CONNECTIONS = 1024

_EPOLL = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_BLANK = (b"\r\n", b"\n")
_ON_DEMAND = {pycurl.E_WRITE_ERROR}  # the transfer was aborted by _Exchange._write
_TLS = {
    pycurl.E_PEER_FAILED_VERIFICATION,
    pycurl.E_SSL_CACERT_BADFILE,
    pycurl.E_SSL_CERTPROBLEM,
    pycurl.E_SSL_CONNECT_ERROR,
}
_UNKNOWN_AUTHORITY = {2, 7, 18, 19, 20, 21}
"""OpenSSL's results of a verification that lacks the authority's certificate, or has another one of its name."""
_CERTIFICATE_REFUSED = re.compile(
    r"alert (certificate (required|expired|revoked|unknown)|(bad|unsupported) certificate|unknown ca|access denied)"
)
"""What a server says about the client's certificate; with TLS 1.3 it does so after the handshake."""
_TOO_SLOW = "Operation too slow"
_HANDSHAKE_REFUSED = re.compile("alert handshake failure|unexpected eof")
"""What servers of TLS 1.2 do that ask for a certificate and get none, and others for reasons of their own."""


_USER = re.compile("//[^/?#]*@")
_SHOWN_OF_A_LOCATION = 300


class HttpError(Exception):
    """No response. The message gives the reason, with a full stop; ``kind`` is ``dns``, ``tls``, ``timeout``,
    ``forbidden`` or ``connection``. ``field`` is what of the TLS settings is missing or wrong: ``ca``, ``certificate``
    or nothing."""

    def __init__(self, kind: str, message: str, field: str = "") -> None:
        super().__init__(f"{message.rstrip('.')}.")
        self.kind = kind
        self.field = field


@dataclass(frozen=True, slots=True)
class Response:
    """A response. ``retry_after`` is in seconds. ``body`` holds at most the client's ``kept_bytes``; ``complete`` tells
    whether that is the whole body. ``headers`` are those that the client asks for, by their lower-case names."""

    status: int
    body: bytes
    retry_after: float | None
    complete: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    location: str = ""
    """Where a redirect leads: an address without a user's name and password, shortened; empty for none."""

    @property
    def is_success(self) -> bool:
        """Whether the request was received, understood and accepted (RFC 9110, section 15.3)."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How servers are verified, and what this client shows them. Certificates and the key are in PEM format.

    ``authorities`` are trusted instead of the operating system's, or beside them if ``system_too``. The key has to
    belong to the certificate: libcurl tells connections apart by the certificate alone.
    """

    verify: bool = True
    authorities: str = ""
    system_too: bool = False
    certificate: str = ""
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)


_DEFAULT_TLS = TlsSettings()


@dataclass(frozen=True, slots=True)
class _Settings:
    tls: TlsSettings
    connect_timeout: float
    read_timeout: float | None
    kept_bytes: int
    kept_headers: frozenset[bytes]


class _Exchange:
    """One request in progress on a reusable handle."""

    __slots__ = ("body", "forbidden", "future", "handle", "kept", "lines", "loop", "most", "read", "settings")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.settings: _Settings | None = None
        self.handle = handle = pycurl.Curl()
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        handle.setopt(pycurl.PROXY, "")
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.TCP_NODELAY, 1)
        handle.setopt(pycurl.WRITEFUNCTION, self._write)
        self.lines: list[bytes] = []
        """The status line and the headers of each answer, interim ones among them, and a blank line behind each."""
        # Called for each line, so it is no function of Python.
        handle.setopt(pycurl.HEADERFUNCTION, self.lines.append)
        handle.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)

    def prepare(self, settings: _Settings, method: str, url: str, headers: list[str], body: bytes | None) -> None:
        handle = self.handle
        if settings is not self.settings:
            self._configure(settings)
        handle.setopt(pycurl.URL, url)
        if headers:
            handle.setopt(pycurl.HTTPHEADER, [header.encode() for header in headers])
        else:
            handle.unsetopt(pycurl.HTTPHEADER)  # pycurl keeps those of the previous request when it is given none
        if body is not None:
            handle.setopt(pycurl.POSTFIELDS, body)
        else:
            handle.setopt(pycurl.HTTPGET, 1)  # otherwise the previous request's body would be sent again
        handle.setopt(pycurl.CUSTOMREQUEST, method)
        self.future: asyncio.Future[Response] = self.loop.create_future()
        self.body = bytearray()
        self.forbidden = ""
        self.lines.clear()
        self.read = 0

    def _configure(self, settings: _Settings) -> None:
        self.settings = settings
        self.kept = settings.kept_bytes
        self.most = max(_READ_BYTES, settings.kept_bytes)
        handle, seconds = self.handle, settings.read_timeout
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, int(settings.connect_timeout * 1000))
        handle.setopt(pycurl.LOW_SPEED_LIMIT, 1 if seconds is not None else 0)
        handle.setopt(pycurl.LOW_SPEED_TIME, max(1, round(seconds)) if seconds is not None else 0)
        handle.setopt(pycurl.SSL_VERIFYPEER, int(settings.tls.verify))
        handle.setopt(pycurl.SSL_VERIFYHOST, 2 if settings.tls.verify else 0)
        self._trust(settings.tls)
        self._identify(settings.tls)

    def _trust(self, tls: TlsSettings) -> None:
        for option in (pycurl.CAINFO_BLOB, pycurl.CAINFO, pycurl.CAPATH):  # of the settings before
            self.handle.unsetopt(option)
        system = ssl.get_default_verify_paths()
        authorities = tls.authorities
        if authorities and tls.system_too and system.cafile:
            # With authorities in memory libcurl reads no file of others.
            authorities += "\n" + Path(system.cafile).read_text()
        if authorities:
            self.handle.setopt(pycurl.CAINFO_BLOB, authorities.encode())
        elif system.cafile:
            self.handle.setopt(pycurl.CAINFO, system.cafile)
        if system.capath and (tls.system_too or not authorities):
            self.handle.setopt(pycurl.CAPATH, system.capath)

    def _identify(self, tls: TlsSettings) -> None:
        """libcurl takes certificate and key from memory, so that no key is ever in a file."""
        for option in (pycurl.SSLCERT_BLOB, pycurl.SSLKEY_BLOB):  # of the settings before
            self.handle.unsetopt(option)
        self.handle.setopt(pycurl.KEYPASSWD, tls.key_password)
        if tls.certificate:
            self.handle.setopt(pycurl.SSLCERT_BLOB, tls.certificate.encode())
            self.handle.setopt(pycurl.SSLKEY_BLOB, tls.key.encode())

    def _open_socket(self, _purpose: int, address: Any) -> Any:
        """Checks the address that libcurl is about to connect to, since a name may resolve differently each time."""
        try:
            outbound_policy().check_address(address.addr[0])
        except ForbiddenAddressError as error:
            self.forbidden = str(error)
            return pycurl.SOCKET_BAD
        try:
            return socket.socket(address.family, address.socktype, address.protocol)
        except OSError:  # no file handle is left, which libcurl reports
            return pycurl.SOCKET_BAD

    def _write(self, chunk: bytes) -> int | None:
        self.read += len(chunk)
        if len(self.body) < self.kept:
            self.body += chunk[: self.kept - len(self.body)]
        return None if self.read <= self.most else 0

    def has_all_headers(self) -> bool:
        """Whether the last answer's headers have ended; libcurl takes an answer that breaks off there for a whole one.
        Trailers follow behind the blank line."""
        lines = self.lines
        return bool(lines) and (lines[-1] in _BLANK or any(line in _BLANK for line in self._last_lines()))

    def kept_headers(self) -> dict[str, str]:
        """Those of the last answer that the client asks for."""
        assert self.settings is not None
        headers: dict[str, str] = {}
        if not self.settings.kept_headers:
            return headers
        for line in self._last_lines():
            name, separator, value = line.partition(b":")
            name = name.strip().lower()
            if separator and name in self.settings.kept_headers:
                values = filter(None, (headers.get(name.decode()), value.strip().decode("latin-1")))
                headers[name.decode()] = ", ".join(values)
        return headers

    def _last_lines(self) -> list[bytes]:
        starts = [number for number, line in enumerate(self.lines) if line.startswith(b"HTTP/")]
        return self.lines[starts[-1] :] if starts else []


class HttpClient:
    """Sends requests with certain settings. Must be created, used and closed on the same event loop, whose clients
    share their connections.

    Times are in seconds. ``read_timeout`` limits how long no data may arrive; callers limit the whole exchange by
    cancelling it. ``kept_bytes`` is how much of a response body is kept, and ``kept_headers`` which of its headers.
    """

    def __init__(
        self,
        *,
        tls: TlsSettings = _DEFAULT_TLS,
        connect_timeout: float = 10.0,
        read_timeout: float | None = None,
        kept_bytes: int = 2048,
        kept_headers: Collection[str] = (),
    ) -> None:
        names = frozenset(name.lower().encode() for name in kept_headers)
        self._settings = _Settings(tls, connect_timeout, read_timeout, kept_bytes, names)
        self._running: set[_Exchange] = set()
        self._transfers = _Transfers.of_this_loop()
        self._transfers.clients.add(self)

    async def request(self, method: str, url: str, headers: list[str], body: bytes | None = None) -> Response:
        """Sends a request and awaits the response; redirects are not followed. Headers are sent as UTF-8; the URL is
        ASCII. Raises HttpError."""
        exchange = self._transfers.begin(self._settings, method, url, headers, body)
        self._running.add(exchange)
        try:
            return await exchange.future
        except asyncio.CancelledError:
            self._transfers.abort(exchange)
            raise
        finally:
            self._running.discard(exchange)

    async def close(self) -> None:
        """Pending requests fail with HttpError. The last client of the event loop closes all connections."""
        for exchange in list(self._running):
            self._transfers.abort(exchange)
            if not exchange.future.done():
                exchange.future.set_exception(HttpError("connection", "The connection was closed."))
        self._transfers.clients.discard(self)
        if not self._transfers.clients:
            self._transfers.close()


class _Transfers:
    """libcurl's transfers of one event loop, and their connections."""

    _by_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, "_Transfers"]] = WeakKeyDictionary()

    @classmethod
    def of_this_loop(cls) -> "_Transfers":
        loop = asyncio.get_running_loop()
        transfers = cls._by_loop.get(loop)
        if transfers is None:
            transfers = cls._by_loop[loop] = cls(loop)
        return transfers

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.clients: set[HttpClient] = set()
        self._idle: list[_Exchange] = []
        self._running: dict[Any, _Exchange] = {}
        # libcurl registers and removes sockets with each request, which costs the event loop much more than it costs
        # epoll. So the loop watches this epoll object only.
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        """Whether the timer runs in the loop's next round."""
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        # Kafka, Redis and the process itself need handles too. Idle connections make room for new ones, the longest
        # idle first; beyond the total, requests wait for a connection.
        limit = file_limit()
        self._multi.setopt(pycurl.M_MAXCONNECTS, min(_IDLE_CONNECTIONS, limit // 4))
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, limit // 2)
        loop.add_reader(self._epoll.fileno(), self._act_on_ready)

    def begin(self, settings: _Settings, method: str, url: str, headers: list[str], body: bytes | None) -> _Exchange:
        exchange = self._idle.pop() if self._idle else _Exchange(self._loop)
        exchange.prepare(settings, method, url, headers, body)
        self._running[exchange.handle] = exchange
        self._multi.add_handle(exchange.handle)
        return exchange

    def abort(self, exchange: _Exchange) -> None:
        if self._running.pop(exchange.handle, None) is not None:
            self._multi.remove_handle(exchange.handle)
            exchange.handle.close()

    def close(self) -> None:
        """Once nothing runs."""
        self._by_loop.pop(self._loop, None)
        if self._timer is not None:
            self._timer.cancel()
        for exchange in self._idle:
            exchange.handle.close()
        self._idle.clear()
        self._multi.close()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

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
        if self._is_due and milliseconds == 0:  # asked for by each of the requests that begin together
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_due = milliseconds == 0
        if milliseconds >= 0:
            self._timer = self._loop.call_later(milliseconds / 1000, self._act_on_time)

    def _act_on_time(self) -> None:
        self._is_due = False
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
            if code == 0 and not exchange.has_all_headers():
                exchange.future.set_exception(HttpError("connection", "The connection ended in the answer's headers."))
            elif code == 0 or code in _ON_DEMAND:
                retry_after = handle.getinfo(pycurl.RETRY_AFTER)
                status = handle.getinfo(pycurl.RESPONSE_CODE)
                complete = len(exchange.body) == exchange.read
                exchange.future.set_result(
                    Response(
                        status,
                        bytes(exchange.body),
                        float(retry_after) if retry_after else None,
                        complete,
                        exchange.kept_headers(),
                        _location(handle.getinfo_raw(pycurl.REDIRECT_URL)),
                    )
                )
            elif exchange.forbidden:
                exchange.future.set_exception(HttpError("forbidden", exchange.forbidden))
            else:
                exchange.future.set_exception(_failure(exchange, code, text or f"libcurl error {code}"))
        exchange.body = bytearray()
        if code == 0 and len(self._idle) < _IDLE_HANDLES:
            self._idle.append(exchange)
        else:
            handle.close()


def _location(url: bytes | None) -> str:
    if not url:
        return ""
    shown = _USER.sub("//", url.decode("latin-1"), count=1)[:_SHOWN_OF_A_LOCATION]
    return "".join(character if character.isprintable() else "?" for character in shown)


def _failure(exchange: _Exchange, code: int, text: str) -> HttpError:
    assert exchange.settings is not None
    if code == pycurl.E_COULDNT_RESOLVE_HOST:
        return HttpError("dns", text)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        if text.startswith(_TOO_SLOW):
            text = f"Nothing was received for {exchange.settings.read_timeout:g} seconds"
        return HttpError("timeout", text)
    if (
        code == pycurl.E_PEER_FAILED_VERIFICATION
        and exchange.handle.getinfo(pycurl.SSL_VERIFYRESULT) in _UNKNOWN_AUTHORITY
    ):
        return HttpError("tls", f"{text}. Enter the certificate of the authority that signed the server's", "ca")
    shown = bool(exchange.settings.tls.certificate)
    if _CERTIFICATE_REFUSED.search(text):
        said = "does not accept the client certificate" if shown else "asks for a client certificate"
        return HttpError("tls", f"The server {said}: {text}", "certificate")
    if code == pycurl.E_SSL_CONNECT_ERROR and _HANDSHAKE_REFUSED.search(text) and not shown:
        return HttpError("tls", f"{text}. Perhaps the server asks for a client certificate", "certificate")
    return HttpError("tls" if code in _TLS else "connection", text)
