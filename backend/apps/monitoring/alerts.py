"""Evaluates alert rules, and sends notifications."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import KafkaException
from django.conf import settings
from django.core.mail import send_mail
from django.db.models import Min
from redis.exceptions import RedisError

from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.connectors.secrets import UnreadableSecretError
from backend.apps.connectors.vault import VaultUnavailableError
from backend.apps.deliveries.breakers import breaker_of
from backend.apps.deliveries.models import DeadLetter
from backend.apps.jobs.lag import stage_lags
from backend.apps.jobs.models import SparkJob
from backend.apps.monitoring.models import Alert, AlertRule
from backend.apps.monitoring.selectors import counts_by_second
from backend.apps.pipelines.models import Pipeline
from backend.delivery.client import DeliveryClient
from backend.domain.breaker import BreakerState
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.network.redis_client import redis_client
from backend.resilience.scripts import OutputKey

log = logging.getLogger(__name__)

_SEND_SECONDS = 10.0
_DELIVERED = re.compile(r"output\..+\.delivered")
_FAILED = re.compile(r"output\..+\.dead")

Finding = tuple[str, str]
"""The subject of an alert, and its message."""


def alerts_evaluate() -> None:
    """One round: opens and closes alerts, and notifies. A rule that cannot be evaluated now keeps its alerts."""
    for rule in AlertRule.objects.filter(enabled=True).select_related("workspace", "pipeline", "connector"):
        try:
            findings = dict(_FINDERS[AlertRule.Kind(rule.kind)](rule))
        except (RedisError, KafkaException) as error:
            log.warning("Alert rule %s cannot be evaluated now: %s", rule.pk, error)
            continue
        opened = {alert.subject: alert for alert in rule.alerts.filter(ended_at=None)}
        for subject, message in findings.items():
            if subject not in opened:
                _notify(rule.alerts.create(subject=subject, message=message), "firing")
        for subject, alert in opened.items():
            if subject not in findings:
                alert.ended_at = datetime.now(UTC)
                alert.save(update_fields=["ended_at"])
                _notify(alert, "resolved")


def _notify(alert: Alert, state: str) -> None:
    """Notifies by connector and e-mail, as the rule says. A failure is recorded on the alert and not raised."""
    rule, problems = alert.rule, []
    if rule.connector is not None:
        try:
            asyncio.run(_send(rule.connector, connection_with_secrets(rule.connector), _as_message(alert, state)))
        except (DeliveryError, UnreadableSecretError, VaultUnavailableError, TimeoutError) as error:
            problems.append(f"{rule.connector.name}: {error or 'no answer in time.'}")
    if rule.email:
        try:
            send_mail(f"[Headrace] {rule.name}: {state}", alert.message, None, [rule.email])
        except OSError as error:
            problems.append(f"E-mail: {error}")
    if problems:
        alert.notification = "\n".join(problems)
        alert.save(update_fields=["notification"])


def _as_message(alert: Alert, state: str) -> Message:
    body = {
        "state": state,
        "rule": alert.rule.name,
        "kind": alert.rule.kind,
        "subject": alert.subject,
        "message": alert.message,
        "started_at": alert.started_at.isoformat(),
    }
    return Message(
        id=new_message_id(),
        pipeline_id="alerts",
        version=0,
        key=str(alert.rule.pk).encode(),
        body=json.dumps(body).encode(),
        content_type="application/json",
        received_at=utc_now(),
        slip=(),
    )


def alert_output(connector: Connector) -> OutputConfig:
    """How alerts use a connector."""
    return OutputConfig(name="alerts", connector=connector.pk, timeout_seconds=_SEND_SECONDS)


async def _send(connector: Connector, connection: dict[str, Any], message: Message) -> None:
    client = DeliveryClient(
        RuntimeOutput(
            config=alert_output(connector), connector=RuntimeConnector(type=connector.type, connection=connection)
        )
    )
    try:
        await client.deliver_one(message)
    finally:
        await client.close()


# -- conditions by kind of rule --------------------------------------------------


def _pipelines(rule: AlertRule) -> list[Pipeline]:
    if rule.pipeline is not None:
        return [rule.pipeline]
    return list(Pipeline.objects.filter(workspace=rule.workspace).exclude(published=None))


def _failure_rate(rule: AlertRule) -> Iterator[Finding]:
    for pipeline in _pipelines(rule):
        seconds = counts_by_second(str(pipeline.pk), rule.minutes).values()
        delivered, failed = (
            sum(n for counts in seconds for event, n in counts.items() if pattern.fullmatch(event))
            for pattern in (_DELIVERED, _FAILED)
        )
        if failed and (rate := failed / (failed + delivered) * 100) > rule.threshold:
            yield (
                str(pipeline.pk),
                f"{pipeline.name}: {rate:.0f} % of {failed + delivered:,} deliveries failed in the last "
                f"{rule.minutes} minutes.",
            )


def _dead_letters(rule: AlertRule, before: datetime, condition: str) -> Iterator[Finding]:
    waiting = DeadLetter.objects.filter(
        workspace_id=rule.workspace.pk, state=DeadLetter.State.WAITING, first_at__lt=before
    )
    for pipeline in _pipelines(rule):
        letters = waiting.filter(pipeline_id=pipeline.pk)
        if count := letters.count():
            oldest = letters.aggregate(at=Min("first_at"))["at"]
            yield (
                str(pipeline.pk),
                f"{pipeline.name}: {count:,} dead letters {condition}; the oldest is of {oldest:%Y-%m-%d %H:%M} UTC.",
            )


def _dead_letter_age(rule: AlertRule) -> Iterator[Finding]:
    before = datetime.now(UTC) - timedelta(minutes=rule.threshold)
    yield from _dead_letters(rule, before, f"have waited for more than {rule.threshold:g} minutes")


def _dead_letters_expire(rule: AlertRule) -> Iterator[Finding]:
    retention = timedelta(days=settings.CONSOLE.dead_letters_kept_days)
    before = datetime.now(UTC) - retention + timedelta(hours=rule.threshold)
    yield from _dead_letters(rule, before, f"lose their bodies within {rule.threshold:g} hours")


def _stage_lag(rule: AlertRule) -> Iterator[Finding]:
    for stage, lag in stage_lags().items():
        if lag > rule.threshold:
            yield stage, f"{lag:,} messages wait before the stage {stage}."


def _breaker_open(rule: AlertRule) -> Iterator[Finding]:
    client = redis_client()
    for pipeline in _pipelines(rule):
        for name in pipeline.published.breakers if pipeline.published else ():
            state, _ = breaker_of(client, OutputKey(str(pipeline.pk), name))
            if state is not BreakerState.CLOSED:
                yield (
                    f"{pipeline.pk}/{name}",
                    f"{pipeline.name}: nothing is sent to {name}, whose circuit breaker is open.",
                )


def _job_down(rule: AlertRule) -> Iterator[Finding]:
    for job in SparkJob.objects.filter(desired=SparkJob.Desired.RUNNING).exclude(status=SparkJob.Status.RUNNING):
        yield (
            job.name,
            f"The Spark application {job.name} is {job.get_status_display().lower()}. {job.last_error}".strip(),
        )


_FINDERS: dict[AlertRule.Kind, Callable[[AlertRule], Iterator[Finding]]] = {
    AlertRule.Kind.FAILURE_RATE: _failure_rate,
    AlertRule.Kind.DEAD_LETTER_AGE: _dead_letter_age,
    AlertRule.Kind.DEAD_LETTERS_EXPIRE: _dead_letters_expire,
    AlertRule.Kind.STAGE_LAG: _stage_lag,
    AlertRule.Kind.BREAKER_OPEN: _breaker_open,
    AlertRule.Kind.JOB_DOWN: _job_down,
}
