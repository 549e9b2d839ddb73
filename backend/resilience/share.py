"""An output's or a pipeline's share of the window."""

import asyncio
from collections import deque


class Share:
    """Room for so many messages and bytes at the same time; those that find none wait in line.

    A message that is alone always has room, however large it is.
    """

    def __init__(self, messages: int, bytes: int) -> None:
        self._most_messages = messages
        self._most_bytes = bytes
        self.messages = 0
        self._bytes = 0
        self._line: deque[tuple[asyncio.Future[bool], int]] = deque()

    async def enter(self, size: int) -> bool:
        """Takes room, once there is some; False when the line was dismissed."""
        if self.enter_now(size):
            return True
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._line.append((place, size))
        return await place

    def enter_now(self, size: int) -> bool:
        """Takes room if there is some."""
        if self._line or not self._has_room(size):
            return False
        self._take(size)
        return True

    def leave(self, size: int) -> None:
        self.messages -= 1
        self._bytes -= size
        while self._line and self._has_room(self._line[0][1]):
            place, wanted = self._line.popleft()
            self._take(wanted)
            place.set_result(True)

    @property
    def waiting(self) -> int:
        return len(self._line)

    def dismiss_line(self) -> None:
        for place, _ in self._line:
            place.set_result(False)
        self._line.clear()

    def _has_room(self, size: int) -> bool:
        return self.messages == 0 or (self.messages < self._most_messages and self._bytes + size <= self._most_bytes)

    def _take(self, size: int) -> None:
        self.messages += 1
        self._bytes += size
