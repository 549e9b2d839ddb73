"""What is live: read once a second for all sockets of this process, and sent to one group for each workspace.

All numbers are absolute, so that a message that is late or lost does no harm.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from backend.apps.deliveries.breakers import ask_breakers, breakers_shown
from backend.apps.deliveries.selectors import limited_pipelines, limits_of, open_letters_of
from backend.apps.jobs.selectors import StageTroubles, stage_troubles
from backend.apps.monitoring.api.live import LiveNewsSerializer
from backend.apps.monitoring.conditions import Condition, conditions_of
from backend.apps.monitoring.selectors import Seconds, newest_waiting, rates_of, seconds_of
from backend.apps.pipelines.selectors import published_breakers
from backend.apps.sql.selectors import sources_revision
from backend.apps.usage.selectors import usage_this_month
from backend.apps.workspaces.models import Workspace
from backend.domain.rate_limit import RateLimit, RateLimitPolicy
from backend.network import tasks
from backend.network.redis_client import async_redis_client
from backend.resilience.scripts import OutputKey
from backend.telemetry import keys

log = logging.getLogger(__name__)

_INTERVAL = 1.0
_SECONDS_SENT = 5
_LIMITS_SENT = 6
_IDLE_SHARE = 9
"""Queries that take a while are made less often: at most a tenth of the time is spent on them."""


def group_of(workspace: Workspace) -> str:
    """The group to which a workspace's news are sent, as ``{"type": "live.news", "news": …}``."""
    return f"live.{workspace.pk}"


@dataclass(frozen=True)
class _Stored:
    """What PostgreSQL knows of a workspace."""

    conditions: list[Condition]
    usage: dict[str, Any] | None
    sql_sources: str = ""
    outputs: dict[str, list[str]] = field(default_factory=dict)
    limits: dict[OutputKey, RateLimitPolicy | None] = field(default_factory=dict)
    letters: dict[OutputKey, dict[str, int]] = field(default_factory=dict)
    waiting: dict[str, Any] | None = None


_NOTHING = _Stored([], None)


class Broadcaster:
    """Reads while at least one socket is open. Used on one event loop."""

    def __init__(self) -> None:
        self._sockets: dict[str, tuple[Workspace, frozenset[str]]] = {}
        self._stored: dict[UUID, _Stored] = {}
        self._rates: dict[UUID, dict[str, float]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._shows_more = asyncio.Event()

    def show(self, socket: str, workspace: Workspace, pipelines: frozenset[str]) -> None:
        """What a socket shows from now on; the pipelines are those of its workspace."""
        self._sockets[socket] = (workspace, pipelines)
        if not self._tasks:
            self._shows_more = asyncio.Event()
            self._tasks = [
                asyncio.create_task(keep()) for keep in (self._keep_stored, self._keep_rates, self._keep_sending)
            ]
        self._shows_more.set()

    async def leave(self, socket: str) -> None:
        self._sockets.pop(socket, None)
        if not self._sockets:
            ended, self._tasks = self._tasks, []
            self._stored, self._rates = {}, {}
            await tasks.cancel(*ended)

    def _shown(self) -> list[tuple[Workspace, list[str]]]:
        """Each workspace with the pipelines that any of its sockets shows."""
        workspaces: dict[UUID, tuple[Workspace, set[str]]] = {}
        for workspace, pipelines in self._sockets.values():
            workspaces.setdefault(workspace.pk, (workspace, set()))[1].update(pipelines)
        return [(workspace, sorted(pipelines)) for workspace, pipelines in workspaces.values()]

    async def _keep_stored(self) -> None:
        while True:
            began = time.monotonic()
            self._shows_more.clear()
            with _kept_while_unavailable():
                stages = await database_sync_to_async(stage_troubles)()
                for workspace, pipelines in self._shown():
                    with _kept_while_unavailable():
                        stored = await database_sync_to_async(_stored)(workspace, pipelines, stages)
                        self._stored[workspace.pk] = stored
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_pause_since(began)):
                    await self._shows_more.wait()

    async def _keep_rates(self) -> None:
        while True:
            began = time.monotonic()
            for workspace, _ in self._shown():
                if (stored := self._stored.get(workspace.pk)) is None:
                    continue
                with _kept_while_unavailable():
                    self._rates[workspace.pk] = await asyncio.to_thread(rates_of, stored.outputs)
            await asyncio.sleep(_pause_since(began))

    async def _keep_sending(self) -> None:
        layer = get_channel_layer()
        async with async_redis_client(settings.REDIS_URL) as client:
            while True:
                began = time.monotonic()
                for workspace, pipelines in self._shown():
                    try:
                        news = await self._news(client, workspace, pipelines)
                    except (RedisError, OSError):
                        news = {"type": "stale", "reason": "Redis is not available."}
                    except Exception:
                        log.exception("The live numbers of a workspace could not be read.")
                        continue
                    await layer.group_send(group_of(workspace), {"type": "live.news", "news": news})
                await asyncio.sleep(max(_INTERVAL - (time.monotonic() - began), 0.0))

    async def _news(self, client: Any, workspace: Workspace, pipelines: list[str]) -> dict[str, Any]:
        stored = self._stored.get(workspace.pk, _NOTHING)
        outputs = await _outputs(client, stored)
        news = {
            "type": "news",
            "at": int(time.time()),
            "pipelines": await _counts(client, pipelines),
            "outputs": outputs,
            "conditions": stored.conditions if stored is not _NOTHING else None,
            "rates": self._rates.get(workspace.pk),
            "waiting": stored.waiting,
            "limits": _tightest(outputs),
            "usage": stored.usage,
            "sql_sources": stored.sql_sources,
        }
        return dict(LiveNewsSerializer(news).data)


@contextlib.contextmanager
def _kept_while_unavailable() -> Iterator[None]:
    """The last known state stays while a server is unavailable."""
    try:
        yield
    except (DatabaseError, RedisError, OSError):
        pass
    except Exception:
        log.exception("The state of a workspace could not be read.")


broadcaster = Broadcaster()


def _pause_since(began: float) -> float:
    """Seconds until the same is read again."""
    took = time.monotonic() - began
    return max(_INTERVAL - took, _IDLE_SHARE * took)


def _stored(workspace: Workspace, pipelines: list[str], stages: StageTroubles) -> _Stored:
    read = {*pipelines, *limited_pipelines(workspace)}
    return _Stored(
        conditions_of(workspace, stages),
        usage_this_month(workspace),
        sources_revision(workspace),
        published_breakers(workspace),
        limits_of(workspace, read),
        open_letters_of(read),
        newest_waiting(workspace),
    )


async def _counts(client: Any, pipelines: list[str]) -> dict[str, Seconds]:
    now = int(time.time())
    minutes = sorted({now // 60, (now - _SECONDS_SENT) // 60})
    async with client.pipeline(transaction=False) as batch:
        for pipeline_id in pipelines:
            for minute in minutes:
                batch.hgetall(keys.by_second(pipeline_id, minute))
        hashes = await batch.execute()
    step = len(minutes)
    return {
        pipeline_id: seconds_of(hashes[index * step : (index + 1) * step], since=now - _SECONDS_SENT)
        for index, pipeline_id in enumerate(pipelines)
    }


async def _outputs(client: Any, stored: _Stored) -> dict[str, dict[str, Any]]:
    """The state of each output, by pipeline and output."""
    async with client.pipeline(transaction=False) as batch:
        batch.time()
        for key in stored.limits:
            batch.mget(key.limit, key.hold)
        ask_breakers(batch, stored.limits)
        (seconds, microseconds), *answers = await batch.execute()
    times, breakers = answers[: len(stored.limits)], breakers_shown(answers[len(stored.limits) :])
    now = seconds + microseconds / 1e6
    outputs: dict[str, dict[str, Any]] = {}
    for (key, policy), (full_at, held), breaker in zip(stored.limits.items(), times, breakers, strict=True):
        limit = RateLimit(policy, float(full_at or 0)) if policy else None
        held_until = float(held or 0)
        letters = stored.letters.get(key, {})
        outputs.setdefault(key.pipeline_id, {})[key.output] = {
            "breaker": breaker,
            "dead_letters": letters.get("dead_letters", 0),
            "rate_limit": limit
            and {
                "tokens": limit.available(now),
                "most": limit.policy.burst + 1,
                "messages": limit.policy.messages,
                "period_seconds": limit.policy.period_seconds,
                "waiting": letters.get("limited", 0),
            },
            "held_until": datetime.fromtimestamp(held_until, UTC) if held_until > now else None,
        }
    return outputs


def _tightest(outputs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The rate limits for which most messages wait, then those with the fewest tokens."""
    limits = [
        {"pipeline": pipeline, "output": name, "rate_limit": state["rate_limit"]}
        for pipeline, states in outputs.items()
        for name, state in states.items()
        if state["rate_limit"]
    ]
    limits.sort(key=lambda one: (-one["rate_limit"]["waiting"], one["rate_limit"]["tokens"]))
    return limits[:_LIMITS_SENT]
