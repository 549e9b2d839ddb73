"""The REST API of Kafka Connect."""

import asyncio
from typing import Any
from urllib.parse import quote

from backend.connectors.kafka_connect.connection import KafkaConnectConnection
from backend.domain import json
from backend.domain.masking import redacted, secret_values
from backend.network.http_client import HttpClient, HttpError, Response

SECONDS = 9.0
"""An operation that takes longer has failed."""
_CONNECT_SECONDS = 3.0
_PAUSE_SECONDS = 0.5
_KEPT_BYTES = 16 * 1024 * 1024
_LONGEST = 2000
_NEW: dict[str, Any] = {
    "info": {"config": {}},
    "status": {"connector": {"state": "UNASSIGNED"}, "tasks": []},
}
"""A connector that no worker has begun to run, of which there is no status yet."""


class ConnectError(Exception):
    """A worker that cannot be reached or refuses; the message is a sentence. ``status`` is what it answered, or None;
    ``field`` is the field of the connection that is to blame.

    The message may quote what the worker was sent: callers redact it.
    """

    def __init__(self, message: str, status: int | None = None, field: str = "url") -> None:
        super().__init__(message)
        self.status = status
        self.field = field


class ConnectClient:
    """One operation, for which there are SECONDS; its methods raise ConnectError. Must be made, used and closed on one
    event loop."""

    def __init__(self, connection: KafkaConnectConnection) -> None:
        self._deadline = asyncio.get_running_loop().time() + SECONDS
        self._url = str(connection.url).rstrip("/")
        self._secrets = list(secret_values(connection))
        authorization = connection.authentication.header()
        self._headers = ["Content-Type: application/json", "Accept: application/json", "Expect:"]
        self._headers += [f"Authorization: {authorization}"] if authorization else []
        self._client = HttpClient(
            tls=connection.tls_settings(),
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=SECONDS,
            kept_bytes=_KEPT_BYTES,
        )

    async def close(self) -> None:
        await self._client.close()

    async def worker(self) -> dict[str, Any]:
        """``version`` and ``kafka_cluster_id``."""
        answer = await self._ask("GET", "/")
        if not isinstance(answer, dict) or "kafka_cluster_id" not in answer:
            raise self._no_worker()
        return answer

    async def connectors(self) -> dict[str, dict[str, Any]]:
        """Each connector's ``info`` and ``status``, by its name."""
        names = list(await self._ask("GET", "/connectors"))
        entries = dict(await self._ask("GET", "/connectors?expand=info&expand=status"))
        return {name: _NEW | entries.get(name, {}) for name in names}

    async def plugins(self) -> list[dict[str, Any]]:
        """``class``, ``type`` (source or sink) and ``version`` of each class of connectors."""
        return list(await self._ask("GET", "/connector-plugins"))

    async def definitions(self, connector_class: str) -> list[dict[str, Any]]:
        """``name`` and ``type`` of each property of the class."""
        return list(await self._ask("GET", f"/connector-plugins/{quote(connector_class, safe='')}/config"))

    async def validate(self, connector_class: str, config: dict[str, str]) -> list[dict[str, Any]]:
        """Each property's ``definition`` and ``value``, which has its ``errors``."""
        path = f"/connector-plugins/{quote(connector_class, safe='')}/config/validate"
        return list((await self._ask("PUT", path, config))["configs"])

    async def create(self, name: str, config: dict[str, str]) -> dict[str, Any]:
        """Starts a connector. ``status`` 409 if one of this name exists."""
        return dict(await self._ask("POST", "/connectors", {"name": name, "config": config}))

    async def status(self, name: str) -> dict[str, Any]:
        """Its state and those of its tasks."""
        try:
            return dict(await self._ask("GET", f"{self._of(name)}/status"))
        except ConnectError as error:
            if error.status == 404 and name in await self._ask("GET", "/connectors"):
                return dict(_NEW["status"])
            raise

    async def config(self, name: str) -> dict[str, str]:
        """Its properties, with secrets in the clear."""
        return dict(await self._ask("GET", f"{self._of(name)}/config"))

    async def topics(self, name: str) -> list[str]:
        """The topics that it has used; empty where the cluster does not keep them."""
        try:
            answer = await self._ask("GET", f"{self._of(name)}/topics")
        except ConnectError as error:
            if error.status in (403, 404):
                return []
            raise
        return sorted(answer[name]["topics"])

    async def delete(self, name: str) -> None:
        await self._ask("DELETE", self._of(name))

    async def pause(self, name: str) -> None:
        await self._ask("PUT", f"{self._of(name)}/pause")

    async def resume(self, name: str) -> None:
        await self._ask("PUT", f"{self._of(name)}/resume")

    async def restart(self, name: str) -> None:
        """Restarts it with all of its tasks."""
        await self._ask("POST", f"{self._of(name)}/restart?includeTasks=true")

    def _of(self, name: str) -> str:
        return f"/connectors/{quote(name, safe='')}"

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            async with asyncio.timeout_at(self._deadline):
                answer = await self._answer(method, path, body)
        except TimeoutError:
            raise ConnectError(f"Kafka Connect at {self._url} has not answered within {SECONDS:.0f} seconds.") from None
        except HttpError as error:
            reason = str(error).rstrip(".")
            text = f"Kafka Connect at {self._url} cannot be reached: {reason}."
            raise ConnectError(text, field=error.field or "url") from None
        if answer.status >= 400:
            raise self._refusal(answer)
        if not answer.complete:
            raise ConnectError(f"An answer of {self._url} exceeds {_KEPT_BYTES // 1024**2} MB.")
        try:
            return json.loads(answer.body) if answer.body else None
        except json.InvalidJsonError:
            raise self._no_worker() from None

    async def _answer(self, method: str, path: str, body: Any) -> Response:
        """Asks again while the cluster rebalances, which takes seconds."""
        data = None if body is None else json.dumps(body)
        while True:
            answer = await self._client.request(method, self._url + path, self._headers, data)
            if answer.status != 409 or b"rebalance" not in answer.body:
                return answer
            await asyncio.sleep(_PAUSE_SECONDS)

    def _refusal(self, answer: Response) -> ConnectError:
        if answer.status in (401, 403) and b"error_code" not in answer.body:
            return ConnectError(f"Kafka Connect at {self._url} does not accept the credentials.", answer.status)
        try:
            message = json.loads(answer.body)["message"]
        except (json.InvalidJsonError, KeyError, TypeError):
            message = None
        if not isinstance(message, str):
            return ConnectError(f"What answers at {self._url} says {answer.status}, and no more.", answer.status)
        text = redacted(message[:_LONGEST], self._secrets).strip().rstrip(".")
        return ConnectError(f"Kafka Connect at {self._url} refuses: {text}.", answer.status)

    def _no_worker(self) -> ConnectError:
        return ConnectError(f"What answers at {self._url} is no Kafka Connect worker: check the address.")
