"""Deliveries of many messages in one request."""

import uuid
from collections.abc import Sequence

from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.deliver import HttpSender
from backend.connectors.http.options import HttpBatchOptions
from backend.connectors.parts.http_answers import receipt, refused
from backend.domain import json, message_templates
from backend.domain.capabilities import BatchRefusedError, DeliverBatch, DeliveryError, Receipt, Sent
from backend.domain.message import Message
from backend.domain.message_maker import NDJSON, is_json
from backend.domain.message_templates import TemplateSource
from backend.domain.reasons import Reason
from backend.network.http_client import HttpError, Response

_ANSWER_BYTES = 1024 * 1024
_ABOUT_THE_BATCH = (400, 409, 413, 415, 422)
"""Statuses with which a receiver rejects something in a batch; any other would reject each message as well."""


class HttpDeliverBatch(HttpSender, DeliverBatch[HttpConnection, HttpBatchOptions]):
    """A request for many messages, whose body is JSON with a document on each line (NDJSON), or rows of CSV.

    At least once: a batch whose answer was lost is sent again, with the same Headrace-Batch-Id if it is the same. A
    temporary failure of the batch, or of some of its lines, with Retry-After holds the output until then, for six hours
    at most."""

    options_model = HttpBatchOptions
    options: HttpBatchOptions
    answer_bytes = _ANSWER_BYTES

    @property
    def atomic(self) -> bool:
        return self.options.batch_answer == "one_status"

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        lines: list[bytes | DeliveryError] = [self._line(message) for message in messages]
        if len({message.content_type for message in messages if self._is_row(message)}) > 1 or (
            any(map(self._is_row, messages)) and not all(map(self._is_row, messages))
        ):
            # Of versions of the pipeline that write differently. It is halved until all of a part have one form.
            text = "The messages of the batch have different content types."
            raise BatchRefusedError(Reason.UNFIT_VALUE, text, retryable=False)
        sent = [message for message, line in zip(messages, lines, strict=True) if isinstance(line, bytes)]
        outcomes = iter(await self._send_lines(sent, [line for line in lines if isinstance(line, bytes)]))
        return [next(outcomes) if isinstance(line, bytes) else line for line in lines]

    def sent(self, message: Message) -> Sent:
        line = self._line(message)
        if isinstance(line, DeliveryError):
            raise line
        return Sent(line)

    async def _send_lines(
        self, messages: Sequence[Message], lines: Sequence[bytes]
    ) -> Sequence[Receipt | DeliveryError]:
        if not lines:
            return []
        rows = self._is_row(messages[0])
        # The same batch has the same id when it is sent again.
        batch_id = str(uuid.uuid5(uuid.UUID(messages[0].id), ",".join(message.id for message in messages)))
        source = TemplateSource(messages[0])  # neither address nor headers depend on it
        headers = [
            *self.templates.headers(source),
            f"Content-Type: {messages[0].content_type if rows else NDJSON}",
            f"Headrace-Batch-Id: {batch_id}",
            f"Headrace-Batch-Messages: {len(lines)}",
            f"Headrace-Pipeline: {messages[0].pipeline_id}",
        ]
        try:
            body = b"".join(line + (b"\r\n" if rows else b"\n") for line in lines)
            answer = await self.send(batch_id, self.templates.url(source), headers, body)
        except HttpError as error:
            raise self.unanswered(error) from None
        if not answer.is_success:
            raise refused(answer, BatchRefusedError if answer.status in _ABOUT_THE_BATCH else DeliveryError)
        if self.options.batch_answer == "status_per_line":
            return outcomes_of_lines(answer, len(lines))
        return [receipt(answer, shown=200)] * len(lines)

    def _is_row(self, message: Message) -> bool:
        """Whether the message is sent as a row of CSV, which may have several lines (RFC 4180)."""
        return (
            self.options.batch_lines == "body"
            and self.options.body is None
            and message.content_type.partition(";")[0].strip().lower() == "text/csv"
        )

    def _line(self, message: Message) -> bytes | DeliveryError:
        if self._is_row(message):
            return message.body.removesuffix(b"\n").removesuffix(b"\r")
        try:
            content_type, body = self.templates.content(message, TemplateSource(message))
        except ValueError as error:
            return message_templates.delivery_error(error)
        if self.options.batch_lines == "body" and b"\n" not in body and is_json(content_type):
            return body
        try:
            document = json.loads(body)
        except json.InvalidJsonError as error:
            text = f"Lines of a batch are JSON; this message is not: {error}"
            return DeliveryError(Reason.NOT_JSON, text, retryable=False, about_message=True)
        if self.options.batch_lines == "envelope":
            document = {"message_id": message.id, "received_at": message.received_at, "body": document}
        return json.dumps(document)


def outcomes_of_lines(answer: Response, count: int) -> list[Receipt | DeliveryError]:
    """The outcome of each line, from a list such as ``[{"status": 200}, {"status": 422, "error": "no order"}]``.

    Raises DeliveryError when the body is no such list: which lines were taken is not known, so all are sent again.
    """
    try:
        results = json.loads(answer.body)
        statuses = [json.bounded_int(result["status"], 100, 599) for result in results]
    except (TypeError, KeyError, ValueError):
        statuses = []
    if len(statuses) != count:
        text = (
            f"The receiver answered {answer.status} without a JSON list of {count} objects that have a status each, "
            "an integer from 100 to 599."
        )
        excerpt = answer.body[:200].decode("latin-1")
        raise DeliveryError(
            Reason.ANSWER,
            text,
            retryable=True,
            retry_after=answer.retry_after,
            status=str(answer.status),
            response=excerpt,
        )
    parts = [
        Response(status, json.dumps(result)[:200], answer.retry_after)
        for status, result in zip(statuses, results, strict=True)
    ]
    return [receipt(part) if part.is_success else refused(part) for part in parts]
