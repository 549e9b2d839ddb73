"""How fast an output takes its dead letters back."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from backend.apps.deliveries.models import DeadLetter
from backend.domain.reasons import Reason

MOST = 500
"""The most dead letters of one output that are in redelivery at the same time."""
_LEAST = 8
_LOST_FOR_A_FAILURE = 1 / 3


class Pace:
    """How many dead letters of one output may be in redelivery at the same time, which adapts as the window of TCP's
    congestion control does (RFC 5681): each that is delivered lets one more go, and three that fail again one fewer.

    Without it an output that accepts nothing would have 500 of its dead letters fail at any time, each at the expense
    of all other outputs. While a quarter is delivered, the number grows.
    """

    def __init__(self) -> None:
        self._allowed: float = _LEAST
        self._under_way: dict[Any, datetime | None] = {}
        """When those were claimed that this worker has sent, by their ids."""

    @property
    def allowed(self) -> int:
        return int(self._allowed)

    def sent(self, letters: Iterable[DeadLetter]) -> None:
        self._under_way |= {letter.pk: letter.claimed_at for letter in letters}

    def learn(self) -> None:
        """Looks at what came of those that were sent. Raises DatabaseError."""
        if not self._under_way:
            return
        letters = DeadLetter.objects.filter(pk__in=self._under_way)
        still: dict[Any, datetime | None] = {}
        for id, state, claimed_at, reason in letters.values_list("pk", "state", "claimed_at", "reason"):
            if state == DeadLetter.State.REDELIVERING and claimed_at == self._under_way[id]:
                still[id] = claimed_at
            elif state == DeadLetter.State.DELIVERED:
                self._allowed += 1
            elif reason != Reason.RATE_LIMITED and state != DeadLetter.State.DISCARDED:
                self._allowed -= _LOST_FOR_A_FAILURE
        self._allowed = min(max(self._allowed, _LEAST), MOST)
        self._under_way = still
