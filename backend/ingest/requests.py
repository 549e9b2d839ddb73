"""From an HTTP request to messages: every check of the input, and no I/O but reading the body."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from backend.domain import json, paths, routing
from backend.domain.connector import VerificationError, connectors
from backend.domain.filters.fields import index_of
from backend.domain.message import INDEX, TRACEPARENT, Message, new_message_id, utc_now
from backend.domain.pipeline import HttpInput, PipelineSnapshot
from backend.ingest.problems import Problem
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, UnknownPipelineError

MAX_BODY_BYTES = 1024 * 1024
"""Largest body, a whole NDJSON batch included (seed 003: below 1 MB)."""

NDJSON = "application/x-ndjson"

Headers = dict[bytes, bytes]
Receive = Callable[[], Awaitable[dict[str, Any]]]


def verified_pipeline(config: ConfigClient, pipeline_id: str) -> PipelineSnapshot | None:
    """The pipeline, when its requests are verified by a connector instead of an API key. Raises Problem 503."""
    pipeline = config.pipeline(pipeline_id)
    if pipeline is None or pipeline.config.verification is None:
        return None
    _check_accepting(pipeline)
    return pipeline


async def verify(config: ConfigClient, pipeline: PipelineSnapshot, headers: Headers, body: bytes) -> None:
    """Raises Problem 401 when the request does not prove where it comes from, 503 when that cannot be told now."""
    try:
        runtime = await config.runtime(str(pipeline.id), pipeline.version)
    except (ConfigUnavailableError, UnknownPipelineError) as error:
        raise Problem(503, "Verification not available", f"{error} Send it again.", retry_after=2) from None
    assert runtime.snapshot.config.verification is not None
    found = runtime.connectors[runtime.snapshot.config.verification]
    connector = connectors.get(found.type)
    if found.error or connector.verifier is None:
        raise Problem(503, "Verification not available", "The pipeline's verification is not set up.", retry_after=60)
    connection = connector.connection_model.model_validate(found.connection)
    try:
        connector.verifier(connection).verify(
            {n.decode("latin-1"): v.decode("latin-1") for n, v in headers.items()}, body
        )
    except VerificationError as error:
        raise Problem(401, "Not verified", str(error)) from None


def authorized_pipeline(config: ConfigClient, pipeline_id: str, headers: Headers) -> PipelineSnapshot:
    """The pipeline the request may post to. Raises Problem 401, 404 or 503."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
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
        raise Problem(409, "Not an HTTP input", "This pipeline takes other pipelines' messages by a filter.")
    if not pipeline.accepting:
        raise Problem(503, "Pipeline paused", "The pipeline is paused; send again once it is resumed.", retry_after=60)


def declared_type(headers: Headers) -> str:
    """The content type. Raises Problem 415 without one."""
    content_type = headers.get(b"content-type", b"").decode("latin-1").strip()
    if not content_type:
        raise Problem(415, "No content type", "Send a Content-Type header, such as application/json.")
    return content_type


async def read_body(headers: Headers, receive: Receive) -> bytes:
    """The whole body. Raises Problem 413 as soon as it is too large, 400 when the client goes away."""
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise _too_large()
    chunks: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Problem(400, "Incomplete body", "The connection ended before the body was complete.")
        chunk = event.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        chunks.append(chunk)
        if not event.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def messages(pipeline: PipelineSnapshot, content_type: str, body: bytes, headers: Headers) -> tuple[str, list[Message]]:
    """The entry topic and the messages of a request: all of them, or Problem 400 for the first bad one."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == NDJSON:
        bodies = [line for line in body.splitlines() if line.strip()]
        content_type = media_type = "application/json"
        if not bodies:
            raise Problem(400, "Empty batch", "The batch has no line; send one JSON document per line.")
        where = "Line {} is not JSON: {} Nothing of the batch was accepted."
    else:
        bodies = [body]
        where = "The body is not JSON: {1}"
    is_json = media_type == "application/json" or media_type.endswith("+json")
    topic, slip = routing.route(pipeline.config, str(pipeline.id))
    config = pipeline.config
    ordering_key = config.input.ordering_key if isinstance(config.input, HttpInput) else None
    # With transforms and stream processing the index is made of their result.
    indexes = config.index and not config.transforms and not config.stream_processing
    extra = {}
    if traceparent := headers.get(b"traceparent"):
        extra[TRACEPARENT] = traceparent.decode("latin-1")
    received_at = utc_now()
    made = []
    for number, part in enumerate(bodies, 1):
        document: Any = None
        if is_json:
            try:
                document = json.loads(part)
            except json.InvalidJsonError as error:
                raise Problem(400, "Broken JSON", where.format(number, error)) from None
        message_id = new_message_id()
        made.append(
            Message(
                id=message_id,
                pipeline_id=str(pipeline.id),
                version=pipeline.version,
                key=_key(document, ordering_key) or message_id.encode(),
                body=part,
                content_type=content_type,
                received_at=received_at,
                slip=slip,
                extra=extra | {INDEX: index_of(config.index, document).decode()} if indexes else extra,
            )
        )
    return topic, made


def _key(document: Any, ordering_key: str | None) -> bytes | None:
    if ordering_key is None:
        return None
    value = paths.get(document, paths.parse_path(ordering_key))
    if value is paths.MISSING or value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value)


def _too_large() -> Problem:
    return Problem(413, "Too large", f"The body is larger than {MAX_BODY_BYTES:,} bytes; split it.")
