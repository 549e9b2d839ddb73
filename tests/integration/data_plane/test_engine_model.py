"""The delivery engine agrees with its model (engine_model.py). ``MODEL_SEED`` chooses other examples."""

import os

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.infra import Server
from tests.integration.data_plane.engine_model import EngineModel, EngineModelWithoutRedis

SEED = int(os.environ.get("MODEL_SEED", "1"))


def agree(model: type[EngineModel], examples: int, *phases: Phase) -> None:
    limits = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        database=None,
        phases=[Phase.generate, *phases],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(SEED)(model), settings=limits)  # type: ignore[no-untyped-call]


def test_the_engine_agrees_with_the_model(redis_server: Server) -> None:
    agree(EngineModel, 25, Phase.shrink)


def test_the_engine_agrees_with_the_model_while_redis_is_lost(redis_server: Server) -> None:
    # A failure is shown as it is: Redis is unavailable at other moments each time.
    EngineModelWithoutRedis.redis = redis_server
    agree(EngineModelWithoutRedis, 5)
