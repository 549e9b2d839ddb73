"""Circuit breakers, read from Redis."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import redis

from backend.domain.breaker import BreakerState
from backend.resilience.scripts import OutputKey

_ERRORS_SHOWN = 5


def breaker_of(client: redis.Redis, key: OutputKey) -> tuple[BreakerState, float]:
    """The breaker's state, and the end of its open time (Unix time)."""
    values: Any = client.hmget(key.breaker, "state", "until")
    state, until = values
    return BreakerState(state.decode()) if state else BreakerState.CLOSED, float(until or 0)


def ask_states(batch: Any, keys: Iterable[OutputKey]) -> None:
    """Queues reads of the states alone on a Redis pipeline."""
    for key in keys:
        batch.hget(key.breaker, "state")


def is_closed(state: bytes | None) -> bool:
    """Whether a state that was read is that of a closed breaker; one that never failed has none."""
    return state is None or state.decode() == BreakerState.CLOSED


def ask_breakers(batch: Any, keys: Iterable[OutputKey]) -> None:
    """Queues the reads on a Redis pipeline, synchronous or not."""
    for key in keys:
        batch.hgetall(key.breaker)
        batch.lrange(key.errors, 0, _ERRORS_SHOWN - 1)


def breakers_shown(answers: list[Any]) -> list[dict[str, Any]]:
    """What the dashboard shows of each requested breaker; ``last_errors`` are newest first."""
    return [_shown(fields, errors) for fields, errors in zip(answers[::2], answers[1::2], strict=True)]


def _shown(fields: dict[bytes, bytes], errors: list[bytes]) -> dict[str, Any]:
    state = fields.get(b"state", b"closed").decode()
    return {
        "state": state,
        "since": _time(fields.get(b"since")),
        "until": _time(fields.get(b"until")) if state != BreakerState.CLOSED else None,
        "cause": fields.get(b"cause", b"").decode(errors="replace"),
        "last_errors": [
            {"at": _time(at), "message": cause.decode(errors="replace")}
            for at, *_, cause in (entry.split(b"|", 2) for entry in errors)
        ],
    }


def _time(text: bytes | None) -> str | None:
    if not text or not float(text):
        return None
    return datetime.fromtimestamp(float(text), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
