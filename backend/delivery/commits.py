"""Commits of the records that messages are read from, as far as deliveries depend on them.

A dead letter exists once it is committed. Until then a crash may undo it: its record is read again, and the message is
perhaps delivered after all. So what follows it in the order of its key must not be delivered before.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection, Hashable, Iterable
from typing import Protocol

_PATIENCE_SECONDS = 10.0
"""A commit takes some tenths of a second, and longer while Kafka is unavailable or the message is not done at another
output. That may in turn wait for this one."""


class Commit(Protocol):
    """The commit of a record's offset, together with all that follows from the record."""

    @property
    def is_done(self) -> bool: ...

    @property
    def is_lost(self) -> bool:
        """Whether it is not made here any more: whoever owns the partition next reads the record again."""

    async def ended(self) -> None:
        """Returns once it is done or lost."""


class _Done:
    is_done = True
    is_lost = False

    async def ended(self) -> None:
        pass


COMMITTED: Commit = _Done()
"""Of a record that is not read again, whatever happens."""


class SetAside:
    """The last message of each key that has become a dead letter, until that is committed."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Commit] = {}
        self._added: deque[tuple[Hashable, Commit]] = deque()

    def __len__(self) -> int:
        self._forget()
        return len(self._last)

    def add(self, key: Hashable, commit: Commit) -> None:
        """In the order of the key."""
        if not commit.is_done:
            self._last[key] = commit
            self._added.append((key, commit))

    def holds(self, key: Hashable) -> bool:
        """Whether ``uncommitted`` would wait."""
        if not self._added:
            return False
        self._forget()
        return key in self._last

    async def uncommitted(self, keys: Iterable[Hashable]) -> Collection[Hashable]:
        """Waits for the commits of these keys' last ones, not for long; those of the keys that are left."""
        self._forget()
        if not self._last:
            return ()
        waiting = {key: commit for key in keys if (commit := self._last.get(key)) is not None}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                for commit in waiting.values():
                    await commit.ended()
        return {key for key, commit in waiting.items() if not (commit.is_done or commit.is_lost)}

    def _forget(self) -> None:
        while self._added and (self._added[0][1].is_done or self._added[0][1].is_lost):
            key, commit = self._added.popleft()
            if self._last.get(key) is commit:
                del self._last[key]
