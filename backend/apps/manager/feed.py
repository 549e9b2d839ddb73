"""Follows the published configuration, once for all data-plane processes that watch it.

It keeps a revision of every published pipeline, key and connector, not their contents, and hands the names of those
that changed to each watcher.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from backend.apps.connectors.selectors import connector_revisions
from backend.apps.manager.threads import in_thread
from backend.apps.pipelines.selectors import published_revisions
from backend.apps.workspaces.selectors import ingest_key_revisions
from backend.manager_api import snapshot as stored
from backend.network.redis_client import async_redis_subscriber

log = logging.getLogger(__name__)

_REREAD_SECONDS = 60.0
"""How often all revisions are read, which includes changes that could not be announced."""
_WITHOUT_REDIS_SECONDS = 10.0
"""The same while Redis is unavailable, and the time between attempts while the database is."""
_LOADED_SECONDS = 15.0
_PROBE_SECONDS = 10.0
"""How often an idle subscription is probed."""

Revisions = dict[str, Any]
"""By a pipeline's id, a key's hash or a connector's id; equal as long as what is published is the same."""


@dataclass
class Names:
    """Of pipelines, keys and connectors."""

    pipelines: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    connectors: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.pipelines or self.keys or self.connectors)


class Watcher:
    """What one data-plane process has still to be sent."""

    def __init__(self) -> None:
        self._names = Names()
        self._changed = asyncio.Event()

    def notify(self, names: Names) -> None:
        self._names.pipelines |= names.pipelines
        self._names.keys |= names.keys
        self._names.connectors |= names.connectors
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Returns once there is a change, at the latest after that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def take(self) -> Names:
        """What changed since the last call."""
        taken, self._names = self._names, Names()
        self._changed.clear()
        return taken


class ConfigurationFeed:
    """Used on one event loop, where ``run`` must be running."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._pipelines: Revisions = {}
        self._keys: Revisions = {}
        self._connectors: Revisions = {}
        self._watchers: set[Watcher] = set()
        self._loaded = asyncio.Event()

    @contextlib.contextmanager
    def watcher(self) -> Iterator[Watcher]:
        """Learns of every change from now on."""
        watcher = Watcher()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def published(self) -> Names:
        """The published pipelines and keys. Raises TimeoutError when the database does not tell them in time."""
        async with asyncio.timeout(_LOADED_SECONDS):
            await self._loaded.wait()
        return Names(set(self._pipelines), set(self._keys))

    async def run(self) -> NoReturn:
        client = async_redis_subscriber(self._redis_url)
        try:
            while True:
                try:
                    await self._follow(client)
                except (RedisError, OSError) as error:
                    log.warning("Redis pub/sub is unavailable (%s); comparing all revisions instead.", error)
                    with contextlib.suppress(DatabaseError):
                        await self._compare_all()
                except DatabaseError as error:
                    log.warning("The configuration cannot be read from the database: %s", error)
                await asyncio.sleep(_WITHOUT_REDIS_SECONDS)
        finally:
            await client.aclose()

    async def _follow(self, client: Any) -> NoReturn:
        """Raises RedisError, OSError and DatabaseError."""
        async with client.pubsub() as changes:
            # Subscribed before the revisions are read, so that no change is missed.
            await changes.subscribe(stored.CHANGES)
            while True:
                await self._compare_all()
                until = asyncio.get_running_loop().time() + _REREAD_SECONDS
                while (left := until - asyncio.get_running_loop().time()) > 0:
                    wait = min(left, _PROBE_SECONDS)
                    message = await changes.get_message(ignore_subscribe_messages=True, timeout=wait)
                    if message is not None:
                        await self._compare_one(message["data"].decode())
                    else:
                        await client.ping()  # a subscription alone does not notice that Redis hangs

    async def _compare_all(self) -> None:
        pipelines, keys = await in_thread(published_revisions), await in_thread(ingest_key_revisions)
        connectors = await in_thread(connector_revisions)
        changed = Names(
            _differing(self._pipelines, pipelines),
            _differing(self._keys, keys),
            _differing(self._connectors, connectors),
        )
        self._pipelines, self._keys, self._connectors = pipelines, keys, connectors
        if self._loaded.is_set():  # until then nobody was sent anything that could have changed
            self._notify(changed)
        self._loaded.set()

    async def _compare_one(self, announced: str) -> None:
        kind, _, name = announced.partition(":")
        match kind:
            case "pipeline":
                await self._compare_named(self._pipelines, name, published_revisions)
                self._notify(Names(pipelines={name}))
            case "key":
                await self._compare_named(self._keys, name, ingest_key_revisions)
                self._notify(Names(keys={name}))
            case "connector":
                await self._compare_named(self._connectors, name, connector_revisions)
                self._notify(Names(connectors={name}))

    @staticmethod
    async def _compare_named(held: Revisions, name: str, read: Callable[[list[str]], Revisions]) -> None:
        revision = (await in_thread(read, [name])).get(name)
        if revision is None:
            held.pop(name, None)
        else:
            held[name] = revision

    def _notify(self, changed: Names) -> None:
        if changed:
            for watcher in self._watchers:
                watcher.notify(changed)


def _differing(before: Revisions, after: Revisions) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
