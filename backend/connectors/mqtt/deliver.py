import asyncio
import re
from typing import Any, Literal

from pydantic import Field, field_validator

from backend.connectors.mqtt.client import MqttClient
from backend.connectors.mqtt.connection import MqttConnection
from backend.domain import message_templates
from backend.domain.capabilities import Deliver, DeliveryError, Options, Receipt
from backend.domain.message import MESSAGE_ID, Message
from backend.domain.message_templates import MessageTemplate, TemplateSource, UnfitValueError
from backend.domain.reasons import Reason
from backend.domain.templates import without_placeholders

_LEVEL = re.compile(r"[^/+#\x00]+")
"""What a value may be: it can neither add levels to a topic nor be a wildcard."""
_TOPIC_BYTES = 65_535
_PACKET_BYTES = 512
"""More than what a packet holds beside topic, body and content type."""


class MqttOptions(Options):
    """Messages that are published to topics."""

    topic: MessageTemplate = Field(
        min_length=1,
        description="Topic to publish to; {{order.country}} is replaced by that field's value, which cannot hold "
        "slashes or wildcards.",
        examples=["orders/{{country}}"],
    )
    qos: Literal[0, 1, 2] = Field(
        1,
        description="Quality of service: 0 sends a message once, without knowing whether it arrives; with 1, the "
        "broker acknowledges it and may get it twice; with 2, it gets it once as long as the connection lasts.",
    )
    retain: bool = Field(
        False, description="Have the broker keep the last message of each topic for those that subscribe later."
    )

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, topic: str) -> str:
        if re.search(r"[+#\x00]", without_placeholders(topic)):
            raise ValueError("A topic to publish to has no wildcards (+ and #).")
        return topic


class MqttDeliver(Deliver[MqttConnection, MqttOptions]):
    """Publishes each message, and waits for the broker's acknowledgement unless the quality of service is 0.

    At least once, with the quality of service 1 or 2: a message whose acknowledgement was lost is published again when
    it is retried. With MQTT 5, repeats have the same user property `message-id`. With the quality of service 0,
    messages can be lost. A broker may drop a message silently if the user may not publish to its topic (MQTT 3.1.1), or
    if nobody subscribes to it."""

    options_model = MqttOptions
    _client: MqttClient | None = None

    async def open(self) -> None:
        self._opening = asyncio.Lock()
        self._topic = message_templates.compile_text(self.options.topic, _level)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def target(self) -> str:
        return f"topic {self.options.topic} at {self.connection.shown}"

    async def deliver(self, message: Message) -> Receipt:
        topic = self._topic_of(message)
        client = await self._connected()
        size = len(message.body) + len(topic.encode()) + len(message.content_type.encode()) + _PACKET_BYTES
        if client.most_bytes is not None and size > client.most_bytes:
            text = f"The message is larger than the MQTT broker accepts ({client.most_bytes} bytes for a packet)."
            raise DeliveryError(Reason.TOO_LARGE, text, retryable=False, about_message=True)
        options = self.options
        answer = await client.publish(
            topic, message.body, qos=options.qos, retain=options.retain, properties=self._properties(message)
        )
        return Receipt(status="sent" if options.qos == 0 else answer)

    async def _connected(self) -> MqttClient:
        async with self._opening:
            if self._client is None or self._client.lost.done():
                await self.close()
                self._client = MqttClient(self.connection)
                try:
                    await self._client.open()
                except BaseException:
                    await self.close()
                    self._client = None
                    raise
            return self._client

    def _properties(self, message: Message) -> Any:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        if self.connection.version != "5":
            return None
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ContentType = message.content_type
        properties.UserProperty = [(MESSAGE_ID, message.id)]
        return properties

    def _topic_of(self, message: Message) -> str:
        try:
            topic = self._topic(TemplateSource(message))
            if len(topic.encode()) > _TOPIC_BYTES:
                raise UnfitValueError(f"The topic is longer than {_TOPIC_BYTES} bytes.")
        except ValueError as error:
            raise message_templates.delivery_error(error) from None
        return topic


def _level(value: Any) -> str:
    text = message_templates.scalar_text(value)
    if not _LEVEL.fullmatch(text):
        raise UnfitValueError(f"{text[:100]!r} cannot be a part of a topic.")
    return text
