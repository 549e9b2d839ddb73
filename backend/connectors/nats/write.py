import re
from typing import Any

from pydantic import Field, field_validator

from backend.connectors.nats.client import NatsClient
from backend.connectors.nats.connection import NatsConnection
from backend.connectors.parts.source_headers import KeepHeaders, passed_on, plain_texts
from backend.domain import message_templates
from backend.domain.capabilities import Deliver, Options, Receipt, Sent
from backend.domain.message import CONTENT_TYPE, MESSAGE_ID, Message
from backend.domain.message_templates import MessageTemplate, TemplateSource, UnfitValueError
from backend.domain.model import ADVANCED
from backend.domain.templates import without_placeholders

_SUBJECT = re.compile(r"[^\s.*>\x00-\x1f\x7f]+")
"""What a value may be: it can neither add levels to a subject nor be a wildcard."""
_HEADER = re.compile(r"(?!nats-)[!#$%&'*+\-.^_`|~0-9a-z]+", re.IGNORECASE)
"""Which headers of a record are written: those that begin with Nats- are orders to the server."""


class NatsOptions(Options):
    """Messages that are published to subjects of a stream."""

    subject: MessageTemplate = Field(
        min_length=1,
        description="Subject to publish to; a stream of JetStream must take it. {{order.country}} is replaced by that "
        "field's value, which cannot hold dots, wildcards or spaces.",
        examples=["orders.{{country}}"],
    )
    stream: str = Field(
        "",
        description="Stream that must take the subject; messages are refused when another one does.",
        json_schema_extra=ADVANCED,
    )
    keep_headers: KeepHeaders = True

    @field_validator("subject")
    @classmethod
    def _check_subject(cls, subject: str) -> str:
        rest = without_placeholders(subject)
        if (
            re.search(r"[\s*>\x00-\x1f\x7f]", rest)
            or ".." in subject
            or subject.startswith(".")
            or subject.endswith(".")
        ):
            raise ValueError("A subject has no spaces and wildcards, and none of its levels between dots is empty.")
        return subject


class NatsDeliver(Deliver[NatsConnection, NatsOptions]):
    """Publishes each message to JetStream, and waits until its stream has stored it.

    At least once. Messages carry their ID as `Nats-Msg-Id`, so that JetStream drops repeats within the stream's
    duplicate window (two minutes by default). The headers `message-id` and `content-type` are written with it, and
    those of a record that was read, of each name the last. Left out are those that NATS cannot have: with other names
    than HTTP has, or values that are no text of one line, and those whose name begins with `Nats-`."""

    options_model = NatsOptions

    def __init__(self, connection: NatsConnection, options: NatsOptions) -> None:
        super().__init__(connection, options)
        self._subject = message_templates.compile_text(options.subject, _level)

    async def open(self) -> None:
        self._client = NatsClient(self.connection)

    async def close(self) -> None:
        await self._client.close()

    def target(self) -> str:
        return f"subject {self.options.subject} at {self.connection.servers}"

    def sent(self, message: Message) -> Sent:
        return Sent(message.body, f"subject {self._subject_of(message)}")

    async def deliver(self, message: Message) -> Receipt:
        subject = self._subject_of(message)
        server = await self._client.connected()
        headers = {"Nats-Msg-Id": message.id, MESSAGE_ID: message.id, CONTENT_TYPE: message.content_type}
        kept = plain_texts(passed_on(message, self.options.keep_headers))
        headers |= {name: value for name, value in kept if _HEADER.fullmatch(name)}
        with self._client.as_delivery_errors():
            _check_size(headers, message.body, server.max_payload)
            stored = await self._client.jetstream().publish(
                subject, message.body, stream=self.options.stream or None, headers=headers
            )
        again = ", stored before" if stored.duplicate else ""
        return Receipt(status=f"{stored.stream} {stored.seq}{again}")

    def _subject_of(self, message: Message) -> str:
        try:
            return self._subject(TemplateSource(message))
        except ValueError as error:
            raise message_templates.delivery_error(error) from None


def _check_size(headers: dict[str, str], body: bytes, most: int) -> None:
    """The library checks the body alone, and a server that gets more with the headers closes the connection. Raises
    MaxPayloadError."""
    from nats.errors import MaxPayloadError

    lines = [f"{name}: {value}" for name, value in headers.items()]
    if len("\r\n".join(["NATS/1.0", *lines, "", ""]).encode()) + len(body) > most:
        raise MaxPayloadError


def _level(value: Any) -> str:
    text = message_templates.scalar_text(value)
    if not _SUBJECT.fullmatch(text):
        raise UnfitValueError(f"{text[:100]!r} cannot be a part of a subject.")
    return text
