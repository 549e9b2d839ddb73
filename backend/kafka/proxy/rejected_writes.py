"""The writes of one client that were rejected, and that it repeats.

A client has several writes in flight to a partition's leader. When the leadership moves, the
former leader rejects all of them, and the client repeats them in their order. Behind a proxy those that follow a
rejected one would reach the new leader first, which rejects them as out of order, or accepts them when it does not know
the producer yet. An idempotent producer then begins a new epoch, in which brokers recognise nothing that it repeats,
such as writes whose answers were lost (librdkafka 2: "skipped sequence numbers"): they are doubled. So whatever follows
a rejected write is rejected as well until the client repeats one (ADR 0010).
"""

from dataclasses import dataclass
from struct import Struct as Format

from backend.kafka.proxy.topology import TopicKey
from backend.kafka.wire.api import ErrorCode

Place = tuple[TopicKey, int]
"""A topic and the number of a partition."""

_PRODUCER = Format(">qhi")
_PRODUCER_AT = 43
"""Where a record batch has its producer's id and epoch, and the sequence number of its first record."""
_MAGIC_AT, _MAGIC = 16, 2
"""The position of the magic byte, and its value in batches of the present format."""
_SEQUENCES = 2**31
MOST_PLACES = 10_000
"""More than a client writes to at a time; it may invent topics without end."""


@dataclass(slots=True, frozen=True)
class _Write:
    producer: int
    epoch: int
    sequence: int

    @classmethod
    def of(cls, records: bytes | memoryview | None) -> "_Write | None":
        """That of an idempotent producer; other writes have no order that a broker checks."""
        if records is None or len(records) < _PRODUCER_AT + _PRODUCER.size or records[_MAGIC_AT] != _MAGIC:
            return None
        write = cls(*_PRODUCER.unpack_from(records, _PRODUCER_AT))
        return write if write.producer >= 0 else None

    def follows(self, other: "_Write") -> bool:
        distance = (self.sequence - other.sequence) % _SEQUENCES
        return (self.producer, self.epoch) == (other.producer, other.epoch) and 0 < distance < _SEQUENCES // 2


class RejectedWrites:
    """By partition, the last one that was rejected before the client repeated any."""

    def __init__(self) -> None:
        self._last: dict[Place, _Write] = {}
        self._out_of_order: dict[Place, _Write] = {}

    def __bool__(self) -> bool:
        return bool(self._last)

    def precede(self, place: Place, records: bytes | memoryview | None) -> bool:
        """Whether these records follow a write that was rejected and has not been repeated, as they may have been."""
        last = self._last.get(place)
        if last is None:
            return False
        write = _Write.of(records)
        if write is not None and write.follows(last):
            return True
        del self._last[place]
        return False

    def add(self, place: Place, records: bytes | memoryview | None, error: int) -> int:
        """Records a rejected write, and returns the error code for the client.

        A write is out of order only when it is so once more after it was repeated: before, an earlier one may have
        been rejected meanwhile.
        """
        write = _Write.of(records)
        if write is None:
            return error
        if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._out_of_order.pop(place, None) == write:
                return error
            _keep(self._out_of_order, place, write)
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        last = self._last.get(place)
        if last is None or not last.follows(write):
            _keep(self._last, place, write)
        return error


def _keep(writes: dict[Place, _Write], place: Place, write: _Write) -> None:
    writes[place] = write
    if len(writes) > MOST_PLACES:
        del writes[next(iter(writes))]
