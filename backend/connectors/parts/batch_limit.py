"""How many records to ask for, where the other side limits an answer only by their number."""

from collections.abc import Sequence

FIRST_RECORDS = 10
_MOST_RECORDS = 500
_BATCH_BYTES = 2 * 1024 * 1024


def next_limit(limit: int, sizes: Sequence[int]) -> int:
    """Follows the average size, in bytes, of the records of the last answer, so that memory stays bounded."""
    average = max(1, sum(sizes) // len(sizes))
    return max(1, min(2 * limit, _MOST_RECORDS, _BATCH_BYTES // average))
