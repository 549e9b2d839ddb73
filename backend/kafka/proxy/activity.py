"""Current traffic of a proxy per client and per broker, and its latest errors."""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_SECONDS = 5
"""Rates are averages over this period."""
_MAX_NAMES = 1000
_MAX_ERRORS = 50


@dataclass(slots=True)
class Tally:
    """Counts of one client or one broker since the proxy started. ``bytes_from`` were received from it."""

    connections: int = 0
    requests: int = 0
    bytes_from: int = 0
    bytes_to: int = 0
    failures: int = 0
    samples: deque[tuple[float, int, int, int]] = field(default_factory=lambda: deque(maxlen=_SECONDS + 1))

    def sample(self, now: float) -> None:
        self.samples.append((now, self.requests, self.bytes_from, self.bytes_to))

    def facts(self) -> dict[str, float]:
        """Counts, and rates per second, for the status page."""
        counts: dict[str, float] = {"connections": self.connections, "failures": self.failures}
        names = ("requests_per_second", "bytes_from_per_second", "bytes_to_per_second")
        if len(self.samples) < 2:
            return counts | dict.fromkeys(names, 0.0)
        (began, *first), (ended, *last) = self.samples[0], self.samples[-1]
        rates = (round((new - old) / (ended - began), 1) for old, new in zip(first, last, strict=True))
        return counts | dict(zip(names, rates, strict=True))


class Tallies:
    """Tallies by name. When there are too many, the least recently used one without a connection is removed."""

    def __init__(self) -> None:
        self._tallies: OrderedDict[str, Tally] = OrderedDict()

    def of(self, name: str) -> Tally:
        tally = self._tallies.get(name)
        if tally is None:
            if len(self._tallies) >= _MAX_NAMES:
                self._remove_one()
            tally = self._tallies[name] = Tally()
        self._tallies.move_to_end(name)
        return tally

    def _remove_one(self) -> None:
        idle = (name for name, tally in self._tallies.items() if not tally.connections)
        name = next(idle, None)
        if name is not None:
            del self._tallies[name]

    def all(self) -> dict[str, Tally]:
        return dict(self._tallies)

    def sample(self, now: float) -> None:
        for tally in self._tallies.values():
            tally.sample(now)

    def facts(self) -> list[dict[str, Any]]:
        return [{"name": name, **tally.facts()} for name, tally in self._tallies.items()]

    def facts_of(self, name: str) -> dict[str, float]:
        return self._tallies.get(name, Tally()).facts()


class RecentErrors(logging.Handler):
    """Keeps the proxy's latest warnings, newest first. They contain no secrets and no records."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._errors: deque[dict[str, str]] = deque(maxlen=_MAX_ERRORS)

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC).isoformat()
        self._errors.appendleft({"at": at, "message": record.getMessage()})

    def facts(self) -> list[dict[str, str]]:
        return list(self._errors)


class Activity:
    """The traffic and errors of one proxy process."""

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
