"""Values that are kept for as long as they are used."""

import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class IdleCache(Generic[K, V]):
    """A value that was not read for ``seconds`` is dropped when another is added, so that what has been deleted
    elsewhere does not stay in memory for ever. Threads may share one: at worst a value is lost that another thread adds
    meanwhile."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._entries: dict[K, tuple[V, list[float]]] = {}
        self._swept = clock()

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, used = entry
        used[0] = self._clock()
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[key] = (value, [self._clock()])
        self._sweep()

    def discard(self, key: K) -> None:
        """Drops the value, if there is one."""
        self._entries.pop(key, None)

    def items(self) -> Iterator[tuple[K, V]]:
        """Those held, without counting as a use of them."""
        return ((key, value) for key, (value, _) in list(self._entries.items()))

    def __len__(self) -> int:
        return len(self._entries)

    def _sweep(self) -> None:
        now = self._clock()
        if now - self._swept < self._seconds / 4:
            return
        self._swept = now
        self._entries = {key: entry for key, entry in list(self._entries.items()) if now - entry[1][0] < self._seconds}
