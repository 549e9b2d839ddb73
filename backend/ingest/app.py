"""The ingest's ASGI application: ``POST /v1/pipelines/{id}/messages``.

202 means that Kafka has acknowledged every message of the request on all in-sync replicas.
"""

import asyncio
import contextlib
import gc
import logging
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from backend.domain import json, limits
from backend.domain.inputs.http import HttpInput
from backend.domain.pipeline import PipelineSnapshot
from backend.ingest import idempotency, requests
from backend.ingest.idempotency import IdempotentRequests
from backend.ingest.problems import Problem
from backend.ingest.requests import RequestBody
from backend.ingest.verification import Verifier
from backend.kafka.client.producer import AsyncProducer
from backend.manager_api.client import ConfigClient, ConfigUnavailableError
from backend.manager_api.credentials import manager_access
from backend.network.files import raise_file_limit
from backend.settings import platform_settings
from backend.telemetry import events
from backend.telemetry.metrics_server import serve_metrics
from backend.telemetry.recorder import Recorder

log = logging.getLogger(__name__)

_ACKNOWLEDGE_SECONDS = 5.0
_PROBE_SECONDS = 1.0
_JSON = [(b"content-type", b"application/json")]
_OF_THE_MESSAGE = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError._INVALID_ARG,
}
"""Errors that say nothing about Kafka: it takes other messages."""


class Ingest:
    """One process of the HTTP input."""

    def __init__(self) -> None:
        self._kafka_down: str | None = None
        self._probe: asyncio.Task[None] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            sent_headers = requests.headers_of(scope)
            request_body = RequestBody(sent_headers, receive)
            try:
                status, headers, body = await self._handle(scope, sent_headers, request_body)
            except Problem as problem:
                status, headers, body = problem.status, problem.headers(), problem.body()
                if not await request_body.discard():
                    headers.append((b"connection", b"close"))
            await send(
                {
                    "type": "http.response.start",
                    "status": status,
                    "headers": [*headers, (b"content-length", str(len(body)).encode())],
                }
            )
            await send({"type": "http.response.body", "body": body})

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        settings = platform_settings()
        raise_file_limit()
        serve_metrics("ingest")
        self._recorder = Recorder(settings.redis_url)
        self._idempotent = IdempotentRequests(settings.redis_url)
        self._config = ConfigClient(redis_url=settings.redis_url, **manager_access(settings))
        self._verifier = Verifier(self._config)
        self._producer = AsyncProducer(
            {
                **settings.kafka.client(),
                "linger.ms": 2,
                "compression.type": "lz4",
                "message.max.bytes": limits.RECORD_BYTES,
                "message.timeout.ms": int(_ACKNOWLEDGE_SECONDS * 1000),
                "reconnect.backoff.max.ms": 1000,
            }
        )
        self._recorder.start()
        # Without a configuration the process still starts: it answers 503 until one comes.
        with contextlib.suppress(ConfigUnavailableError):
            await self._config.start()
        # What is loaded by now is no garbage, and searching it took a twentieth of the time at full load.
        gc.freeze()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._producer.close()
        await self._config.close()
        await self._recorder.close()
        await self._idempotent.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _handle(
        self, scope: dict[str, Any], headers: requests.Headers, body: RequestBody
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        match scope["path"].strip("/").split("/"):
            case ["v1", "pipelines", pipeline_id, "messages"]:
                if scope["method"] != "POST":
                    raise Problem(405, "Method not allowed", "Post messages with the method POST.")
                ids = await self._accept(pipeline_id, headers, body)
                return 202, _JSON, json.dumps({"message_ids": ids})
            case ["health", "live"]:
                return 200, _JSON, b'{"status":"live"}'
            case ["health", "ready"]:
                return self._ready()
        raise Problem(404, "Not found", "Messages are posted to /v1/pipelines/{id}/messages.")

    async def _accept(self, pipeline_id: str, headers: requests.Headers, request_body: RequestBody) -> list[str]:
        content_type = requests.declared_type(headers)
        request_body.check_declared()
        if not self._config.loaded:
            raise Problem(
                503, "Starting", "The configuration is not loaded yet; send the request again.", retry_after=1
            )
        verified = requests.verified_pipeline(self._config, pipeline_id)
        pipeline = verified or requests.authorized_pipeline(self._config, pipeline_id, headers)
        body = requests.unpacked(headers, await request_body.read())
        if verified:
            await self._verifier.verify(pipeline, headers, body)
        key = idempotency.key_of(headers)
        assert isinstance(pipeline.config.input, HttpInput)
        window = pipeline.config.input.deduplicate_seconds
        if key is None or not window:
            return await self._produce(pipeline, content_type, body, headers)
        async with self._idempotent.claim(pipeline_id, key, body, window) as claim:
            if claim.message_ids is not None:
                self._recorder.count(pipeline_id, events.REPEATED)
                return claim.message_ids
            ids = await self._produce(pipeline, content_type, body, headers)
            await claim.accepted(ids)
            return ids

    async def _produce(
        self, pipeline: PipelineSnapshot, content_type: str, body: bytes, headers: requests.Headers
    ) -> list[str]:
        """Returns the messages' ids once Kafka has acknowledged every message."""
        topic, messages = requests.messages(pipeline, content_type, body, headers)
        if self._kafka_down is not None:
            raise self._unavailable(self._kafka_down)
        try:
            sent = [self._producer.send(topic, key=m.key, value=m.body, headers=m.headers()) for m in messages]
            if len(sent) == 1:
                await sent[0]
            else:
                await asyncio.gather(*sent)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() in _OF_THE_MESSAGE:
                raise Problem(
                    422,
                    "Rejected by Kafka",
                    f"Kafka takes no such message ({cause.str()}). Change it before it is sent again; of a batch, "
                    "other messages may have been accepted.",
                ) from None
            if cause.code() != KafkaError._QUEUE_FULL:
                self._suspect_kafka(cause.str())
            raise self._unavailable(cause.str()) from None
        self._recorder.count(str(pipeline.id), events.ACCEPTED, len(messages))
        return [message.id for message in messages]

    def _suspect_kafka(self, cause: str) -> None:
        """Until Kafka answers a probe, requests are rejected at once instead of letting each client wait."""
        if self._kafka_down is None:
            self._kafka_down = cause
            self._probe = asyncio.create_task(self._wait_for_kafka())

    async def _wait_for_kafka(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._producer.list_topics, _PROBE_SECONDS)
            except KafkaException:
                await asyncio.sleep(_PROBE_SECONDS)
            else:
                self._kafka_down = None
                return

    @staticmethod
    def _unavailable(cause: str) -> Problem:
        return Problem(
            503,
            "Kafka is unavailable",
            f"Kafka did not acknowledge the request ({cause}). Send it again; a repeat may be delivered twice.",
            retry_after=2,
        )

    def _ready(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        status = {
            "kafka": self._kafka_down or "ok",
            "configuration": "ok" if self._config.loaded else "not loaded",
            "manager": "ok" if self._config.connected else "unavailable; using the last known configuration",
        }
        ready = self._kafka_down is None and self._config.loaded
        return (200 if ready else 503), _JSON, json.dumps(status)


app = Ingest()
