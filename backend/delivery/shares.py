"""How the outputs and pipelines of a lane task share its window of messages in flight.

A message that an output has admitted keeps its slot in the window until it has ended, however long the receiver takes;
one that is in an output's queue can be evicted. So only admitted messages take slots from others, and an output may
hold as many of them as others have left: one alone takes half of them, and each of twenty that hang a twenty-first.
(In switches this is known as a dynamic threshold for shared memory.)
"""

import asyncio
import math
import statistics
import time
from collections.abc import Collection
from typing import NamedTuple, Protocol

from backend.resilience.bulkhead import Bulkhead

_SHARED = 0.5
"""The part of the window that parties in use share evenly while it fills. The rest is for those that come next."""
_ADMITTED = 0.75
"""The part of the window that admitted messages may take. The lane asks for room above it, and stops reading at one."""
_SHORTEST_STEP_SECONDS = 0.05
_LONGEST_STEP_SECONDS = 0.2
"""Between two measurements nothing may have run at all: the process may have been stopped."""
_USUAL_PACE_SECONDS = 2.0
_SLOW_SECONDS = 1.0
_STUCK_SECONDS = 3.0
_CERTAINLY_STUCK_SECONDS = 10.0
_MORE_THAN_USUAL = 2
_FAR_FROM_USUAL = 4
"""So many times what most parties have."""
_MANY = 10
"""Where so many parties wait, and no fewer do not, what most of them have is the fault of none."""


class Window:
    """The messages that outputs have admitted, of all those that the window may hold."""

    def __init__(self, messages: int = 2000, bytes: int = 64 * 1024 * 1024) -> None:
        self.messages = messages
        self.bytes = bytes
        self._free_messages = int(messages * _ADMITTED)
        self._free_bytes = int(bytes * _ADMITTED)

    def acquire(self, size: int) -> None:
        self._free_messages -= 1
        self._free_bytes -= size

    def release(self, size: int) -> None:
        self._free_messages += 1
        self._free_bytes += size

    def leaves(self, messages: int, bytes: int) -> bool:
        """Whether an output that has admitted so much may admit another message."""
        return messages < self._free_messages and bytes < self._free_bytes


class WindowSlot:
    """A message's slot in the window. All of its outputs share it, and it is released when all have ended."""

    __slots__ = ("_is_taken", "_size", "_window")

    def __init__(self, window: Window, size: int) -> None:
        self._window = window
        self._size = size
        self._is_taken = False

    def acquire(self) -> None:
        """By the first output that admits the message."""
        if not self._is_taken:
            self._is_taken = True
            self._window.acquire(self._size)

    def release(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._window.release(self._size)


class Room(Bulkhead):
    """An output's room for messages that it has admitted; further ones are queued."""

    def __init__(self, messages: int, bytes: int, window: Window) -> None:
        super().__init__(messages, bytes)
        self._window = window

    def _has_room(self, size: int) -> bool:
        return super()._has_room(size) and (self.messages == 0 or self._window.leaves(self.messages, self.bytes))


class Share:
    """The messages of one output, or of one pipeline's steps: those that were admitted, and those in the queue."""

    def __init__(self, messages: int, bytes: int, window: Window) -> None:
        """No more than so many messages and bytes are admitted."""
        self.in_flight = 0
        self.bytes_in_flight = 0
        self.last_used = time.monotonic()
        self._room = Room(messages, bytes, window)
        self.usual_pace = 0.0
        """Messages a second over some time."""
        self._ended = 0
        self._measured_at = self.last_used
        self._seconds_queued = 0.0
        """For how long there has been a queue, as measured; evicting it does not end that time."""
        self._seconds_stuck = 0.0

    def arrive(self, size: int) -> asyncio.Future[bool] | None:
        """None for a message that has room. One that is queued learns whether it has room, or was evicted.
        ``leave`` has to follow."""
        self.in_flight += 1
        self.bytes_in_flight += size
        self.last_used = time.monotonic()
        return None if self._room.enter_now(size) else self._room.enqueue(size)

    def arrive_now(self, size: int) -> bool:
        """The same for a message that does not wait; False when there is no room for it."""
        has_room = self._room.enter_now(size)
        if has_room:
            self.in_flight += 1
            self.bytes_in_flight += size
            self.last_used = time.monotonic()
        return has_room

    def end(self, size: int) -> None:
        """A message that was admitted has ended."""
        self._room.leave(size)
        self._ended += 1

    def leave(self, size: int) -> None:
        """A message has ended or was evicted."""
        self.in_flight -= 1
        self.bytes_in_flight -= size

    def measure(self) -> None:
        """Determines how the messages have progressed since this was last called, at least 50 ms ago."""
        now = time.monotonic()
        seconds = now - self._measured_at
        if seconds < _SHORTEST_STEP_SECONDS:
            return
        weight = min(1.0, seconds / _USUAL_PACE_SECONDS)
        self.usual_pace += weight * (self._ended / seconds - self.usual_pace)
        step = min(seconds, _LONGEST_STEP_SECONDS)
        self._seconds_stuck = self._seconds_stuck + step if self.in_flight and not self._ended else 0.0
        if self._room.waiting:
            self._seconds_queued += step
        elif self._ended or not self.in_flight:
            self._seconds_queued = 0.0
        self._ended, self._measured_at = 0, now

    @property
    def drain_seconds(self) -> float:
        """How long the queue needs."""
        if not self._room.waiting:
            return 0.0
        return self._room.waiting / self.usual_pace if self.usual_pace else math.inf

    @property
    def is_behind(self) -> bool:
        """Whether there has been a queue for a second, which needs more than another."""
        return self._seconds_queued >= _SLOW_SECONDS and self.drain_seconds > _SLOW_SECONDS

    @property
    def stuck_seconds(self) -> float:
        """For how long no message has ended while others are queued."""
        return self._seconds_stuck if self._room.waiting else 0.0

    @property
    def is_full(self) -> bool:
        """Whether no message is admitted before others have ended."""
        return self._room.waiting > 0

    def evict_queue(self) -> None:
        """What is queued becomes dead letters, to be delivered later."""
        self._room.evict_queue()


class Party(Protocol):
    """An output or a pipeline, some of whose messages may be queued. They can be evicted, to be redelivered."""

    @property
    def in_flight(self) -> int: ...

    @property
    def bytes_in_flight(self) -> int: ...

    @property
    def usual_pace(self) -> float:
        """Messages a second over some time."""

    @property
    def drain_seconds(self) -> float:
        """How long the queue needs."""

    @property
    def is_behind(self) -> bool:
        """Whether the queue needs more than a second."""

    @property
    def stuck_seconds(self) -> float:
        """For how long nothing has moved."""

    def measure(self) -> None: ...

    def evict_queue(self) -> None: ...


class _Amount(NamedTuple):
    messages: float
    bytes: float

    def is_exceeded_by(self, party: Party) -> bool:
        return party.in_flight > self.messages or party.bytes_in_flight > self.bytes


def make_room(window: Window, parties: Collection[Party], *, is_alone: bool, is_late: bool) -> None:
    """The window fills: the queues of parties that are slow or stuck and have more than their share of it are evicted.

    A party that ``is_alone`` may fill the window, since nobody else waits then; others that were seen within the last
    minutes may wait unseen, behind what was read. After an outage all queues are long though nothing is slow, so a
    party is slow only if its queue needs far longer than those of most parties.

    What most parties have is no excess where many wait, as after a standstill of the machine or its network, or while
    the task itself has more to do than it can (``is_late``): few messages of anybody end then, and of some by chance
    none. A party that has no more than they is stuck only after a longer time. In a late task a party is slow only if
    it is slower than the others, too.
    """
    for party in parties:
        party.measure()
    active = [party for party in parties if party.in_flight]
    if is_alone or not active:
        return
    usual_drain = statistics.median_low([party.drain_seconds for party in parties])
    slow_pace = statistics.fmean(party.usual_pace for party in active) / 2 if is_late else math.inf
    share = excess = _share(window, len(active))
    if is_late:
        excess = _excess(active, share, _FAR_FROM_USUAL)
    elif len(active) >= max(_MANY, len(parties) / 2):
        excess = _excess(active, share, _MORE_THAN_USUAL)
    for party in active:
        if excess.is_exceeded_by(party):
            is_slower = party.drain_seconds > _FAR_FROM_USUAL * usual_drain and party.usual_pace < slow_pace
            is_hindrance = party.stuck_seconds >= _STUCK_SECONDS or (party.is_behind and is_slower)
        else:
            is_hindrance = share.is_exceeded_by(party) and party.stuck_seconds >= _CERTAINLY_STUCK_SECONDS
        if is_hindrance:
            party.evict_queue()


def _share(window: Window, parties: int) -> _Amount:
    return _Amount(_SHARED * window.messages / parties, _SHARED * window.bytes / parties)


def _excess(active: Collection[Party], share: _Amount, times: int) -> _Amount:
    """Of each measure the share, or so many times what is usual if that is more."""
    messages = statistics.median_low([party.in_flight for party in active])
    bytes_ = statistics.median_low([party.bytes_in_flight for party in active])
    return _Amount(max(share.messages, times * messages), max(share.bytes, times * bytes_))
