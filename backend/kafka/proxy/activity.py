"""What goes through a proxy just now: per client and per broker, and what went wrong last."""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_SECONDS = 5
"""Rates are means over so long."""
_MOST_NAMES = 1000
_MOST_ERRORS = 50


@dataclass(slots=True)
class Tally:
    """Of one client or one broker, since the proxy started. ``bytes_from`` came from it."""

    connections: int = 0
    requests: int = 0
    bytes_from: int = 0
    bytes_to: int = 0
    failures: int = 0
    samples: deque[tuple[float, int, int, int]] = field(default_factory=lambda: deque(maxlen=_SECONDS + 1))

    def sample(self, now: float) -> None:
        self.samples.append((now, self.requests, self.bytes_from, self.bytes_to))

    def facts(self) -> dict[str, float]:
        """Counts, and rates per second."""
        found: dict[str, float] = {"connections": self.connections, "failures": self.failures}
        names = ("requests_per_second", "bytes_from_per_second", "bytes_to_per_second")
        if len(self.samples) < 2:
            return found | dict.fromkeys(names, 0.0)
        (began, *first), (ended, *last) = self.samples[0], self.samples[-1]
        rates = (round((new - old) / (ended - began), 1) for old, new in zip(first, last, strict=True))
        return found | dict(zip(names, rates, strict=True))


class Tallies:
    """By name; when there are too many, those without a connection that were used longest ago are forgotten."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Tally] = OrderedDict()

    def of(self, name: str) -> Tally:
        found = self._found.get(name)
        if found is None:
            if len(self._found) >= _MOST_NAMES:
                self._forget_one()
            found = self._found[name] = Tally()
        self._found.move_to_end(name)
        return found

    def _forget_one(self) -> None:
        idle = (name for name, tally in self._found.items() if not tally.connections)
        name = next(idle, None)
        if name is not None:
            del self._found[name]

    def all(self) -> dict[str, Tally]:
        return dict(self._found)

    def sample(self, now: float) -> None:
        for tally in self._found.values():
            tally.sample(now)

    def facts(self) -> list[dict[str, Any]]:
        return [{"name": name, **tally.facts()} for name, tally in self._found.items()]

    def facts_of(self, name: str) -> dict[str, float]:
        return self._found.get(name, Tally()).facts()


class RecentErrors(logging.Handler):
    """The last warnings of the proxy, newest first. They hold no secrets and no records."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._found: deque[dict[str, str]] = deque(maxlen=_MOST_ERRORS)

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC).isoformat()
        self._found.appendleft({"at": at, "message": record.getMessage()})

    def facts(self) -> list[dict[str, str]]:
        return list(self._found)


class Activity:
    """Of one proxy process."""

    def __init__(self) -> None:
        self.clients = Tallies()
        self.brokers = Tallies()
        self.errors = RecentErrors()
        logging.getLogger("backend.kafka.proxy").addHandler(self.errors)

    async def keep_sampling(self) -> None:
        while True:
            now = time.monotonic()
            self.clients.sample(now)
            self.brokers.sample(now)
            await asyncio.sleep(1)
