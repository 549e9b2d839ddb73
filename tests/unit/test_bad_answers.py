"""Receivers that answer badly, as HTTP outputs see them: written byte by byte, since no server library would."""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backend.domain.capabilities import DeliveryError, Receipt
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.pipeline import OutputConfig
from tests.certificates import Authority
from tests.waiting import LIMIT_SECONDS, PATIENCE

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
OK = b"\x88"
"""The status 200 in HPACK, by its number in the static table."""
TEN_BYTES = b"\x0f\x0d\x0210"
"""A content length of ten."""
EARLY_HINTS = b"\x08\x03103"
"""The status 103, by the table's name and a text."""


@asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that does so on each connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/"
    finally:
        server.close()
        await server.wait_closed()


async def delivered(url: str, authority: str = "", **options: Any) -> Receipt | DeliveryError:
    """What comes of one attempt."""
    connection = {"url": url, "ca": authority}
    output = {"name": "out", "connector": "0198a7e5-0000-7000-8000-000000000000", "options": options}
    config = OutputConfig.model_validate(output)
    capability: Any = config.bind(RuntimeConnector(type="http", connection=connection))
    message = Message(new_message_id(), "p", 1, b"k", b'{"a":1}', "application/json", utc_now(), ())
    await capability.open()
    try:
        async with asyncio.timeout(LIMIT_SECONDS * PATIENCE):
            receipt: Receipt = await capability.deliver(message)
            return receipt
    except DeliveryError as error:
        return error
    finally:
        await capability.close()


def answering(answer: bytes) -> Serve:
    """Reads the request, sends this and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'{"a":1}')
        writer.write(answer)

    return serve


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 1_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200",
        b"\x00\x01\x02\x03",
        b"",
    ],
)
async def test_an_answer_that_is_cut_off_is_none(answer: bytes) -> None:
    async with serving(answering(answer)) as url:
        outcome = await delivered(url)
    assert isinstance(outcome, DeliveryError)
    assert outcome.retryable
    assert not outcome.about_message
    assert url.removeprefix("http://").strip("/") in str(outcome)


@pytest.mark.parametrize(
    "interim",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n",
        b"HTTP/1.1 199 Whatever\r\nContent-Length: 5\r\n\r\n",
    ],
)
async def test_interim_answers_are_passed_over(interim: bytes) -> None:
    final = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"
    for count in (1, 3):
        async with serving(answering(interim * count + final)) as url:
            assert await delivered(url) == Receipt("201", "ok")
    async with serving(answering(interim + b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 0\r\n\r\n")) as url:
        outcome = await delivered(url)
    assert isinstance(outcome, DeliveryError)
    assert (outcome.status, outcome.about_message) == ("422", True)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 O",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
async def test_interim_answers_alone_deliver_nothing(answer: bytes) -> None:
    async with serving(answering(answer)) as url:
        outcome = await delivered(url)
    assert isinstance(outcome, DeliveryError)
    assert outcome.retryable
    assert not outcome.about_message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_tells_where_it_leads(status: int) -> None:
    answer = f"HTTP/1.1 {status} Moved\r\nLocation: /v2/orders?a=1\r\nContent-Length: 0\r\n\r\n".encode()
    async with serving(answering(answer)) as url:
        outcome = await delivered(url)
    assert isinstance(outcome, DeliveryError)
    assert f"{url}v2/orders?a=1" in str(outcome)
    assert "follows no redirects" in str(outcome)
    assert (outcome.status, outcome.retryable, outcome.about_message) == (str(status), False, False)


@pytest.mark.parametrize(
    "location",
    [b"", b"Location:\r\n", b"Location: http://\xff\xfe\x01\r\n", b"Location: " + b"x" * 5000 + b"\r\n"],
)
async def test_a_redirect_to_nowhere_is_told_all_the_same(location: bytes) -> None:
    answer = b"HTTP/1.1 302 Found\r\n" + location + b"Content-Length: 0\r\n\r\n"
    async with serving(answering(answer)) as url:
        outcome = await delivered(url)
    assert isinstance(outcome, DeliveryError)
    assert outcome.status == "302"
    assert len(str(outcome)) < 600
    assert str(outcome).isprintable()


async def test_a_password_in_a_redirect_is_not_shown() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: https://ann:t0p-secret@example.com/x\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(answer)) as url:
        outcome = await delivered(url)
    assert "https://example.com/x" in str(outcome)
    assert "t0p-secret" not in str(outcome)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def answering_http2(*frames: tuple[int, int, bytes]) -> Serve:
    """Sends these frames on the stream of the request once that has ended, and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(PREFACE)) == PREFACE
        writer.write(frame(SETTINGS, 0, 0))
        while True:
            head = await reader.readexactly(9)
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            await reader.readexactly(int.from_bytes(head[:3], "big"))
            if kind == SETTINGS and not flags & ACK:
                writer.write(frame(SETTINGS, ACK, 0))
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                break
        for kind, flags, payload in frames:
            writer.write(frame(kind, flags, 0 if kind == GOAWAY else stream, payload))
        await writer.drain()
        # The client ends the connection, or the request with it.
        await reader.read()

    return serve


def reset(code: int) -> tuple[int, int, bytes]:
    return RST_STREAM, 0, struct.pack(">I", code)


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    """Of a server of HTTP/2, and the authority that clients have to trust."""
    authority = Authority(tmp_path)
    context = authority.server_context()
    context.set_alpn_protocols(["h2"])
    return context, authority.certificate.read_text()


@pytest.mark.parametrize("code", range(1, 14))
@pytest.mark.parametrize("body", [(), ((DATA, 0, b"half"),)])
async def test_a_stream_that_is_reset_after_its_headers_has_no_answer(
    tls: tuple[ssl.SSLContext, str], code: int, body: tuple[tuple[int, int, bytes], ...]
) -> None:
    context, authority = tls
    serve = answering_http2((HEADERS, END_HEADERS, OK), *body, reset(code))
    async with serving(serve, context) as url:
        outcome = await delivered(url, authority)
    assert isinstance(outcome, DeliveryError), outcome
    assert outcome.retryable
    assert not outcome.about_message


async def test_a_stream_that_is_reset_without_an_error_has_an_answer_if_that_is_whole(
    tls: tuple[ssl.SSLContext, str],
) -> None:
    """Whether the stream had ended, libcurl does not tell (its issue 6015): only an announced length can be missed."""
    context, authority = tls
    for headers, is_answer in ((OK + TEN_BYTES, False), (OK, True)):
        serve = answering_http2((HEADERS, END_HEADERS, headers), (DATA, 0, b"half"), reset(0))
        async with serving(serve, context) as url:
            outcome = await delivered(url, authority)
        assert isinstance(outcome, Receipt) == is_answer, outcome


async def test_a_stream_that_is_reset_after_its_end_was_answered(tls: tuple[ssl.SSLContext, str]) -> None:
    """A server that has answered may refuse the rest of a request so (RFC 9113, section 8.1)."""
    context, authority = tls
    serve = answering_http2((HEADERS, END_HEADERS, OK), (DATA, END_STREAM, b"ok"), reset(0))
    async with serving(serve, context) as url:
        assert await delivered(url, authority) == Receipt("200", "ok")


async def test_interim_answers_of_http2_are_passed_over(tls: tuple[ssl.SSLContext, str]) -> None:
    context, authority = tls
    hints = (HEADERS, END_HEADERS, EARLY_HINTS)
    async with serving(answering_http2(hints, (HEADERS, END_HEADERS | END_STREAM, OK)), context) as url:
        assert await delivered(url, authority) == Receipt("200", "")
    async with serving(answering_http2(hints, reset(0)), context) as url:
        outcome = await delivered(url, authority)
    assert isinstance(outcome, DeliveryError)
    assert outcome.retryable


async def test_a_connection_that_goes_away_before_the_stream_ends_has_no_answer(
    tls: tuple[ssl.SSLContext, str],
) -> None:
    context, authority = tls
    away = (GOAWAY, 0, struct.pack(">II", 0, 0))
    for frames in ([(HEADERS, END_HEADERS, OK), away], [away], [(HEADERS, END_HEADERS, OK), (DATA, 0, b"x"), away]):

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: Any = frames) -> None:
            answer = asyncio.create_task(answering_http2(*frames)(reader, writer))
            await asyncio.wait([answer], timeout=0.5)  # the connection ends in the middle of the answer
            answer.cancel()

        async with serving(serve, context) as url:
            outcome = await delivered(url, authority)
        assert isinstance(outcome, DeliveryError), frames
        assert outcome.retryable
