"""A request that is repeated with the same ``Idempotency-Key`` or ``webhook-id`` is accepted once."""

import hashlib
import logging
from types import TracebackType

import redis.asyncio as redis
from redis.exceptions import RedisError

from backend.domain import json
from backend.domain.webhook_signature import ID_HEADER
from backend.ingest.problems import Problem
from backend.ingest.requests import Headers, value_of
from backend.network.redis_client import async_redis_client

log = logging.getLogger(__name__)

_HEADERS = (b"idempotency-key", ID_HEADER.encode())
_PENDING_SECONDS = 30
"""Longer than a request may take; after this a request that was cut off may be sent again."""
_ANSWER_SECONDS = 0.5


def key_of(headers: Headers) -> bytes | None:
    """The client's key for this request, if it sent one."""
    return next(filter(None, (value_of(headers, name) for name in _HEADERS)), None)


class IdempotentRequests:
    """The recent requests, in Redis. While that is unavailable, every request is treated as new."""

    def __init__(self, redis_url: str) -> None:
        # A claim that is sent twice would conflict with itself.
        self._redis = async_redis_client(redis_url, seconds=_ANSWER_SECONDS, repeat=False)

    def claim(self, pipeline_id: str, key: bytes, body: bytes, seconds: int) -> "Claim":
        name = f"headrace:idempotency:{pipeline_id}:{hashlib.sha256(key).hexdigest()}"
        return Claim(self._redis, name, hashlib.sha256(body).hexdigest(), seconds)

    async def close(self) -> None:
        await self._redis.aclose()


class Claim:
    """``async with`` one request. ``message_ids`` are those of the first request when this one repeats it;
    otherwise the caller accepts the messages and passes their ids to ``accepted``."""

    def __init__(self, client: "redis.Redis", name: str, body: str, seconds: int) -> None:
        self._redis = client
        self._name = name
        self._body = body
        self._seconds = seconds
        self._held = False
        self.message_ids: list[str] | None = None

    async def __aenter__(self) -> "Claim":
        """Raises Problem 409 while the first request is in progress, 422 when it had another body."""
        mine = json.dumps([self._body, None])
        try:
            self._held = bool(await self._redis.set(self._name, mine, nx=True, ex=_PENDING_SECONDS))
            stored = None if self._held else await self._redis.get(self._name)
        except (RedisError, OSError, TimeoutError) as error:
            log.warning("Requests cannot be deduplicated at the moment: %s", error)
            return self
        if stored is None:
            return self
        body, ids = json.loads(stored)
        if body != self._body:
            raise Problem(
                422,
                "Idempotency key used before",
                "This key was used with another body. Use a new key for each message.",
            )
        if ids is None:
            raise Problem(409, "Request in progress", "The first request with this key is not finished.", retry_after=1)
        self.message_ids = ids
        return self

    async def accepted(self, message_ids: list[str]) -> None:
        if self._held:
            self._held = False
            try:
                await self._redis.set(self._name, json.dumps([self._body, message_ids]), ex=self._seconds)
            except (RedisError, OSError, TimeoutError) as error:
                log.warning("A request may be accepted again when it is repeated: %s", error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held:  # it was not accepted, so it may be sent again
            try:
                await self._redis.delete(self._name)
            except (RedisError, OSError, TimeoutError):
                log.warning("A rejected request can be repeated only after %d seconds.", _PENDING_SECONDS)
