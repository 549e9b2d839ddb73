"""What the driver gives to a stage that runs on it, and what it needs to know of one that runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from backend.manager_api.jobs import Loss
from backend.settings import Settings


@dataclass(frozen=True)
class Driver:
    """What ``start_stage`` of a stage's module gets. ``checkpoint`` is the stage's own folder or URL, ``batch_seconds``
    the time between two checkpoints in real-time mode; ``lost`` is called with messages that Kafka deleted before they
    were read."""

    spark: SparkSession
    environment: Settings
    checkpoint: str
    batch_seconds: int
    lost: Callable[[Loss], None]


@dataclass
class RunningStage:
    """A stage that has been started. ``problem`` is empty while all of it runs well; ``progress`` is for the heartbeat;
    ``stop`` returns once nothing of it runs."""

    problem: Callable[[], str]
    progress: Callable[[], dict[str, Any]]
    stop: Callable[[], None]
