"""A producer whose room for unacknowledged records is shared, so that no sender takes it from the others."""

import asyncio
from collections.abc import Iterator, Sequence

from backend.domain.records import Record
from backend.kafka.client.producer import AsyncProducer

_PORTION_BYTES = 1024 * 1024
"""What is sent at a time, and so makes room at a time when it is acknowledged."""
_FEWEST_PARTS = 8
"""No sender has more than this part of the room, so that there is some for one that begins."""


class SharedProducer:
    """Divides ``room`` bytes equally among those senders that have unacknowledged records at the moment."""

    def __init__(self, producer: AsyncProducer, room: int) -> None:
        self._producer = producer
        self._room = room
        self._senders = 0

    def share(self) -> "ProducerShare":
        """For one sender, which sends one batch after the other."""
        return ProducerShare(self, self._producer)

    @property
    def limit(self) -> int:
        """The bytes that each sender may have in flight."""
        return self._room // max(_FEWEST_PARTS, self._senders)

    def count(self, change: int) -> None:
        """So many more senders have unacknowledged records."""
        self._senders += change


class ProducerShare:
    """Sends the records of one sender."""

    def __init__(self, shared: SharedProducer, producer: AsyncProducer) -> None:
        self._shared = shared
        self._producer = producer
        self._unacknowledged = 0
        self._freed = asyncio.Event()

    async def send_all(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """As ``AsyncProducer.send_all``; waits also while the sender's own share is full."""
        if not records:
            return await self._producer.send_all(records)
        sent = [await self._send(portion, size) for portion, size in _portions(records)]
        if len(sent) == 1:
            return sent[0]
        together = asyncio.ensure_future(_all(sent))
        together.add_done_callback(_look_at_failure)
        return together

    async def _send(self, portion: Sequence[Record], size: int) -> asyncio.Future[None]:
        await self._take(size)
        try:
            sent = await self._producer.send_all(portion)
        except BaseException:
            self._free(size)
            raise
        sent.add_done_callback(lambda _: self._free(size))
        return sent

    async def _take(self, size: int) -> None:
        """What is larger than the share is sent once nothing else is on the way."""
        while self._unacknowledged and self._unacknowledged + size > self._shared.limit:
            self._freed.clear()
            await self._freed.wait()
        if not self._unacknowledged:
            self._shared.count(1)
        self._unacknowledged += size

    def _free(self, size: int) -> None:
        self._unacknowledged -= size
        if not self._unacknowledged:
            self._shared.count(-1)
        self._freed.set()


def _portions(records: Sequence[Record]) -> Iterator[tuple[Sequence[Record], int]]:
    """The records in order, with the bytes of each portion; one record may be larger than a portion."""
    start = size = 0
    for index, record in enumerate(records):
        own = record.size
        if index > start and size + own > _PORTION_BYTES:
            yield records[start:index], size
            start, size = index, 0
        size += own
    yield records[start:], size


async def _all(sent: Sequence[asyncio.Future[None]]) -> None:
    """Once the answers to all are known. Raises KafkaException for the first that failed."""
    await asyncio.wait(sent)
    for portion in sent:
        portion.result()


def _look_at_failure(sent: asyncio.Future[None]) -> None:
    """A sender that failed meanwhile does not wait for it any more; asyncio would log that nobody looked."""
    if not sent.cancelled():
        sent.exception()
