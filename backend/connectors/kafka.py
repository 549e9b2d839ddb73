import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Record
from pydantic import Field, field_validator

from backend.connectors.parts.kafka_cluster import (
    Cluster,
    KafkaConnection,
    Topic,
    check_brokers,
    check_cluster,
)
from backend.connectors.parts.source_headers import KeepHeaders, passed_on
from backend.domain import json, limits, message_templates
from backend.domain.capabilities import Batch, Deliver, InputRecord, Options, ReadStream, Receipt, Sent
from backend.domain.connector import Connector, connectors
from backend.domain.message import CONTENT_TYPE, MESSAGE_ID, Message, SourceHeader
from backend.domain.message_templates import MessageTemplate, TemplateSource, UnfitValueError, scalar_text
from backend.domain.model import ADVANCED
from backend.domain.paths import MISSING, FieldPath, parse_path
from backend.domain.templates import placeholders, without_placeholders
from backend.kafka.client.consumer import AsyncConsumer
from backend.kafka.client.producer import AsyncProducer
from backend.network.outbound import ForbiddenAddressError

_BATCH_RECORDS = 500
_WAITING_SHARE = 0.8
"""Of a delivery's time limit, for which librdkafka tries, so that the error says what it reported."""
_CHECK_BROKERS_SECONDS = 60.0
_CALL_SECONDS = 10.0
_BATCH_BYTES = 1_000_000
"""librdkafka's own limit of a batch; a batch is smaller where the topic takes less."""
_BATCH_REFUSED = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
"""A broker's answer to all records of a batch, any of which may be small enough."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class KafkaOptions(Options):
    """One delivery to a Kafka topic."""

    topic: MessageTemplate = Field(
        min_length=1,
        max_length=1000,
        description="Topic to write to; it must exist. {{order.country}} is replaced by that field's value.",
        examples=["orders"],
    )
    value: FieldPath | None = Field(
        None,
        description="Field that is written in place of the whole message. If it is missing or null, the record has no "
        "value, which deletes what has its key from compacted topics and from tables of Connect SQL.",
        examples=["after"],
    )
    keep_headers: KeepHeaders = True

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, topic: str) -> str:
        if not _TOPIC.fullmatch(without_placeholders(topic) or "_"):
            raise ValueError("A topic has letters, digits, dots, dashes and underscores, 249 at most.")
        return topic


class KafkaDeliver(Deliver[KafkaConnection, KafkaOptions]):
    """An idempotent producer with acknowledgement by all in-sync replicas.

    At least once: a message whose acknowledgement was lost is written again when it is retried. Its key and the headers
    `message-id` and `content-type` are written with it, and those of a record that was read. The size that a topic
    takes is its own."""

    options_model = KafkaOptions
    _producer: AsyncProducer | None = None
    _unbatched: AsyncProducer | None = None
    """Made when a batch is refused for its size."""

    def __init__(self, connection: KafkaConnection, options: KafkaOptions) -> None:
        super().__init__(connection, options)
        self._topic = message_templates.compile_text(options.topic, _topic_part)
        self._value = parse_path(options.value) if options.value else None

    async def open(self) -> None:
        self._cluster = Cluster(self.connection)
        try:
            await self._cluster.metadata()
        except (KafkaException, ForbiddenAddressError) as error:
            raise self._cluster.error(error) from None
        limit = None
        if not placeholders(self.options.topic):
            limit = await self._cluster.most_bytes(self.options.topic)
        self._producer = self._new_producer(**{"linger.ms": 2, "batch.size": min(limit or _BATCH_BYTES, _BATCH_BYTES)})

    def target(self) -> str:
        return f"topic {self.options.topic} at {self.connection.bootstrap_servers}"

    def sent(self, message: Message) -> Sent:
        topic, value = self._written(message)
        return Sent(value or b"", f"topic {topic}, key {message.key.decode(errors='replace')}", deletes=value is None)

    async def deliver(self, message: Message) -> Receipt:
        assert self._producer is not None
        topic, value = self._written(message)
        headers = self._headers(message)
        try:
            # What the producer refuses at once, as larger than any record may be, it would refuse alone, too.
            sent = self._producer.send(topic, key=message.key, value=value, headers=headers)
            try:
                record = await sent
            except KafkaException as error:
                if error.args[0].code() not in _BATCH_REFUSED:
                    raise
                self._unbatched = self._unbatched or self._new_producer(**{"batch.num.messages": 1})
                record = await self._unbatched.send(topic, key=message.key, value=value, headers=headers)
        except KafkaException as error:
            raise self._cluster.error(error, of_record=True) from None
        self._cluster.reached()
        return Receipt(status=f"{record.topic()}[{record.partition()}]@{record.offset()}")

    async def close(self) -> None:
        for producer in (self._producer, self._unbatched):
            if producer is not None:
                await producer.close()

    def _new_producer(self, **batches: Any) -> AsyncProducer:
        settings = {
            # As large as messages may be here; the cluster has its own limit.
            "message.max.bytes": limits.TOPIC_BYTES,
            "message.timeout.ms": max(1000, int(_WAITING_SHARE * self.timeout_seconds * 1000)),
            # A missing topic is reported before an attempt's default time limit ends.
            "topic.metadata.propagation.max.ms": 3000,
        }
        return AsyncProducer(self._cluster.config(**settings, **batches))

    def _headers(self, message: Message) -> list[SourceHeader]:
        own: list[SourceHeader] = [(MESSAGE_ID, message.id.encode()), (CONTENT_TYPE, message.content_type.encode())]
        return own + passed_on(message, self.options.keep_headers)

    def _written(self, message: Message) -> tuple[str, bytes | None]:
        """The record's topic and value."""
        source = TemplateSource(message)
        try:
            topic = self._topic(source)
            if self._value is None:
                return topic, message.body
            value = source.get(self._value)
        except ValueError as error:
            raise message_templates.delivery_error(error) from None
        return topic, None if value is MISSING or value is None else json.dumps(value)


class KafkaReadOptions(Options):
    """Records of Kafka topics."""

    topics: list[Topic] = Field(min_length=1, description="Topics to read.", examples=[["orders"]])
    group: str = Field(
        min_length=1,
        max_length=249,
        description="Consumer group under which the cluster keeps what was read. Pipelines with the same group share "
        "the records; each group of its own gets all.",
        examples=["headrace-orders"],
    )
    begin: Literal["earliest", "latest"] = Field(
        "earliest",
        description="Where a new group begins: with the oldest record that is kept, or with those written from now on.",
    )
    content_type: str = Field(
        "application/json",
        min_length=1,
        description="Content type of records that have no header content-type.",
        json_schema_extra=ADVANCED,
    )


class KafkaReadStream(ReadStream[KafkaConnection, KafkaReadOptions]):
    """Reads as a member of a consumer group, with committed transactions only.

    At least once, and in the order of each partition. Offsets are committed within a second after Headrace has stored
    the records; what is read again after a crash becomes messages with the same IDs. After a crash the cluster waits
    10 seconds before it gives the partitions to the next reader. A record's key is the message's ordering key, its
    header `content-type` its content type; a record without a value becomes `null`. Its headers travel with the
    message: outputs that can write them, and templates have them as `{{$message.headers.NAME}}`, its topic as
    `{{$message.source}}`. One with more than 64 KiB of headers becomes a dead letter."""

    options_model = KafkaReadOptions
    _consumer: AsyncConsumer | None = None

    async def open(self) -> None:
        self._cluster = Cluster(self.connection)
        try:
            await self._cluster.metadata()
            self._consumer = AsyncConsumer(
                self._cluster.config(**{"group.id": self.options.group, "auto.offset.reset": "earliest"})
            )
            await self._consumer.subscribe(self.options.topics, self._assign)
        except (KafkaException, ForbiddenAddressError) as error:
            raise self._cluster.error(error) from None

    async def stream(self) -> AsyncIterator[Batch]:
        assert self._consumer is not None
        check_at = time.monotonic() + _CHECK_BROKERS_SECONDS
        try:
            while True:
                records = await self._consumer.records(_BATCH_RECORDS)
                if records:
                    self._cluster.reached()
                    yield Batch([self._record(record) for record in records], _position(records))
                elif self._cluster.unreachable:
                    raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
                if time.monotonic() > check_at:  # brokers that joined the cluster since then
                    await asyncio.to_thread(check_brokers, await self._consumer.list_topics(_CALL_SECONDS))
                    check_at = time.monotonic() + _CHECK_BROKERS_SECONDS
        except (KafkaException, ForbiddenAddressError) as error:
            raise self._cluster.error(error) from None

    async def acknowledge(self, position: Any) -> None:
        assert self._consumer is not None
        await self._consumer.store([TopicPartition(*place) for place in position])

    async def lag(self) -> int | None:
        """From what the brokers say with each answer, so that nothing is asked for."""
        assert self._consumer is not None
        try:
            return await self._consumer.lag()
        except KafkaException as error:
            raise self._cluster.error(error) from None

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()

    def _record(self, record: Record) -> InputRecord:
        headers = record.headers() or []
        content_type = {name.lower(): value for name, value in headers}.get(CONTENT_TYPE)
        value, key = record.value(), record.key()
        return InputRecord(
            b"null" if value is None else bytes(value),
            content_type=content_type.decode(errors="replace") if content_type else self.options.content_type,
            key=None if key is None else bytes(key),
            identity=f"{record.topic()}/{record.partition()}/{record.offset()}",
            source=str(record.topic()),
            headers=headers,
        )

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commits at once where a new group begins, so that nothing that follows is skipped when the reader ends
        before its first acknowledgement. A partition that a known group has not seen begins with its oldest record."""
        committed = consumer.committed(partitions, timeout=_CALL_SECONDS)
        new = [partition for partition in committed if partition.offset < 0]
        from_now_on = self.options.begin == "latest" and len(new) == len(committed)
        for partition in new:
            oldest, end = consumer.get_watermark_offsets(partition, timeout=_CALL_SECONDS)
            partition.offset = end if from_now_on else oldest
        consumer.assign(committed)
        if new:
            consumer.commit(offsets=new, asynchronous=False)


def _topic_part(value: Any) -> str:
    text = scalar_text(value)
    if not _TOPIC.fullmatch(text):
        raise UnfitValueError(
            "The value cannot be part of a topic: that has letters, digits, dots, dashes and underscores."
        )
    return text


def _position(records: Sequence[Record]) -> list[tuple[str, int, int]]:
    """Topic, partition and next offset of each partition."""
    offsets = {(record.topic(), record.partition()): record.offset() for record in records}
    return [(str(topic), int(partition or 0), int(offset or 0) + 1) for (topic, partition), offset in offsets.items()]


@connectors.register
class KafkaCluster(Connector):
    """Reads the records of Kafka topics, and writes each message to a topic."""

    type = "kafka"
    title = "Kafka cluster"
    connection_model = KafkaConnection
    capabilities = (KafkaDeliver, KafkaReadStream)
    example = {
        "bootstrap_servers": "broker-1:9092",
        "security": {"type": "sasl", "mechanism": "SCRAM-SHA-512", "username": "headrace", "password": "s3cret"},
        "tls": {"type": "tls"},
    }

    @staticmethod
    async def check(connection: KafkaConnection) -> str:
        return await check_cluster(connection)
