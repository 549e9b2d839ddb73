"""The demo's receiver: accepts deliveries and shows them. Plain ASGI, with its state in Redis.

``POST /demo/receiver/{name}`` accepts a delivery; ``GET …/messages`` lists the latest, ``GET
…/count`` counts all; ``PUT …/mode`` makes it fail, hang or answer slowly; ``DELETE …/messages``
deletes them.
"""

import asyncio
from typing import Any

from redis.exceptions import RedisError

from backend.domain import json
from backend.domain.message import utc_now
from backend.network.redis_client import async_redis_client

_KEPT = 2000
_MODES = ("ok", "fail", "hang", "slow")
_MOST_SECONDS = 300

Answer = tuple[int, Any]


class Receiver:
    """One for all names; mounted by the console in the embedded installation."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._client: Any = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if self._client is None:
            self._client = async_redis_client(self._redis_url)
        body = await _body(receive)
        try:
            status, answer = await self._answer(scope, body)
        except (RedisError, OSError):
            status, answer = 503, {"detail": "Redis is not available."}
        content = json.dumps(answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: dict[str, Any], body: bytes) -> Answer:
        name, _, rest = scope["path"].split("/demo/receiver/", 1)[1].strip("/").partition("/")
        match scope["method"], rest:
            case (("POST" | "PUT" | "PATCH"), "") if name:
                return await self._deliver(name, scope, body)
            case "GET", "messages":
                entries = await self._client.lrange(_messages(name), 0, -1)
                return 200, [json.loads(entry) for entry in entries]
            case "GET", "count":
                return 200, {"count": int(await self._client.get(_count(name)) or 0)}
            case "PUT", "mode":
                return await self._set_mode(name, body)
            case "DELETE", "messages":
                await self._client.delete(_messages(name), _count(name))
                return 200, {"count": 0}
        return 404, {"detail": "There is nothing here."}

    async def _deliver(self, name: str, scope: dict[str, Any], body: bytes) -> Answer:
        stored = await self._client.get(_mode(name))
        mode: dict[str, Any] = json.loads(stored) if stored else {"mode": "ok"}
        if mode["mode"] in ("hang", "slow"):
            await asyncio.sleep(mode["seconds"])
        if mode["mode"] in ("hang", "fail"):
            return mode["status"], {"detail": f"The receiver is set to {mode['mode']}."}
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        entry = {
            "message_id": headers.get("headrace-message-id"),
            "received_at": utc_now(),
            "headers": headers,
            "body": body.decode(errors="replace"),
        }
        async with self._client.pipeline() as batch:
            batch.incr(_count(name))
            batch.lpush(_messages(name), json.dumps(entry))
            batch.ltrim(_messages(name), 0, _KEPT - 1)
            await batch.execute()
        return 200, {"status": "received"}

    async def _set_mode(self, name: str, body: bytes) -> Answer:
        try:
            request = json.loads(body)
            mode = {
                "mode": request["mode"],
                "status": int(request.get("status", 500)),
                "seconds": min(float(request.get("seconds", 30)), _MOST_SECONDS),
            }
        except (json.InvalidJsonError, KeyError, TypeError, ValueError, AttributeError):
            return 400, {"detail": 'Send {"mode": "ok" | "fail" | "hang" | "slow", "status": 500, "seconds": 30}.'}
        if mode["mode"] not in _MODES:
            return 400, {"detail": f"The mode is one of {', '.join(_MODES)}."}
        await self._client.set(_mode(name), json.dumps(mode))
        return 200, mode


def _messages(name: str) -> str:
    return f"headrace:demo:{name}:messages"


def _count(name: str) -> str:
    return f"headrace:demo:{name}:count"


def _mode(name: str) -> str:
    return f"headrace:demo:{name}:mode"


async def _body(receive: Any) -> bytes:
    body = b""
    while True:
        event = await receive()
        body += bytes(event.get("body", b""))
        if not event.get("more_body"):
            return body
