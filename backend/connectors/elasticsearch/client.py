"""Requests to a cluster, and what its refusals mean."""

import asyncio
import gzip
from typing import Any

from backend.connectors.elasticsearch.connection import ElasticsearchConnection
from backend.connectors.parts.field_error import FieldError
from backend.domain import json
from backend.domain.capabilities import BatchRefusedError, DeliveryError
from backend.domain.reasons import Reason
from backend.network.http_client import HttpClient, HttpError, Response

_CONNECT_SECONDS = 10.0
_ANSWER_BYTES = 16 * 1024 * 1024
_RETRYABLE = (408, 425, 429)
_ABOUT_WHAT_IS_SENT = (400, 413)
_NOTHING_TO_DELETE = 404
LOGIN_REJECTED = "elasticsearch_401"
NOT_PERMITTED = "elasticsearch_security_exception"


class Client:
    """The client of one use of a connection. Made, used and closed on one event loop."""

    def __init__(self, connection: ElasticsearchConnection) -> None:
        self._base = str(connection.url).rstrip("/")
        self._server = connection.server
        self._headers = ["Expect:", "Accept: application/json"]  # without "Expect: 100-continue"
        if authorization := connection.authentication.header():
            self._headers.append(f"Authorization: {authorization}")
        self._client = HttpClient(
            tls=connection.tls_settings(),
            connect_timeout=_CONNECT_SECONDS,
            kept_bytes=_ANSWER_BYTES,
        )

    async def close(self) -> None:
        await self._client.close()

    async def bulk(self, lines: bytes, query: str = "", *, compressed: bool = False) -> list[dict[str, Any]]:
        """What became of each operation. Raises DeliveryError; BatchRefusedError, when it is about what was sent."""
        headers = ["Content-Type: application/x-ndjson"]
        if compressed:
            headers.append("Content-Encoding: gzip")
            lines = await asyncio.to_thread(gzip.compress, lines, 1)
        answer = await self._request("POST", f"_bulk?{query}", headers, lines)
        if answer.status in _ABOUT_WHAT_IS_SENT:
            raise _refused_batch(answer)
        document = self._document(answer)
        try:
            return [checked(result) for item in document["items"] for result in item.values()]
        except (KeyError, TypeError, AttributeError, ValueError):
            raise self._not_elasticsearch(answer) from None

    async def ask(self, path: str) -> Any:
        """The document at the path; None when there is none. Raises DeliveryError."""
        answer = await self._request("GET", path, [], None)
        return None if answer.status == 404 else self._document(answer)

    async def _request(self, method: str, path: str, headers: list[str], body: bytes | None) -> Response:
        try:
            return await self._client.request(method, f"{self._base}/{path}", [*self._headers, *headers], body)
        except HttpError as error:
            text = f"{self._server}: {error}"
            raise FieldError.at(error.field, error.kind, text, retryable=error.kind != Reason.FORBIDDEN) from None

    def _document(self, answer: Response) -> Any:
        if not answer.is_success:
            raise _refused(answer)
        try:
            if answer.complete:
                return json.loads(answer.body)
        except json.InvalidJsonError:
            pass
        raise self._not_elasticsearch(answer)

    def _not_elasticsearch(self, answer: Response) -> DeliveryError:
        return DeliveryError(
            Reason.CONFIGURATION,
            f"What answers at {self._server} is neither Elasticsearch nor OpenSearch: check the address.",
            retryable=True,
            status=str(answer.status),
            response=_excerpt(answer),
        )


def checked(result: Any) -> dict[str, Any]:
    """The result of an operation: its status, and an error unless it was carried out. Raises KeyError, TypeError or
    ValueError when it is none."""
    status = json.bounded_int(result["status"], 100, 599)
    if "error" not in result and not 200 <= status < 300 and status != _NOTHING_TO_DELETE:
        raise ValueError(f"status {status} without an error")
    if "error" in result and not isinstance(result["error"]["type"], str):
        raise TypeError("an error without a type")
    return dict(result)


def _refused(answer: Response) -> DeliveryError:
    """Whoever corrects the configuration wants the messages delivered afterwards, so that every refusal of a whole
    request is retried."""
    kind, explanation = _error(answer)
    if answer.status == 401:
        reason, text = LOGIN_REJECTED, "The cluster rejects the login: check the credentials."
    elif answer.status == 403:
        reason, text = NOT_PERMITTED, f"The cluster does not permit this to the login: {explanation}."
    else:
        reason, text = f"elasticsearch_{kind}", f"The cluster answered {answer.status}: {explanation}."
    return DeliveryError(
        reason,
        text,
        retryable=True,
        retry_after=answer.retry_after,
        status=str(answer.status),
        response=_excerpt(answer),
    )


def _refused_batch(answer: Response) -> BatchRefusedError:
    kind, explanation = _error(answer)
    return BatchRefusedError(
        f"elasticsearch_{kind}",
        f"The cluster rejects the request: {explanation}.",
        retryable=False,
        status=str(answer.status),
        response=_excerpt(answer),
        about_message=True,
    )


def refused_document(result: dict[str, Any], *, about_its_index: bool) -> DeliveryError:
    """Why the cluster did not carry out an operation. ``about_its_index`` tells whether the message named the index,
    so that what is wrong with the index concerns no other message."""
    status, error = result["status"], result["error"]
    kind, explanation = error["type"], str(error.get("reason") or error["type"])
    busy = status in _RETRYABLE or status >= 500 or kind == "cluster_block_exception"
    about_message = not busy and (about_its_index or kind not in _ABOUT_THE_INDEX)
    return DeliveryError(
        f"elasticsearch_{kind}",
        f"The cluster rejects the document: {explanation.rstrip('.')[:500]}.",
        retryable=not about_message,
        status=str(status),
        response=explanation,
        about_message=about_message,
    )


_ABOUT_THE_INDEX = ("security_exception", "index_not_found_exception", "index_closed_exception")


def _error(answer: Response) -> tuple[str, str]:
    """The type of an error and its explanation."""
    try:
        error = json.loads(answer.body)["error"]
        return str(error["type"]), str(error["reason"]).rstrip(".")[:500]
    except (json.InvalidJsonError, KeyError, TypeError):
        return str(answer.status), _excerpt(answer)[:200].rstrip(".") or "no explanation"


def _excerpt(answer: Response) -> str:
    return answer.body[:2048].decode(errors="replace")
