"""What the waiting steps of one lane task use: external systems, and what is remembered of earlier messages."""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from redis.exceptions import RedisError

from backend.api_calls.api import Api
from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message
from backend.domain.message_templates import Metadata
from backend.domain.reasons import Reason
from backend.domain.transforms.base import CallFailedError, Calls, Memory, StepResources
from backend.domain.transforms.call import Call
from backend.network import tasks
from backend.network.redis_client import async_redis_client
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder

_REDIS_BACK_SECONDS = 5.0
_SWEEP_SECONDS = 15.0
_API_IDLE_SECONDS = 600.0

_ApiKey = tuple[str, str, UUID]


class ApiCalls:
    """Owns the APIs. One per task, on one event loop."""

    def __init__(self, redis_url: str, *, gate: Gate, breaker: BreakerPolicy, recorder: Recorder) -> None:
        self._redis = async_redis_client(redis_url)
        self._gate = gate
        self._breaker = breaker
        self._recorder = recorder
        self._apis: dict[_ApiKey, list[Api]] = {}
        gate.start()
        self._sweeper = asyncio.create_task(self._sweep())

    def resources(self, message: Message, connectors: Mapping[UUID, RuntimeConnector]) -> StepResources:
        """For one message. ``connectors`` are those of its version."""
        return StepResources(
            {
                Calls: MessageCalls(self, message.pipeline_id, Metadata(message), connectors),
                Memory: MessageMemory(self, message.pipeline_id, message.id),
            }
        )

    def api(self, pipeline_id: str, step: Call, connector: RuntimeConnector) -> Api:
        """That of the step's own version: two versions in flight do not close each other's. Raises CallFailedError."""
        apis = self._apis.setdefault((pipeline_id, step.name, step.connector), [])
        for api in apis:
            if (api.step is step or api.step == step) and (api.connector is connector or api.connector == connector):
                api.connector = connector  # fetched again from the manager: the next comparison is of identities
                return api
        api = Api(pipeline_id, step, connector, gate=self._gate, breaker=self._breaker, recorder=self._recorder)
        apis.append(api)
        return api

    async def first_seen(self, pipeline_id: str, key: str, message_id: str, seconds: int) -> bool:
        """Raises CallFailedError."""
        name = f"headrace:seen:{pipeline_id}:{hashlib.sha256(key.encode()).hexdigest()}"
        try:
            holder: Any = await self._redis.set(name, message_id, nx=True, get=True, ex=seconds)
        except (RedisError, OSError, TimeoutError):
            due = time.time() + _REDIS_BACK_SECONDS
            text = "Redis, which remembers earlier messages, is unavailable; the message is redelivered automatically."
            raise CallFailedError(Reason.DEDUPLICATION_UNAVAILABLE, text, due=due) from None
        return holder is None or holder.decode() == message_id

    async def close(self) -> None:
        await tasks.cancel(self._sweeper)
        await asyncio.gather(*(api.close() for apis in self._apis.values() for api in apis))
        await self._gate.close()
        await self._redis.aclose()

    async def _sweep(self) -> None:
        """Closes what nobody uses any more: APIs of former versions and of deleted pipelines."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            before = time.monotonic() - _API_IDLE_SECONDS
            for key, apis in list(self._apis.items()):
                idle = [api for api in apis if not api.in_flight and api.last_used < before]
                self._apis[key] = [api for api in apis if api not in idle]
                if not self._apis[key]:
                    del self._apis[key]
                await asyncio.gather(*(api.close() for api in idle))


@dataclass
class MessageCalls(Calls):
    """The calls of one message."""

    api_calls: ApiCalls
    pipeline_id: str
    metadata: Metadata
    connectors: Mapping[UUID, RuntimeConnector]

    async def call(self, step: Call, document: Any) -> Any:
        api = self.api_calls.api(self.pipeline_id, step, self.connectors[step.connector])
        return await api.call(document, self.metadata)


@dataclass
class MessageMemory(Memory):
    """What one message is compared with."""

    api_calls: ApiCalls
    pipeline_id: str
    message_id: str
    _seen: set[str] = field(default_factory=set)

    async def first_seen(self, key: str, seconds: int) -> bool:
        # Of several documents that were made of this message only one is the first.
        if key in self._seen:
            return False
        self._seen.add(key)
        return await self.api_calls.first_seen(self.pipeline_id, key, self.message_id, seconds)
