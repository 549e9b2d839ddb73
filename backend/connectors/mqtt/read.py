import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import Field, field_validator

from backend.connectors.mqtt.client import MqttClient, MqttSession
from backend.connectors.mqtt.connection import MqttConnection
from backend.connectors.parts.source_headers import headers_of, present
from backend.domain.capabilities import Batch, InputRecord, Options, ReadStream
from backend.domain.message import MESSAGE_ID
from backend.domain.model import ADVANCED

_BATCH_BYTES = 2 * 1024 * 1024
_NEW_SUBSCRIPTION, _NEVER = 1, 2
"""When MQTT 5 sends what a broker retains (Retain Handling)."""


class MqttReadOptions(Options):
    """Messages of the topics that one filter matches."""

    topic: str = Field(
        min_length=1,
        max_length=65_535,
        description="Topic to subscribe to; + stands for one level and # for all that follow. $share/GROUP/TOPIC "
        "shares the messages with the other subscribers of the group.",
        examples=["orders/#"],
    )
    client_id: str = Field(
        min_length=1,
        max_length=256,
        pattern=r"^[^\x00]+$",
        description="Client ID under which the broker keeps messages while nobody reads. It must be used by this "
        "pipeline alone: the broker disconnects a reader when another one uses its ID.",
        examples=["headrace-orders"],
    )
    qos: Literal[0, 1] = Field(
        1,
        description="Quality of service: with 0, messages can be lost; with 1, the broker keeps each until Headrace "
        "has stored it. Messages that were published with 2 are read with 1, since 2 would acknowledge them before "
        "they are stored.",
    )
    order_by_topic: bool = Field(
        False, description="Deliver messages with the same topic in the order in which they were received."
    )
    read_retained: bool = Field(
        True,
        description="Read what the broker retains, too: with MQTT 5 when the subscription is new, with MQTT 3.1.1 "
        "whenever reading begins.",
    )
    content_type: str = Field(
        "application/json",
        min_length=1,
        description="Content type of messages that have none.",
        json_schema_extra=ADVANCED,
    )
    session_seconds: int = Field(
        7 * 24 * 3600,
        ge=60,
        le=2**32 - 1,
        description="How long the broker keeps messages for a reader that is not connected, in seconds. With MQTT "
        "3.1.1, the broker's own setting counts.",
        json_schema_extra=ADVANCED,
    )
    prefetch: int = Field(
        100,
        ge=1,
        le=2_000,
        description="Messages that the broker sends before earlier ones are acknowledged. With MQTT 3.1.1, the "
        "broker's own setting counts.",
        json_schema_extra=ADVANCED,
    )

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, topic: str) -> str:
        levels = _filter(topic).split("/")
        if not _filter(topic) or "#" in levels[:-1] or any(len(one) > 1 and {"+", "#"} & set(one) for one in levels):
            raise ValueError("The wildcards + and # stand for whole levels, and # is the last one.")
        return topic


async def subscribed(connection: MqttConnection, options: MqttReadOptions) -> MqttClient:
    """A client with the session of the options, which begins if there is none. Raises DeliveryError."""
    client = MqttClient(connection, MqttSession(options.client_id, options.session_seconds, options.prefetch))
    try:
        await client.open()
        await client.subscribe(options.topic, _subscription(connection, options))
    except BaseException:
        await client.close()
        raise
    return client


def _subscription(connection: MqttConnection, options: MqttReadOptions) -> Any:
    from paho.mqtt.subscribeoptions import SubscribeOptions

    if connection.version != "5":
        return options.qos
    handling = _NEW_SUBSCRIPTION if options.read_retained else _NEVER
    return SubscribeOptions(qos=options.qos, retainHandling=handling)


class MqttReadStream(ReadStream[MqttConnection, MqttReadOptions]):
    """Subscribes with a session that the broker keeps.

    At least once, with the quality of service 1: messages are acknowledged once Headrace has stored them, and those
    that are published while nobody reads wait in the session, within the broker's limits. The session begins when the
    pipeline is published and ends when it is deleted. What was not acknowledged is delivered again after a crash; it
    becomes a message with the same ID if it has the user property `message-id`, and otherwise a new one. After the
    topic was changed, what the session still has of the earlier one is dropped. With the quality of service 0,
    messages can be lost. With MQTT 5, user properties travel with the message, and so do `content-type`,
    `response-topic` and `correlation-data`: outputs write them, and templates have them as
    `{{$message.headers.NAME}}`, the topic as `{{$message.source}}`. A message with more than 64 KiB of them becomes a
    dead letter."""

    options_model = MqttReadOptions
    _client: MqttClient | None = None

    async def open(self) -> None:
        self._client = await subscribed(self.connection, self.options)

    async def stream(self) -> AsyncIterator[Batch]:
        while True:
            messages = await self._next()
            records = [self._record(message) for message in messages if self._is_read(message)]
            yield Batch(records, [message.mid for message in messages if message.qos])

    async def acknowledge(self, position: Any) -> None:
        assert self._client is not None
        for packet in position:
            self._client.acknowledge(packet)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _next(self) -> list[Any]:
        """Those that have been received, at least one. Raises DeliveryError."""
        assert self._client is not None
        received, lost = self._client.received, self._client.lost
        getting = asyncio.create_task(received.get())
        try:
            await asyncio.wait([getting, lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not getting.done():
                getting.cancel()
        if not getting.done():
            raise lost.result()
        messages = [getting.result()]
        size = len(messages[0].payload)
        while size < _BATCH_BYTES and not received.empty():
            messages.append(received.get_nowait())
            size += len(messages[-1].payload)
        return messages

    def _is_read(self, message: Any) -> bool:
        """MQTT 3.1.1 cannot be told to send nothing that is retained."""
        from paho.mqtt.client import topic_matches_sub

        if message.retain and not self.options.read_retained:
            return False
        return bool(topic_matches_sub(_filter(self.options.topic), message.topic))

    def _record(self, message: Any) -> InputRecord:
        content_type = getattr(message.properties, "ContentType", "")
        user_properties = getattr(message.properties, "UserProperty", ())
        message_id = dict(user_properties).get(MESSAGE_ID, "")
        properties = present(
            content_type=content_type,
            response_topic=getattr(message.properties, "ResponseTopic", None),
            correlation_data=getattr(message.properties, "CorrelationData", None),
        )
        return InputRecord(
            bytes(message.payload),
            content_type=content_type or self.options.content_type,
            key=message.topic.encode() if self.options.order_by_topic else None,
            identity=f"{message.topic}/{message_id}" if message_id else "",
            source=message.topic,
            headers=headers_of([*properties, *user_properties]),
        )


def _filter(topic: str) -> str:
    """Without the group of a shared subscription."""
    return topic.partition("/")[2].partition("/")[2] if topic.startswith("$share/") else topic
