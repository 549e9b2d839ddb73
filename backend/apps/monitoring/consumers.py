"""``/ws/live/``: one socket per browser for everything that is live.

The browser sends ``{"pipelines": [id, …]}`` whenever what it shows changes. Every second the
server sends ``{"type": "counts", "pipelines": {id: {second: {event: n}}}, "breakers": {id: {output:
breaker}}}`` with the absolute counts of the last few seconds and the current state of the circuit
breakers, so that a late or lost message does no harm. A slow browser gets only the newest.
"""

import asyncio
import contextlib
import time
from importlib import import_module
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.core.exceptions import ValidationError
from django.db import DatabaseError
from redis.exceptions import RedisError

from backend.apps.deliveries.breakers import ask_breakers, breakers_shown
from backend.apps.monitoring.selectors import seconds_of
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import User
from backend.network.redis_client import async_redis_client
from backend.resilience.scripts import OutputKey
from backend.telemetry import keys

_INTERVAL = 1.0
_SECONDS_SENT = 5
_MOST_PIPELINES = 200
_UNAUTHENTICATED = 4401
_SESSION_SECONDS = 5.0
"""How often the session of an open socket is checked."""


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """Pushes live counts of the pipelines that a signed-in user has on screen."""

    async def connect(self) -> None:
        self._pipelines: dict[str, list[str]] = {}
        self._task: asyncio.Task[None] | None = None
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(code=_UNAUTHENTICATED)
            return
        self._redis = async_redis_client(settings.REDIS_URL)
        self._task = asyncio.create_task(self._push())

    async def disconnect(self, code: int) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            await self._redis.aclose()

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        requested = content.get("pipelines") if isinstance(content, dict) else None
        if isinstance(requested, list) and self._task is not None:
            ids = [text for text in requested[:_MOST_PIPELINES] if isinstance(text, str)]
            self._pipelines = await database_sync_to_async(self._visible)(ids)

    def _visible(self, ids: list[str]) -> dict[str, list[str]]:
        """Only pipelines of the user's own workspaces, with their outputs."""
        try:
            visible = Pipeline.objects.filter(workspace__members=self.scope["user"], pk__in=ids)
            breakers = list(visible.values_list("pk", "published__breakers"))
        except (ValueError, TypeError, ValidationError):
            return {}
        return {str(pk): names or [] for pk, names in breakers}

    def _still_signed_in(self) -> bool:
        """Whether the session is still valid: it may have ended or expired, here or at the identity provider."""
        session = import_module(settings.SESSION_ENGINE).SessionStore(self.scope["session"].session_key)
        user = User.objects.filter(pk=self.scope["user"].pk, is_active=True)
        return session.get(SESSION_KEY) == str(self.scope["user"].pk) and user.exists()

    async def _push(self) -> None:
        checked = time.monotonic()
        while True:
            if time.monotonic() - checked > _SESSION_SECONDS:
                checked = time.monotonic()
                with contextlib.suppress(DatabaseError):  # a database outage signs nobody out
                    if not await database_sync_to_async(self._still_signed_in)():
                        await self.close(code=_UNAUTHENTICATED)
                        return
            try:
                await self.send_json(await self._live())
            except OSError:  # the browser has disconnected, and disconnect() follows
                return
            await asyncio.sleep(_INTERVAL)

    async def _live(self) -> dict[str, Any]:
        try:
            return {"type": "counts", "pipelines": await self._counts(), "breakers": await self._breakers()}
        except (RedisError, OSError):
            return {"type": "stale", "reason": "Redis is not available."}

    async def _counts(self) -> dict[str, Any]:
        if not self._pipelines:
            return {}
        now = int(time.time())
        minutes = sorted({now // 60, (now - _SECONDS_SENT) // 60})
        async with self._redis.pipeline(transaction=False) as batch:
            for pipeline_id in self._pipelines:
                for minute in minutes:
                    batch.hgetall(keys.by_second(pipeline_id, minute))
            hashes = await batch.execute()
        step = len(minutes)
        return {
            pipeline_id: seconds_of(hashes[index * step : (index + 1) * step], since=now - _SECONDS_SENT)
            for index, pipeline_id in enumerate(self._pipelines)
        }

    async def _breakers(self) -> dict[str, Any]:
        outputs = [OutputKey(pipeline_id, name) for pipeline_id, names in self._pipelines.items() for name in names]
        async with self._redis.pipeline(transaction=False) as batch:
            ask_breakers(batch, outputs)
            breakers = breakers_shown(await batch.execute())
        shown: dict[str, Any] = {}
        for key, breaker in zip(outputs, breakers, strict=True):
            shown.setdefault(key.pipeline_id, {})[key.output] = breaker
        return shown
