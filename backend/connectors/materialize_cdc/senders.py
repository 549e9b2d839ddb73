"""What sends a change stream: to a Kafka topic, or by HTTP."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from confluent_kafka import KafkaException

from backend.connectors.materialize_cdc.connection import (
    HttpTransport,
    KafkaTransport,
    MaterializeConnection,
    SchemaRegistry,
)
from backend.connectors.parts.http_answers import refused
from backend.connectors.parts.http_endpoint import Endpoint
from backend.connectors.parts.kafka_cluster import Cluster
from backend.domain import formats, json
from backend.domain.capabilities import DeliveryError
from backend.domain.cdc import Format, Progress, Update
from backend.domain.reasons import Reason
from backend.kafka.client.producer import AsyncProducer
from backend.network.http_client import HttpClient, HttpError, Response
from backend.network.outbound import ForbiddenAddressError

_REGISTRY_JSON = "application/vnd.schemaregistry.v1+json"
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_MESSAGE_BYTES = 900_000
"""A message with more updates is divided, since brokers refuse messages of more than 1 MB by default."""
_LARGEST_SCHEMA_ID = 2**31 - 1
"""The registry's ids are integers of Java, which have four bytes in the header."""

Message = Sequence[Update] | Progress


async def open_sender(connection: MaterializeConnection) -> "KafkaSender | HttpSender":
    """Raises DeliveryError."""
    form = Format(connection.avro_schema)
    if isinstance(connection.transport, HttpTransport):
        return HttpSender(connection.transport, form)
    sender = KafkaSender(connection.transport, form)
    await sender.open()
    return sender


class KafkaSender:
    """An idempotent producer, whose messages have the header of Confluent's serializers."""

    def __init__(self, transport: KafkaTransport, form: Format) -> None:
        self._transport = transport
        self._form = form
        self._cluster = Cluster(transport)
        self._header = b""

    async def open(self) -> None:
        """Registers the schema. Raises DeliveryError."""
        subject = f"{self._transport.topic}-value"
        self._header = formats.confluent_header(await _registered(self._transport.registry, subject, self._form.schema))
        try:
            await self._cluster.metadata()
        except (KafkaException, ForbiddenAddressError) as error:
            raise self._cluster.error(error) from None
        self._producer = AsyncProducer(self._cluster.config(**{"linger.ms": 2}))

    async def updates(self, updates: Sequence[Update]) -> None:
        await asyncio.gather(*(self._send(self._form.avro(part)) for part in _parts(updates)))

    async def progress(self, progress: Progress) -> None:
        await self._send(self._form.avro(progress))

    async def close(self) -> None:
        await self._producer.close()

    async def _send(self, datum: bytes) -> None:
        try:
            await self._producer.send(self._transport.topic, key=None, value=self._header + datum, headers=[])
        except KafkaException as error:
            raise self._cluster.error(error) from None


class HttpSender:
    """A PUT request for each batch of messages."""

    def __init__(self, transport: HttpTransport, form: Format) -> None:
        self._transport = transport
        self._form = form
        self._endpoint = Endpoint(transport, connect_timeout=_CONNECT_SECONDS, read_timeout=_ANSWER_SECONDS)

    async def updates(self, updates: Sequence[Update]) -> None:
        await self._put(list(_parts(updates)))

    async def progress(self, progress: Progress) -> None:
        await self._put([progress])

    async def close(self) -> None:
        await self._endpoint.close()

    async def _put(self, messages: Sequence[Message]) -> None:
        if self._transport.format == "avro":
            kind, body = "application/avro", self._form.avro_file(messages)
        else:
            kind, body = "application/json", json.dumps([self._form.json(message) for message in messages])
        try:
            answer = await self._endpoint.request("PUT", str(self._transport.url), [f"Content-Type: {kind}"], body)
        except HttpError as error:
            retryable = error.kind != Reason.FORBIDDEN
            raise DeliveryError(error.kind, f"The receiver: {error}", retryable=retryable) from None
        if not answer.is_success:
            raise refused(answer, final="correct the receiver or the connector")


def _parts(updates: Sequence[Update]) -> list[Sequence[Update]]:
    parts: list[list[Update]] = []
    room = 0
    for update in updates:
        room -= len(update.data) + 16
        if room < 0:
            parts.append([])
            room = _MESSAGE_BYTES - len(update.data)
        parts[-1].append(update)
    return list(parts)


async def _registered(registry: SchemaRegistry, subject: str, schema: Any) -> int:
    """The id of the schema. Raises DeliveryError."""
    url = f"{str(registry.url).rstrip('/')}/subjects/{quote(subject, safe='')}/versions"
    headers = [f"Content-Type: {_REGISTRY_JSON}"]
    if registry.username:
        pair = f"{registry.username}:{registry.password.get_secret_value()}"
        headers.append(f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}")
    client = HttpClient(tls=registry.tls_settings(), connect_timeout=_CONNECT_SECONDS, read_timeout=_CONNECT_SECONDS)
    try:
        body = json.dumps({"schemaType": "AVRO", "schema": json.dumps(schema).decode()})
        answer = await client.request("POST", url, headers, body)
    except HttpError as error:
        retryable = error.kind != Reason.FORBIDDEN
        raise DeliveryError(error.kind, f"The schema registry: {error}", retryable=retryable) from None
    finally:
        await client.close()
    return _id_in(answer)


def _id_in(answer: Response) -> int:
    if not answer.is_success:
        raise refused(answer, who="schema registry", final="correct the schema or the registry")
    try:
        return json.bounded_int(json.loads(answer.body)["id"], 0, _LARGEST_SCHEMA_ID)
    except (ValueError, TypeError, KeyError):
        text = "The schema registry's answer has no id of the schema."
        raise DeliveryError(Reason.ANSWER, text, retryable=True, status=str(answer.status)) from None
