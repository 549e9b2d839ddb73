"""n8n's public REST API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

from backend.connectors.n8n.connection import N8nConnection
from backend.connectors.parts.error_text import error_text
from backend.connectors.parts.field_error import FieldError
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason
from backend.network.http_client import HttpClient, HttpError

_CONNECT_SECONDS = 10.0
_READ_SECONDS = 30.0
_KEPT_BYTES = 16 * 1024 * 1024
_NOT_FOUND = 404
_PAGE = 100
_REASONS = {
    401: "n8n does not accept the API key.",
    403: "The API key lacks a scope for this: workflow, execution (read, list) and credential (create, delete).",
}


class N8nClient:
    """Its methods raise DeliveryError."""

    def __init__(self, connection: N8nConnection) -> None:
        self._base = f"{str(connection.url).rstrip('/')}/api/v1"
        self._key = connection.api_key.get_secret_value()
        self._host = f"{connection.url.host}:{connection.url.port}"
        self._client = HttpClient(
            tls=connection.tls_settings(),
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            kept_bytes=_KEPT_BYTES,
        )

    async def close(self) -> None:
        await self._client.close()

    @contextlib.asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """Ends an operation of any number of requests after this time, also when each of them is answered, or while an
        answer still arrives."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            text = f"n8n at {self._host} has not answered everything that was asked for within {seconds:g} seconds."
            raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None

    async def ask(self, method: str, path: str, body: Any = None, **query: str | int) -> Any:
        """The answer's document; None when there is no such thing."""
        headers = [f"X-N8N-API-KEY: {self._key}", "Content-Type: application/json", "Expect:"]
        url = f"{self._base}/{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = await self._client.request(method, url, headers, None if body is None else json.dumps(body))
        except HttpError as error:
            text = f"n8n at {self._host} cannot be reached: {error}"
            raise FieldError.at(error.field, error.kind, text, retryable=error.kind != Reason.FORBIDDEN) from None
        if answer.status == _NOT_FOUND and b"Not Found" in answer.body:
            return None
        if answer.status >= 400:
            raise _refusal(answer.status, answer.body)
        if not answer.complete:
            limit = _KEPT_BYTES // 1024**2
            raise DeliveryError(Reason.TOO_LARGE, f"n8n's answer for {path} exceeds {limit} MB.", retryable=True)
        try:
            return json.loads(answer.body) if answer.body else {}
        except json.InvalidJsonError:
            raise self.not_n8n() from None

    def not_n8n(self) -> DeliveryError:
        """The error for an answer that n8n does not give."""
        return DeliveryError(
            Reason.CONFIGURATION,
            f"What answers at {self._host} is not n8n's public API: check the address, and that it is enabled.",
            retryable=True,
        )

    async def pages(self, path: str, **query: str | int) -> AsyncIterator[list[dict[str, Any]]]:
        """The pages of a list."""
        cursor: dict[str, str] = {}
        while True:
            answer = await self.ask("GET", path, None, limit=_PAGE, **query, **cursor)
            rows: list[dict[str, Any]] = (answer or {}).get("data") or []
            yield rows
            following = (answer or {}).get("nextCursor")
            if not rows or not following:
                return
            cursor = {"cursor": following}


def _refusal(status: int, body: bytes) -> DeliveryError:
    if status in _REASONS:
        return DeliveryError(Reason.CONFIGURATION, _REASONS[status], retryable=True, status=str(status))
    retryable = status >= 500 or status in (408, 429)
    text = f"n8n: {error_text(body, 'message')}."
    return DeliveryError(f"http_{status}", text, retryable=retryable, status=str(status))
