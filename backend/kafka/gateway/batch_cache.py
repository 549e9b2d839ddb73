"""Encoded batches of hot ranges."""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Hashable

from backend.kafka.gateway.batches import Batch


class BatchCache:
    """The batches that were used last, up to a number of bytes. ``log`` identifies a partition in one encoding."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._batches: OrderedDict[tuple[Hashable, int], Batch] = OrderedDict()
        self._bases: dict[Hashable, list[int]] = {}

    def at(self, log: Hashable, offset: int) -> Batch | None:
        """A batch that has the offset."""
        bases = self._bases.get(log)
        if not bases:
            return None
        at = bisect_right(bases, offset) - 1
        if at < 0:
            return None
        key = (log, bases[at])
        batch = self._batches[key]
        if batch.last < offset:
            return None
        self._batches.move_to_end(key)
        return batch

    def put(self, log: Hashable, batch: Batch) -> None:
        key = (log, batch.base)
        former = self._batches.pop(key, None)
        if former is None:
            insort(self._bases.setdefault(log, []), batch.base)
        else:
            self._bytes -= len(former.data)
        self._batches[key] = batch
        self._bytes += len(batch.data)
        while self._bytes > self._max_bytes and len(self._batches) > 1:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        (log, base), batch = self._batches.popitem(last=False)
        self._bytes -= len(batch.data)
        bases = self._bases[log]
        del bases[bisect_right(bases, base) - 1]
        if not bases:
            del self._bases[log]
