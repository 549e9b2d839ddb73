"""How the driver reports itself: to Redis, for everyone who looks, and to the manager, which may tell it to drain, and
tells it which stages are needed.

Neither of them, when it is unavailable, stops the work.
"""

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from redis.exceptions import RedisError

from backend.manager_api.jobs import JobClient, Loss, ManagerUnavailableError
from backend.network.redis_client import redis_client
from backend.settings import Settings
from backend.telemetry import keys

log = logging.getLogger("spark_jobs")

REPORT_SECONDS = 2.0


class Reporter:
    """Reports one application. ``drain`` is called when the manager wants it to end."""

    def __init__(
        self, settings: Settings, *, job: str, token: int, application_id: str, drain: Callable[[], None]
    ) -> None:
        self._key = keys.job_heartbeat(job)
        self._redis = redis_client(settings.redis_url)
        self._manager = JobClient(settings, job, token)
        self._drain = drain
        self._losses: list[Loss] = []
        self.demands: Mapping[str, str] | None = None
        """What the manager said last about the stages that are needed; None before its first answer."""
        self._fixed = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "application_id": application_id,
            "started_at": time.time(),
            "token": token,
        }

    def lost(self, loss: Loss) -> None:
        """Messages were deleted before they were read; the manager is told until it has answered."""
        log.error(
            "%d messages of partition %d, from offset %d on, were deleted by Kafka's retention before stage %s had "
            "read them. It goes on with the earliest that is left.",
            loss.count,
            loss.partition,
            loss.first_offset,
            loss.stage,
        )
        self._losses.append(loss)

    def send(self, state: str, stages: dict[str, dict[str, Any]], problem: str = "") -> None:
        beat = {**self._fixed, "state": state, "problem": problem, "at": time.time(), "stages": stages}
        try:
            self._redis.set(self._key, json.dumps(beat), ex=keys.HEARTBEAT_KEPT_SECONDS)
        except (RedisError, OSError) as error:
            log.warning("The heartbeat could not be sent: %s", error)
        losses = list(self._losses)
        try:
            order = self._manager.report(losses)
        except ManagerUnavailableError as error:
            log.warning("%s", error)
            return
        del self._losses[: len(losses)]
        self.demands = order.demands if order.demands is not None else self.demands
        if order.drain:
            self._drain()
