"""``/ws/live/``: one socket per browser for everything that is live in a workspace.

The browser sends ``LiveShown`` whenever it shows other pipelines, and gets ``LiveNews`` every second; both are in the
API's schema. A slow browser gets fewer of them.
"""

import asyncio
import contextlib
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.core.validators import slug_re
from django.db import DatabaseError

from backend.apps.monitoring.live import broadcaster, group_of
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import User, Workspace
from backend.apps.workspaces.selectors import memberships_of
from backend.domain import screening, uuids
from backend.domain.errors import ConfigError
from backend.network import tasks

_MOST_PIPELINES = 200
_UNAUTHENTICATED = 4401
_INVALID_DATA = 1007
"""RFC 6455 7.4.1."""
_CHECK_SECONDS = 5.0
"""How often the session and the membership of an open socket are checked."""


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """Pushes live numbers of the workspace and of the pipelines that a signed-in user has on screen."""

    async def connect(self) -> None:
        self._pipelines: frozenset[str] = frozenset()
        self._check: asyncio.Task[None] | None = None
        await self.accept()
        user = self.scope.get("user")
        workspace = await database_sync_to_async(self._workspace)() if user and user.is_authenticated else None
        if workspace is None:
            await self.close(code=_UNAUTHENTICATED)
            return
        self._joined = workspace
        await self.channel_layer.group_add(group_of(workspace), self.channel_name)
        broadcaster.show(self.channel_name, workspace, self._pipelines)
        self._check = asyncio.create_task(self._keep_checking())

    async def disconnect(self, code: int) -> None:
        if self._check is not None:
            await tasks.cancel(self._check)
            await self._leave()

    async def _leave(self) -> None:
        await broadcaster.leave(self.channel_name)
        await self.channel_layer.group_discard(group_of(self._joined), self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        try:
            content = screening.load_json((text_data or "").encode())
        except ConfigError:
            await self.close(code=_INVALID_DATA)
            return
        requested = content.get("pipelines") if isinstance(content, dict) else None
        if isinstance(requested, list) and self._check is not None:
            ids = [known for text in requested[:_MOST_PIPELINES] if (known := uuids.parsed(text)) is not None]
            self._pipelines = await database_sync_to_async(self._visible)(ids)
            broadcaster.show(self.channel_name, self._joined, self._pipelines)

    async def live_news(self, event: dict[str, Any]) -> None:
        """Passes on what was sent to the group, without what only others show."""
        news = dict(event["news"])
        for name in {"pipelines", "outputs"} & news.keys():
            news[name] = {pipeline: shown for pipeline, shown in news[name].items() if pipeline in self._pipelines}
        with contextlib.suppress(OSError):  # the browser has disconnected, and disconnect() follows
            await self.send_json(news)

    def _workspace(self) -> Workspace | None:
        """The workspace that the browser names, or the user's first one; None if they are no member."""
        memberships = memberships_of(self.scope["user"])
        if named := parse_qs(self.scope["query_string"].decode("latin-1")).get("workspace"):
            if not slug_re.match(named[0]):
                return None
            memberships = memberships.filter(workspace__slug=named[0])
        membership = memberships.first()
        return membership.workspace if membership else None

    def _visible(self, ids: list[UUID]) -> frozenset[str]:
        """Only pipelines of the workspace."""
        visible = Pipeline.objects.filter(workspace=self._joined, pk__in=ids)
        return frozenset(map(str, visible.values_list("pk", flat=True)))

    def _may_stay(self) -> bool:
        """Whether the session is still valid: it may have ended or expired, here or at the identity provider; and
        whether its user is still a member."""
        session = import_module(settings.SESSION_ENGINE).SessionStore(self.scope["session"].session_key)
        user = User.objects.filter(pk=self.scope["user"].pk, is_active=True, membership__workspace=self._joined)
        return session.get(SESSION_KEY) == str(self.scope["user"].pk) and user.exists()

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            with contextlib.suppress(DatabaseError):  # a database outage signs nobody out
                if not await database_sync_to_async(self._may_stay)():
                    await self._leave()
                    await self.close(code=_UNAUTHENTICATED)
                    return
            # Channels ends a membership in a group after a day.
            await self.channel_layer.group_add(group_of(self._joined), self.channel_name)
