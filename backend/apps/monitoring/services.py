"""Changes to alert rules."""

from typing import Any

from backend.apps.monitoring.models import AlertRule
from backend.apps.workspaces.models import Workspace

_DEFAULT_RULES: list[dict[str, Any]] = [
    {"kind": AlertRule.Kind.BREAKER_OPEN, "name": "An output's breaker is open"},
    {"kind": AlertRule.Kind.JOB_DOWN, "name": "Messages are not processed"},
    {"kind": AlertRule.Kind.DEAD_LETTERS_EXPIRE, "name": "Dead letters are about to expire", "threshold": 48},
]


def alert_rules_create_default(*, instance: Workspace, created: bool, **_: Any) -> None:
    """What everybody wants to know. A new workspace's alerts are shown in the console and sent to nobody yet."""
    if created:
        AlertRule.objects.bulk_create(AlertRule(workspace=instance, **rule) for rule in _DEFAULT_RULES)
