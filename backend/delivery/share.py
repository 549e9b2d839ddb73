"""An output's share of the window."""

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
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()

    async def enter(self, size: int, patience: float) -> bool:
        """Takes room; False when there was none within ``patience`` seconds."""
        if not self._line and self._has_room(size):
            self._take(size)
            return True
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((place, size))
        try:
            async with asyncio.timeout(patience):
                await place
        except TimeoutError:
            # The place may have come in the very moment that patience ended.
            return not place.cancelled()
        return True

    def leave(self, size: int) -> None:
        self.messages -= 1
        self._bytes -= size
        while self._line:
            place, wanted = self._line[0]
            if place.done():  # its message has given up
                self._line.popleft()
            elif self._has_room(wanted):
                self._line.popleft()
                self._take(wanted)
                place.set_result(None)
            else:
                return

    def _has_room(self, size: int) -> bool:
        return self.messages == 0 or (self.messages < self._most_messages and self._bytes + size <= self._most_bytes)

    def _take(self, size: int) -> None:
        self.messages += 1
        self._bytes += size
