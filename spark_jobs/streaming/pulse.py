"""Signs of progress of a lane task: of its threads, of reading and of its messages; and what was lost before it could
be read."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from backend.kafka.client.ends import is_loss

log = logging.getLogger(__name__)

_CALL_SECONDS = 5.0


class Pulse:
    """The event loop shows that it turns by reporting at all; the other threads' last signs are in the report."""

    def __init__(self, committing: Callable[[], bool], oldest: Callable[[], float | None]) -> None:
        """``committing`` tells whether a transaction is under way, and ``oldest`` when the oldest message that is not
        committed was read, by the monotonic clock."""
        self._committing = committing
        self._oldest = oldest
        self._held_back_since: float | None = None
        self._polled = time.monotonic()
        self._commits = 0
        self._waiting_since: tuple[int, float] | None = None
        self._losses: list[tuple[int, int, int]] = []

    def polled(self) -> None:
        """The poll thread has made another turn."""
        self._polled = time.monotonic()

    @contextlib.contextmanager
    def holding_back(self) -> Iterator[None]:
        """While the window is full and nothing is read."""
        self._held_back_since = time.monotonic()
        try:
            yield
        finally:
            self._held_back_since = None

    def committed(self) -> None:
        self._commits += 1

    def note_loss(self, consumer: Consumer, partition: TopicPartition, reached: int | None = None) -> int:
        """Notices when Kafka has deleted records from the partition's offset on, which was the next to be read;
        ``reached`` is what was read instead. Returns the offset from which the consumer goes on: it takes the earliest
        that is left."""
        offset: int = partition.offset
        earliest: int
        try:
            earliest, _ = consumer.get_watermark_offsets(partition, _CALL_SECONDS)  # type: ignore[misc]
        except KafkaException as error:
            log.warning("Whether messages were lost is unknown: %s", error.args[0].str())
            return offset
        if not is_loss(offset, earliest):
            return offset
        # More may have been deleted after it was read.
        end = earliest if reached is None else min(earliest, reached)
        log.error("Messages from %d to %d were deleted before they were read.", offset, end - 1)
        self._losses.append((partition.partition, offset, end - offset))
        return earliest

    def report(self) -> dict[str, Any]:
        """Seconds since the poll thread's last turn, for how long one transaction has been under way, for how long
        nothing has been read because the window is full, and since the oldest message that is not committed was read;
        and losses (partition, first offset and count)."""
        now = time.monotonic()
        if not self._committing():
            self._waiting_since = None
        elif self._waiting_since is None or self._waiting_since[0] != self._commits:
            self._waiting_since = (self._commits, now)
        committing = now - self._waiting_since[1] if self._waiting_since is not None else 0.0
        return {
            "polled": round(now - self._polled, 1),
            "committing": round(committing, 1),
            "held_back": _age(self._held_back_since, now),
            "oldest": _age(self._oldest(), now),
            "losses": self._losses,
        }


def _age(since: float | None, now: float) -> float:
    """0 without a beginning."""
    return round(now - since, 1) if since is not None else 0.0
