"""Batches that are larger than what the other side takes in one request."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from backend.domain.capabilities import BatchRefusedError, DeliveryError, Receipt

EntryT = TypeVar("EntryT")
Results = list[Receipt | DeliveryError]
Send = Callable[[Sequence[EntryT]], Awaitable[Results]]


def parts_of(
    entries: Sequence[EntryT], size: Callable[[EntryT], int], count: int, total: int
) -> Iterator[list[EntryT]]:
    """Up to ``count`` entries each, of ``total`` bytes together; an entry that is larger is a part of its own."""
    part: list[EntryT] = []
    part_size = 0
    for entry in entries:
        if part and (len(part) == count or part_size + size(entry) > total):
            yield part
            part, part_size = [], 0
        part.append(entry)
        part_size += size(entry)
    if part:
        yield part


async def send_parts(parts: Iterator[list[EntryT]], send: Send[EntryT]) -> Results:
    """The results of all entries, in order. A part that is refused for what is in it is sent in halves; after one that
    failed for another cause, no further one is sent."""
    results: Results = []
    failure: DeliveryError | None = None
    for part in parts:
        if failure is None:
            try:
                results += await _sent(part, send)
                continue
            except DeliveryError as error:
                failure = error
        results += [failure] * len(part)
    return results


async def _sent(entries: Sequence[EntryT], send: Send[EntryT]) -> Results:
    try:
        return await send(entries)
    except BatchRefusedError as error:
        if len(entries) == 1:
            return [error]
        middle = len(entries) // 2
        return await _sent(entries[:middle], send) + await _sent(entries[middle:], send)
