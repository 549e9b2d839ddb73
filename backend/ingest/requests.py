"""Turns an HTTP request into messages: every check of the input, and no I/O except reading the body."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from backend.domain import http_text, json, limits
from backend.domain.inputs.http import HttpInput, Verification
from backend.domain.message import TRACEPARENT, Message, utc_now
from backend.domain.message_maker import MessageMaker, bodies_of, is_batch
from backend.domain.pipeline import PipelineSnapshot
from backend.ingest import encodings
from backend.ingest.problems import Problem
from backend.manager_api.client import ConfigClient

MAX_BODY_BYTES = 1024 * 1024 - 1
"""Largest body, a whole NDJSON batch included, as it is sent and once it is unpacked: it is below 1 MiB."""
MAX_LINES = 10_000
"""Most messages of a batch: the producer has room for 100,000 messages of all clients."""

_MOST_DISCARDED = 16 * 1024 * 1024
_DISCARD_SECONDS = 10.0

Headers = dict[bytes, list[bytes]]
"""The values of each header, by its lower-case name, in the order in which they came."""
Receive = Callable[[], Awaitable[dict[str, Any]]]


def headers_of(scope: dict[str, Any]) -> Headers:
    headers: Headers = {}
    for name, value in scope["headers"]:
        headers.setdefault(name, []).append(value)
    return headers


def value_of(headers: Headers, name: bytes) -> bytes:
    """One value for all that were sent (RFC 9110, section 5.3); empty for none."""
    return b", ".join(headers.get(name, ()))


def verified_pipeline(config: ConfigClient, pipeline_id: str) -> PipelineSnapshot | None:
    """The pipeline, when its requests are verified by a connector instead of an API key. Raises Problem 503."""
    pipeline = config.pipeline(pipeline_id)
    if pipeline is None or verification_of(pipeline) is None:
        return None
    _check_accepting(pipeline)
    return pipeline


def verification_of(pipeline: PipelineSnapshot) -> Verification | None:
    """How the pipeline's requests are verified, unless an API key does it."""
    source = pipeline.config.input
    return source.verification if isinstance(source, HttpInput) else None


def authorized_pipeline(config: ConfigClient, pipeline_id: str, headers: Headers) -> PipelineSnapshot:
    """The pipeline the request may post to. Raises Problem 401, 404 or 503."""
    scheme, _, token = value_of(headers, b"authorization").partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise Problem(401, "Not authenticated", "Send an API key of the workspace as 'Authorization: Bearer hr_…'.")
    key = config.key(hashlib.sha256(token.strip()).hexdigest())
    if key is None:
        raise Problem(401, "Not authenticated", "This API key is unknown, expired, or may not post messages.")
    pipeline = config.pipeline(pipeline_id)
    if pipeline is None or pipeline.workspace_id != key.workspace_id:
        raise Problem(404, "Unknown pipeline", f"No published pipeline has the id {pipeline_id}.")
    _check_accepting(pipeline)
    return pipeline


def _check_accepting(pipeline: PipelineSnapshot) -> None:
    if not isinstance(pipeline.config.input, HttpInput):
        raise Problem(409, "Not an HTTP input", "This pipeline's input does not accept HTTP requests.")
    if not pipeline.accepting:
        raise Problem(
            503, "Pipeline paused", "The pipeline is paused; send the request again once it is resumed.", retry_after=60
        )


def declared_type(headers: Headers) -> str:
    """The content type. Raises Problem 415 without one, 400 when it cannot be sent on."""
    sent = headers.get(b"content-type", [])
    if len(sent) > 1:
        raise Problem(400, "Several content types", "Send one Content-Type header.")
    try:
        content_type = http_text.content_type(sent[0]) if sent else ""
    except http_text.HeaderError as error:
        raise Problem(400, "Broken content type", str(error)) from None
    if not content_type:
        raise Problem(415, "No content type", "Send a Content-Type header, such as application/json.")
    return content_type


def unpacked(headers: Headers, body: bytes) -> bytes:
    """The body without its content codings. Raises Problem 400, 413 or 415."""
    codings = value_of(headers, b"content-encoding")
    if not codings:
        return body
    try:
        return encodings.unpacked(body, codings.decode("latin-1"), MAX_BODY_BYTES)
    except encodings.UnknownCodingError as error:
        raise Problem(415, "Unknown content coding", str(error)) from None
    except encodings.UnpackedTooLargeError as error:
        raise Problem(413, "Too large", str(error)) from None
    except encodings.BrokenCodingError as error:
        raise Problem(400, "Broken body", str(error)) from None


class RequestBody:
    """The body of one request, as it arrives."""

    def __init__(self, headers: Headers, receive: Receive) -> None:
        declared = value_of(headers, b"content-length")
        self._declared = int(declared) if declared.isdigit() else 0
        self._expects_continue = value_of(headers, b"expect").lower() == b"100-continue"
        self._receive = receive
        self._received = 0
        self._ended = False

    def check_declared(self) -> None:
        """Raises Problem 413 when the client announces a body that is too large."""
        if self._declared > MAX_BODY_BYTES:
            raise _too_large()

    async def read(self) -> bytes:
        """The whole body. Raises Problem 413 as soon as it is too large, 400 when the client disconnects."""
        chunks: list[bytes] = []
        while not self._ended:
            chunks.append(await self._next())
            if self._received > MAX_BODY_BYTES:
                raise _too_large()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def discard(self) -> bool:
        """Reads what is left, since many clients read no answer before they have sent everything. Returns whether that
        was the whole body: with more than a bounded rest the connection has to be closed."""
        if self._expects_continue and not self._received:
            return True  # the client waits for the answer before it sends anything
        if self._declared > _MOST_DISCARDED:
            return False
        try:
            async with asyncio.timeout(_DISCARD_SECONDS):
                while not self._ended and self._received <= _MOST_DISCARDED:
                    await self._next()
        except (TimeoutError, Problem):
            return False
        return self._ended

    async def _next(self) -> bytes:
        event = await self._receive()
        if event["type"] == "http.disconnect":
            raise Problem(400, "Incomplete body", "The connection ended before the body was complete.")
        chunk: bytes = event.get("body", b"")
        self._received += len(chunk)
        self._ended = not event.get("more_body")
        return chunk


def messages(pipeline: PipelineSnapshot, content_type: str, body: bytes, headers: Headers) -> tuple[str, list[Message]]:
    """The entry topic and the messages of a request: all of them, or Problem 400 or 413 for the first invalid one."""
    one, where = "Message", "The body is not JSON: {1}"
    if is_batch(content_type):
        one, where = "Line", "Line {} is not JSON: {} Nothing of the batch was accepted."
    bodies, content_type = bodies_of(body, content_type)
    if not bodies:
        raise Problem(400, "Empty batch", "The batch is empty; send one JSON document per line.")
    if len(bodies) > MAX_LINES:
        text = f"The batch has {len(bodies):,} lines; send at most {MAX_LINES:,} in one request."
        raise Problem(413, "Too many messages", text)
    maker = MessageMaker(pipeline)
    traceparent = value_of(headers, b"traceparent")
    extra = {TRACEPARENT: traceparent.decode("latin-1")} if traceparent else {}
    received_at = utc_now()
    made = []
    for number, part in bodies:
        try:
            made.append(maker.make(part, content_type, received_at=received_at, headers=extra))
        except json.InvalidJsonError as error:
            raise Problem(400, "Broken JSON", where.format(number, error)) from None
        except limits.TooLargeError as error:
            raise Problem(413, "Too large", f"{one} {number}: {error} Nothing was accepted.") from None
    return maker.topic, made


def _too_large() -> Problem:
    return Problem(413, "Too large", f"The body is larger than {MAX_BODY_BYTES:,} bytes; split it.")
