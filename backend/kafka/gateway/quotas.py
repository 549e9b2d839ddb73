"""Quotas: how many bytes each API key may read per second."""

import time
from uuid import UUID

from backend.kafka.gateway.ports import Account

_MOST_SECONDS = 10.0
"""A client is never made to wait longer at once; what remains is due after its next answer."""


class Quotas:
    """A leaky bucket for each key; ``bytes_per_second`` 0 is no limit. Each node counts for itself, as Kafka's brokers
    do."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._paid_until: dict[UUID, float] = {}

    def wait_after(self, account: Account, size: int) -> float:
        """Seconds that the client has to wait after an answer of ``size`` bytes. A second's worth may come at once."""
        if not self._rate:
            return 0.0
        now = time.monotonic()
        paid = max(self._paid_until.get(account.key, 0.0), now - 1) + size / self._rate
        self._paid_until[account.key] = paid
        return min(max(paid - now, 0.0), _MOST_SECONDS)
