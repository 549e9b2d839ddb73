"""Quotas of API keys."""

from uuid import UUID

import pytest

from backend.kafka.gateway.ports import Account
from backend.kafka.gateway.quotas import Quotas

_ONE, _OTHER = Account(UUID(int=1), UUID(int=9)), Account(UUID(int=2), UUID(int=9))


def test_without_a_quota_nobody_waits() -> None:
    assert Quotas(0).wait_after(_ONE, 10**12) == 0


def test_a_key_waits_for_what_exceeds_a_second_and_others_do_not() -> None:
    quotas = Quotas(1000)
    assert quotas.wait_after(_ONE, 1000) == 0
    assert quotas.wait_after(_ONE, 3000) == pytest.approx(3, abs=0.2)
    assert quotas.wait_after(_OTHER, 500) == 0
    assert quotas.wait_after(_ONE, 10**9) == 10  # what remains is due after the next answer
