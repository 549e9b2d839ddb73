"""What follows a rejected write is rejected as well until the client repeats one."""

import struct

from backend.kafka.proxy.rejected_writes import MOST_PLACES, RejectedWrites
from backend.kafka.wire.api import ErrorCode

PLACE = ("orders", 0)
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
_WRAP = 2**31


def records(sequence: int, producer: int = 7, epoch: int = 0, version: int = 2) -> bytes:
    """A record batch up to the number of its records."""
    return struct.pack(">16xb26xqhii", version, producer, epoch, sequence, 1)


def test_what_follows_a_rejected_write_waits_for_its_repetition() -> None:
    rejected = RejectedWrites()
    assert not rejected
    assert not rejected.precede(PLACE, records(4))
    assert rejected.add(PLACE, records(4), MOVED) == MOVED
    assert rejected
    assert rejected.precede(PLACE, records(5))
    assert rejected.precede(PLACE, records(5))  # asking changes nothing
    assert not rejected.precede(("orders", 1), records(5))
    assert not rejected.precede(PLACE, records(4))
    assert not rejected.precede(PLACE, records(5))
    assert not rejected


def test_a_client_that_has_repeated_the_first_write_elsewhere_goes_on_after_one_more_rejection() -> None:
    rejected = RejectedWrites()
    rejected.add(PLACE, records(4), MOVED)
    assert rejected.precede(PLACE, records(9))
    rejected.add(PLACE, records(9), MOVED)
    assert not rejected.precede(PLACE, records(9))


def test_a_later_rejection_of_an_earlier_write_changes_nothing() -> None:
    rejected = RejectedWrites()
    for sequence in (5, 4):
        rejected.add(PLACE, records(sequence), MOVED)
    assert rejected.precede(PLACE, records(6))
    assert not rejected.precede(PLACE, records(5))


def test_sequence_numbers_begin_anew_after_the_highest() -> None:
    rejected = RejectedWrites()
    rejected.add(PLACE, records(_WRAP - 1), MOVED)
    assert rejected.precede(PLACE, records(0))
    assert not rejected.precede(PLACE, records(_WRAP - 2))


def test_another_producer_and_another_epoch_have_sequences_of_their_own() -> None:
    for other in (
        records(5, producer=8),
        records(5, epoch=1),
        records(5, producer=-1),
        records(5, version=1),
        b"",
        None,
    ):
        rejected = RejectedWrites()
        rejected.add(PLACE, records(4), MOVED)
        assert not rejected.precede(PLACE, other)
    rejected = RejectedWrites()
    rejected.add(PLACE, records(9), MOVED)
    rejected.add(PLACE, records(0, epoch=1), MOVED)
    assert rejected.precede(PLACE, records(1, epoch=1))


def test_writes_of_producers_that_are_not_idempotent_are_never_held() -> None:
    rejected = RejectedWrites()
    for without in (records(0, producer=-1), records(0, version=1), b"", None):
        assert (
            rejected.add(PLACE, without, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    assert not rejected


def test_a_client_that_invents_topics_takes_no_memory_without_end() -> None:
    rejected = RejectedWrites()
    for number in range(MOST_PLACES + 1):
        for error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OUT_OF_ORDER):
            rejected.add((f"invented-{number}", 0), records(4), error)
    assert (len(rejected._last), len(rejected._out_of_order)) == (MOST_PLACES, MOST_PLACES)
    assert not rejected.precede(("invented-0", 0), records(5))
    assert rejected.precede((f"invented-{MOST_PLACES}", 0), records(5))


def test_a_write_is_out_of_order_when_it_is_so_after_it_was_repeated() -> None:
    rejected = RejectedWrites()
    assert rejected.add(PLACE, records(4), OUT_OF_ORDER) == MOVED
    assert rejected.precede(PLACE, records(5))
    assert not rejected.precede(PLACE, records(4))
    assert rejected.add(PLACE, records(4), OUT_OF_ORDER) == OUT_OF_ORDER
