import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import Field, JsonValue, field_validator

from backend.connectors.parts.batch_limit import FIRST_RECORDS, next_limit
from backend.connectors.parts.field_error import FieldError
from backend.connectors.parts.files.exporting import ExportFilesOptions
from backend.connectors.parts.files.store import checked_name, joined, upload_gone
from backend.connectors.parts.http_answers import refused
from backend.connectors.parts.server_address import ServerAddress
from backend.connectors.parts.tls import HttpsFields
from backend.domain import json, message_templates, templates
from backend.domain.capabilities import (
    Batch,
    BatchRefusedError,
    Call,
    Connection,
    Deliver,
    DeliverBatch,
    DeliveryError,
    Export,
    InputRecord,
    Options,
    ReadBatch,
    ReadStream,
    Receipt,
    Register,
    Sent,
    VerificationError,
    Verify,
)
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.http_text import HeaderCredential
from backend.domain.masking import secret_values
from backend.domain.message import Message
from backend.domain.message_templates import Metadata, get_in_step
from backend.domain.reasons import Reason
from backend.network.http_client import HttpClient, HttpError

ANSWER_SECONDS = 25.0
"""A server whose answer is not there in full by then has failed."""
_CONNECT_SECONDS = 10.0
_ANSWER_BYTES = 16 * 1024 * 1024
_WAIT_SECONDS = 2
"""How long the server waits for new records; less than it may take to answer."""


class _Server(Connection):
    url: ServerAddress = Field(description="Address of the server.", examples=["https://server.example.com"])
    password: HeaderCredential = Field(min_length=1, description="Password.")


class NewSystemConnection(HttpsFields, _Server):  # in this order of bases, forms begin with the address
    """A server of new system."""

    def hosts(self) -> dict[str, list[str]]:
        return {"url": [self.url.host or ""]}


class _Client:
    """The system as all capabilities use it. Made, used and closed on one event loop.

    Replace it by the vendor's library, imported where it is used and named in ``requires``, and with it each ``ask``.
    """

    def __init__(self, connection: NewSystemConnection) -> None:
        self._base = str(connection.url).rstrip("/")
        self._headers = ["Expect:", f"Authorization: Bearer {connection.password.get_secret_value()}"]
        self._client = HttpClient(
            tls=connection.tls_settings(),
            connect_timeout=_CONNECT_SECONDS,
            kept_bytes=_ANSWER_BYTES,
        )

    async def close(self) -> None:
        await self._client.close()

    async def ask(self, method: str, path: str, body: bytes | None = None, **query: str | int) -> Any:
        """The answer's document; None when it is empty. Raises DeliveryError."""
        url = f"{self._base}/{quote(path)}" + (f"?{urlencode(query)}" if query else "")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._client.request(method, url, self._headers, body)
        except TimeoutError:
            text = f"The server did not answer in full within {ANSWER_SECONDS:g} seconds."
            raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None
        except HttpError as error:
            retryable = error.kind != Reason.FORBIDDEN
            raise FieldError.at(error.field or "url", error.kind, f"The server: {error}", retryable=retryable) from None
        if answer.status in (401, 403):
            text = f"The server answered {answer.status}: it does not accept the password."
            raise FieldError.at("password", Reason.CONFIGURATION, text)
        if not answer.is_success:
            raise refused(answer, who="server", final="correct the pipeline or the message")
        try:
            return json.loads(answer.body) if answer.body else None
        except json.InvalidJsonError as error:
            text = f"The server's answer is not JSON, or too long: {error}"
            raise DeliveryError(Reason.ANSWER, text, retryable=True) from None


class _Using:
    """What the capabilities share."""

    connection: NewSystemConnection

    async def open(self) -> None:
        self._client = _Client(self.connection)

    async def close(self) -> None:
        await self._client.close()


class NewSystemOptions(Options):
    """Records of one queue."""

    queue: str = Field(pattern=r"^[\w-]+$", description="Name of the queue.", examples=["orders"])


class _Sending(_Using):
    """What single deliveries and batches share."""

    options: NewSystemOptions

    def target(self) -> str:
        return f"queue {self.options.queue} at {self.connection.url.host}"

    def sent(self, message: Message) -> Sent:
        return Sent(self.text(message).encode())

    async def send(self, bodies: Sequence[str]) -> list[Receipt]:
        """One receipt for each, with the record's number."""
        numbers = await self._client.ask("POST", f"queues/{self.options.queue}", json.dumps(bodies))
        return [Receipt(str(number)) for number in numbers]

    def text(self, message: Message) -> str:
        """The body as the system takes it. Raises DeliveryError."""
        try:
            return message.body.decode()
        except UnicodeDecodeError:
            text = "The message is no text in UTF-8, which is all that the system takes."
            raise DeliveryError(Reason.UNFIT_VALUE, text, retryable=False, about_message=True) from None


class NewSystemDeliver(_Sending, Deliver[NewSystemConnection, NewSystemOptions]):
    """Adds a record for each message.

    At least once: a record whose acknowledgement was lost is added again when the message is retried."""

    options_model = NewSystemOptions

    async def deliver(self, message: Message) -> Receipt:
        [receipt] = await self.send([self.text(message)])
        return receipt


class NewSystemDeliverBatch(_Sending, DeliverBatch[NewSystemConnection, NewSystemOptions]):
    """Adds the records of a batch by one request.

    At least once: a batch whose acknowledgement was lost is added again."""

    options_model = NewSystemOptions

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        texts = [self._text_or_error(message) for message in messages]
        fit = [text for text in texts if isinstance(text, str)]
        try:
            receipts = iter(await self.send(fit) if fit else [])
        except DeliveryError as error:
            if error.about_message:  # so that the engine sends each half by itself
                raise BatchRefusedError(error.reason, str(error), retryable=False, about_message=True) from None
            raise
        return [next(receipts) if isinstance(text, str) else text for text in texts]

    def _text_or_error(self, message: Message) -> str | DeliveryError:
        try:
            return self.text(message)
        except DeliveryError as error:
            return error


def _batch(queue: str, rows: Sequence[Mapping[str, Any]]) -> Batch:
    records = [InputRecord(row["body"].encode(), identity=f"{queue}/{row['number']}") for row in rows]
    return Batch(records, rows[-1]["number"])


def _next_limit(limit: int, batch: Batch) -> int:
    return next_limit(limit, [len(record.body) for record in batch.records])


class NewSystemReadBatch(_Using, ReadBatch[NewSystemConnection, NewSystemOptions]):
    """Reads the records that were added since the last time.

    At least once: a record that is read again has the same message id."""

    options_model = NewSystemOptions

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        after, limit, queue = breakpoint or 0, FIRST_RECORDS, self.options.queue
        while rows := await self._client.ask("GET", f"queues/{queue}", after=after, limit=limit):
            batch = _batch(queue, rows)
            yield batch
            after, limit = batch.breakpoint, _next_limit(limit, batch)


class NewSystemReadStream(_Using, ReadStream[NewSystemConnection, NewSystemOptions]):
    """Reads records as they are added. The system keeps up to which one they are acknowledged.

    At least once: a record that is read again has the same message id."""

    options_model = NewSystemOptions

    async def stream(self) -> AsyncIterator[Batch]:
        after, limit, queue = 0, FIRST_RECORDS, self.options.queue
        while True:
            rows = await self._client.ask("GET", f"queues/{queue}", after=after, limit=limit, wait=_WAIT_SECONDS)
            if rows:
                batch = _batch(queue, rows)
                yield batch
                after, limit = batch.breakpoint, _next_limit(limit, batch)

    async def acknowledge(self, position: Any) -> None:
        await self._client.ask("PUT", f"queues/{self.options.queue}/acknowledged", json.dumps(position))


class NewSystemVerify(Verify[NewSystemConnection, Options]):
    """Verifies the signature of each request: the body's HMAC with the password (SHA-256), in hexadecimal digits."""

    computes_only = True

    def verify(self, headers: Mapping[str, Sequence[str]], body: bytes) -> None:
        key = self.connection.password.get_secret_value().encode()
        expected = hmac.new(key, body, hashlib.sha256).hexdigest().encode()
        given = [value.encode("latin-1", "replace") for value in headers.get("x-signature", ())]
        if not any(hmac.compare_digest(value, expected) for value in given):
            raise VerificationError("The signature in the header X-Signature does not match the body.")


class NewSystemCallOptions(Options):
    """One question."""

    question: JsonValue = Field(
        description="What is asked, as JSON; a text that is just {{order.id}} is replaced by that field's value, "
        "whatever its type.",
        examples=[{"id": "{{order.id}}"}],
    )

    @field_validator("question")
    @classmethod
    def _check_question(cls, question: JsonValue) -> JsonValue:
        message_templates.check(question)
        return question


class NewSystemCall(_Using, Call[NewSystemConnection, NewSystemCallOptions]):
    """Asks the system about a document."""

    options_model = NewSystemCallOptions

    def request(self) -> Callable[[Any, Metadata], bytes]:
        question = templates.compile_value(self.options.question, get_in_step)
        return lambda document, metadata: json.dumps(question((document, metadata)))

    async def call(self, request: bytes) -> bytes:
        return json.dumps(await self._client.ask("POST", "questions", request))

    def shown(self, request: bytes) -> str:
        return request.decode()


class NewSystemExport(_Using, Export[NewSystemConnection, ExportFilesOptions]):
    """Stores files that are visible once they are complete. A file of the same name is replaced."""

    options_model = ExportFilesOptions

    async def begin(self, path: str) -> Any:
        try:
            name = checked_name(joined(self.options.folder, path))
        except ValueError as error:
            raise DeliveryError(Reason.CONFIGURATION, str(error), retryable=False) from None
        return {"name": name, "id": await self._client.ask("POST", "uploads", json.dumps(name))}

    async def write(self, upload: Any, number: int, part: bytes) -> None:
        await self._of_upload(upload, "PUT", f"/{number}", part)

    async def commit(self, upload: Any) -> None:
        await self._of_upload(upload, "POST")

    async def abort(self, upload: Any) -> None:
        await self._of_upload(upload, "DELETE")

    async def _of_upload(self, upload: Any, method: str, path: str = "", body: bytes | None = None) -> None:
        try:
            await self._client.ask(method, f"uploads/{upload['id']}{path}", body)
        except DeliveryError as error:
            raise upload_gone(upload["name"]) if error.status == "404" else error from None


class NewSystemRegister(_Using, Register[NewSystemConnection, NewSystemOptions]):
    """Makes the queue before a pipeline that uses it is published, and removes it with the pipeline.

    May be repeated: the system keeps the queue under the registration's name."""

    options_model = NewSystemOptions

    async def register(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        await self._client.ask("PUT", f"registrations/{name}", json.dumps(self.options.queue))
        return {"queue": self.options.queue}

    async def unregister(self, name: str, made: dict[str, Any]) -> None:
        await self._client.ask("DELETE", f"registrations/{name}")


@connectors.register
class NewSystem(Connector):
    """Exchanges data with new system."""

    type = "new_system"
    title = "New system"
    connection_model = NewSystemConnection
    capabilities = (
        NewSystemDeliver,
        NewSystemDeliverBatch,
        NewSystemReadBatch,
        NewSystemReadStream,
        NewSystemVerify,
        NewSystemCall,
        NewSystemExport,
        NewSystemRegister,
    )
    example = {"url": "https://server.example.com", "password": "s3cret"}

    @staticmethod
    async def check(connection: NewSystemConnection) -> str:
        """Asks for something that needs the password, and changes nothing."""
        client = _Client(connection)
        try:
            await client.ask("GET", "queues")
        except DeliveryError as error:
            field = error.field if isinstance(error, FieldError) else "url"
            raise CheckFailedError(str(error.without(list(secret_values(connection)))), field=field) from None
        finally:
            await client.close()
        return f"Connected to {connection.url.host}."
