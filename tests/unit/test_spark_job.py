"""When an application that does not work is held to be starting."""

import pytest

from backend.apps.jobs.models import SparkJob


@pytest.mark.parametrize(
    ("fields", "reported", "is_starting"),
    [
        ({"status": "stopped"}, None, True),  # to be started in the next round
        ({"status": "starting"}, None, True),
        ({"status": "starting"}, "stopped", True),  # as the one before it reported last
        ({"status": "running"}, "starting", True),
        ({"status": "running"}, "stopping", True),  # told to drain, since other resources were chosen
        ({"status": "stopping"}, None, True),
        ({"status": "starting", "failures": 1}, None, True),  # the restart after a good run
        ({"status": "starting", "failures": 2}, None, False),
        ({"status": "running", "failures": 2}, "starting", False),
        ({"status": "failed", "failures": 1}, None, False),
        ({"status": "running"}, None, False),  # silent
        ({"status": "running"}, "waiting for Kafka", False),
        ({"status": "stopping", "desired": "stopped"}, "stopping", False),
        ({"status": "stopped", "desired": "stopped"}, None, False),
    ],
)
def test_an_application_starts_unless_it_is_stopped_silent_or_fails(
    fields: dict[str, object], reported: str | None, is_starting: bool
) -> None:
    assert SparkJob(**fields).is_starting(reported) is is_starting


@pytest.mark.parametrize(
    ("fields", "is_expected"),
    [
        ({"status": "running"}, True),  # as it was when the platform stopped
        ({"status": "stopped"}, True),
        ({"status": "failed", "failures": 1}, True),  # is started again at once
        ({"status": "failed", "failures": 2}, False),
        ({"status": "running", "desired": "stopped"}, False),
    ],
)
def test_an_application_is_expected_unless_it_is_stopped_or_fails_again_and_again(
    fields: dict[str, object], is_expected: bool
) -> None:
    assert SparkJob(**fields).is_expected() is is_expected
