"""Whatever is killed, stopped or emptied: nothing is lost, a key's order holds, and each delivery is billed once."""

import pytest

from tests.chaos.faults import SHORT, every_fault, schedule
from tests.chaos.suite import Outcome, run
from tests.installation import Installation


def test_every_message_is_accounted_for(installation: Installation) -> None:
    faults = [fault for fault in every_fault(hold=150) if fault.name in SHORT]
    _check(run(installation, 0, schedule(0, faults, len(faults)), gap=150, phase=200))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_every_message_is_accounted_for_in_twenty_minutes(installation: Installation, seed: int) -> None:
    _check(run(installation, seed, schedule(seed, every_fault(hold=600), 60), gap=600, phase=2000))


def _check(outcome: Outcome) -> None:
    assert not outcome.unbalanced
    assert all(account.sent for account in outcome.accounts)
    assert "Usage and deliveries agree." in outcome.reconciliation
