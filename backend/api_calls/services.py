"""What the steps of one lane task, or of one dry run, may use while they wait."""

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
from backend.domain.pipeline import RuntimeConnector
from backend.domain.transforms.base import CallFailedError, CallRequest
from backend.domain.transforms.http_call import HttpCall
from backend.network.redis_client import async_redis_client
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder

_REDIS_BACK_SECONDS = 5.0


class Adapting:
    """Owns the APIs. One per task, on one event loop."""

    def __init__(self, redis_url: str, *, gate: Gate, breaker: BreakerPolicy, recorder: Recorder) -> None:
        self._redis = async_redis_client(redis_url)
        self._gate = gate
        self._breaker = breaker
        self._recorder = recorder
        self._apis: dict[tuple[str, str], Api] = {}
        self._retired: set[asyncio.Task[None]] = set()
        gate.start()

    def services(
        self, pipeline_id: str, message_id: str, connectors: Mapping[UUID, RuntimeConnector]
    ) -> "MessageServices":
        """``connectors`` are those of the message's version."""
        return MessageServices(self, pipeline_id, message_id, connectors)

    def api(self, pipeline_id: str, step: HttpCall, connector: RuntimeConnector) -> Api:
        """Raises CallFailedError."""
        key = (pipeline_id, step.name)
        api = self._apis.get(key)
        if api is None or (api.step, api.connector) != (step, connector):
            made = Api(pipeline_id, step, connector, gate=self._gate, breaker=self._breaker, recorder=self._recorder)
            if api is not None:
                closing = asyncio.create_task(api.close())
                self._retired.add(closing)
                closing.add_done_callback(self._retired.discard)
            api = self._apis[key] = made
        return api

    async def first_seen(self, pipeline_id: str, key: str, message_id: str, seconds: int) -> bool:
        """Raises CallFailedError."""
        name = f"headrace:seen:{pipeline_id}:{hashlib.sha256(key.encode()).hexdigest()}"
        try:
            holder: Any = await self._redis.set(name, message_id, nx=True, get=True, ex=seconds)
        except (RedisError, OSError, TimeoutError):
            due = time.time() + _REDIS_BACK_SECONDS
            text = "Redis, which remembers what was seen, is not available; the message is tried again."
            raise CallFailedError("deduplication_unavailable", text, due=due) from None
        return holder is None or holder.decode() == message_id

    async def close(self) -> None:
        await asyncio.gather(*(api.close() for api in self._apis.values()), *self._retired)
        await self._gate.close()
        await self._redis.aclose()


@dataclass
class MessageServices:
    """What one message may use: a StepServices."""

    adapting: Adapting
    pipeline_id: str
    message_id: str
    connectors: Mapping[UUID, RuntimeConnector]
    _seen: set[str] = field(default_factory=set)

    async def call(self, step: HttpCall, request: CallRequest) -> Any:
        return await self.adapting.api(self.pipeline_id, step, self.connectors[step.connector]).call(request)

    async def first_seen(self, key: str, seconds: int) -> bool:
        # Of several documents that were made of this message only one is the first.
        if key in self._seen:
            return False
        self._seen.add(key)
        return await self.adapting.first_seen(self.pipeline_id, key, self.message_id, seconds)
