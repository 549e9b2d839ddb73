"""Changes to alert rules."""

from typing import Any

from django.db import transaction

from backend.apps.audit.services import audit_record
from backend.apps.monitoring.models import AlertRule
from backend.apps.workspaces.models import User, Workspace

_DEFAULT_RULES: list[dict[str, Any]] = [
    {"kind": AlertRule.Kind.BREAKER_OPEN, "name": "An output's breaker is open"},
    {"kind": AlertRule.Kind.JOB_DOWN, "name": "Messages are not processed"},
    {"kind": AlertRule.Kind.DEAD_LETTERS_EXPIRE, "name": "Dead letters are about to expire", "threshold": 48},
    {"kind": AlertRule.Kind.EXPORT_UNSTORED, "name": "Files cannot be stored", "threshold": 60},
    {"kind": AlertRule.Kind.REGISTRATION, "name": "Something in another system is in danger"},
]

_AUDITED = ["name", "kind", "threshold", "minutes", "email", "enabled"]


def alert_rule_create(*, workspace: Workspace, actor: User, **fields: Any) -> AlertRule:
    with transaction.atomic():
        rule = AlertRule.objects.create(workspace=workspace, **fields)
        _audit("create", rule, actor, after=_audited(rule))
    return rule


def alert_rule_update(*, rule: AlertRule, actor: User, **fields: Any) -> AlertRule:
    before = _audited(rule)
    with transaction.atomic():
        for name, value in fields.items():
            setattr(rule, name, value)
        rule.save(update_fields=list(fields))
        _audit("update", rule, actor, before=before, after=_audited(rule))
    return rule


def alert_rule_delete(*, rule: AlertRule, actor: User) -> None:
    with transaction.atomic():
        _audit("delete", rule, actor, before=_audited(rule))
        rule.delete()


def alert_rules_create_default(*, instance: Workspace, created: bool, **_: Any) -> None:
    """Creates the default rules of a new workspace. Their alerts are shown in the console and sent to nobody yet."""
    if created:
        AlertRule.objects.bulk_create(AlertRule(workspace=instance, **rule) for rule in _DEFAULT_RULES)


def _audit(action: str, rule: AlertRule, actor: User, **changed: Any) -> None:
    audit_record(action=f"alert_rule.{action}", actor=actor, workspace=rule.workspace, target=rule, **changed)


def _audited(rule: AlertRule) -> dict[str, Any]:
    references = {name: str(pk) if (pk := getattr(rule, f"{name}_id")) else None for name in ("pipeline", "connector")}
    return {name: getattr(rule, name) for name in _AUDITED} | references
