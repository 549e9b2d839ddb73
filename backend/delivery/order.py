"""The order of the messages of one output that have the same key, whichever version of the pipeline they belong to."""

import asyncio

from backend.delivery.client import DeliveryClient
from backend.delivery.commits import Commit, SetAside


class Turn:
    """A message's turn among those of its key. ``joined`` is done once the message is in a batch, or has ended."""

    __slots__ = ("before", "client", "done", "joined")

    def __init__(self, client: DeliveryClient, before: "Turn | None", loop: asyncio.AbstractEventLoop) -> None:
        self.client = client
        self.before = before
        self.done: asyncio.Future[None] = loop.create_future()
        self.joined: asyncio.Future[None] = loop.create_future() if client.batched else self.done

    async def comes(self) -> None:
        """Waits until the message may be sent, or may join the batches of its client, which keep the order of a key
        themselves: waiting for the end would put each message of a key into a batch of its own."""
        before = self.before
        if before is not None:
            # Shielded, since cancelling a task also cancels the future that it waits for.
            await asyncio.shield(before.joined if before.client is self.client else before.done)

    def join(self) -> None:
        if not self.joined.done():
            self.joined.set_result(None)


class KeyOrder:
    """The last message of each key that has not ended. Messages take their turns in the order in which they arrive."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last: dict[bytes, Turn] = {}
        self.set_aside = SetAside()

    def __len__(self) -> int:
        return len(self._last)

    def take(self, key: bytes, client: DeliveryClient) -> Turn:
        turn = self._last[key] = Turn(client, self._last.get(key), self._loop)
        return turn

    def end(self, key: bytes, turn: Turn, dead_letter: Commit | None = None) -> None:
        """The message has ended; later ones wait for the commit of its ``dead_letter``. One that was evicted before its
        turn still keeps later ones behind earlier ones."""
        before = turn.before
        if before is not None and not before.done.done():
            before.done.add_done_callback(lambda _: self.end(key, turn, dead_letter))
            return
        if dead_letter is not None:
            self.set_aside.add(key, dead_letter)
        turn.before = None
        turn.done.set_result(None)
        turn.join()
        if self._last.get(key) is turn:
            del self._last[key]
