import asyncio
import re
from typing import Any, Literal

from pydantic import Field, field_validator

from backend.connectors.mqtt.client import MqttClient
from backend.connectors.mqtt.connection import MqttConnection
from backend.connectors.parts.source_headers import KeepHeaders, is_plain, passed_on, plain_texts, text_of
from backend.domain import message_templates
from backend.domain.capabilities import Deliver, DeliveryError, Options, Receipt, Sent
from backend.domain.message import MESSAGE_ID, Message, SourceHeader
from backend.domain.message_templates import MessageTemplate, TemplateSource, UnfitValueError
from backend.domain.reasons import Reason
from backend.domain.templates import without_placeholders

_LEVEL = re.compile(r"[^/+#\x00]+")
"""What a value may be: it can neither add levels to a topic nor be a wildcard."""
_TOPIC_BYTES = 65_535
_PACKET_BYTES = 512
"""More than what a packet holds beside topic, body, content type and headers."""
_PROPERTY_BYTES = 65_535
"""The most of a property, and of the name and the value of a user property."""


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
    keep_headers: KeepHeaders = True

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
    messages can be lost. With MQTT 5, the headers of a record that was read are user properties, too; `response-topic`
    and `correlation-data` are also the properties of that name. Left out are those that MQTT cannot have: names and
    values that are no plain text, or have more than 65,535 bytes. A broker may drop a message silently if the user may
    not publish to its topic (MQTT 3.1.1), or if nobody subscribes to it."""

    options_model = MqttOptions
    _client: MqttClient | None = None

    def __init__(self, connection: MqttConnection, options: MqttOptions) -> None:
        super().__init__(connection, options)
        self._topic = message_templates.compile_text(options.topic, _level)

    async def open(self) -> None:
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def target(self) -> str:
        return f"topic {self.options.topic} at {self.connection.shown}"

    def sent(self, message: Message) -> Sent:
        return Sent(message.body, f"topic {self._topic_of(message)}")

    async def deliver(self, message: Message) -> Receipt:
        topic = self._topic_of(message)
        client = await self._connected()
        headers = self._headers(message)
        size = len(message.body) + len(topic.encode()) + len(message.content_type.encode()) + _PACKET_BYTES
        size += sum(2 * (len(name.encode()) + len(value or b"") + 5) for name, value in headers)
        if client.most_bytes is not None and size > client.most_bytes:
            text = f"The message is larger than the MQTT broker accepts ({client.most_bytes} bytes for a packet)."
            raise DeliveryError(Reason.TOO_LARGE, text, retryable=False, about_message=True)
        options = self.options
        answer = await client.publish(
            topic, message.body, qos=options.qos, retain=options.retain, properties=self._properties(message, headers)
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

    def _headers(self, message: Message) -> list[SourceHeader]:
        """Those of a record that was read; MQTT 3.1.1 has none."""
        return passed_on(message, self.options.keep_headers) if self.connection.version == "5" else []

    def _properties(self, message: Message, headers: list[SourceHeader]) -> Any:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        if self.connection.version != "5":
            return None
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ContentType = message.content_type
        properties.UserProperty = [
            (MESSAGE_ID, message.id),
            *(pair for pair in plain_texts(headers) if all(len(part.encode()) <= _PROPERTY_BYTES for part in pair)),
        ]
        values = {name: value for name, value in headers if value and len(value) <= _PROPERTY_BYTES}
        if "correlation-data" in values:
            properties.CorrelationData = values["correlation-data"]
        response_topic = text_of(values.get("response-topic"))
        if response_topic and is_plain(response_topic) and not re.search(r"[+#]", response_topic):
            properties.ResponseTopic = response_topic
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
