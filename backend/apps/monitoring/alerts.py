"""Evaluates alert rules."""

import logging
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from confluent_kafka import KafkaException
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from django.db.models import Count, Min
from redis.exceptions import RedisError

from backend.apps.deliveries.breakers import breaker_of
from backend.apps.deliveries.models import DeadLetter
from backend.apps.exports.selectors import unstored_files
from backend.apps.jobs.lag import stage_lags
from backend.apps.jobs.models import LostMessages, SparkJob
from backend.apps.monitoring.models import Alert, AlertRule
from backend.apps.monitoring.notifications import notifications_send
from backend.apps.monitoring.selectors import counts_by_second
from backend.apps.pipelines.models import Pipeline, Registration
from backend.domain.breaker import BreakerState
from backend.network.redis_client import redis_client
from backend.resilience.scripts import OutputKey

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 10.0
_WORKSPACE_SECONDS = 5.0
"""A workspace whose rules have taken this long gets to the others in a later round."""
_LOSSES_SHOWN = timedelta(days=1)
_ROUND_LOCK = 0x616C65727473
"""The key of PostgreSQL's advisory lock; any number that nothing else uses."""
_DELIVERED = re.compile(r"output\..+\.delivered")
_FAILED = re.compile(r"output\..+\.dead")

Finding = tuple[str, str]
"""The subject of an alert, and its message."""


def run(stop: threading.Event) -> None:
    """Evaluates the rules until ``stop`` is set. It has a thread of its own: neither slow tasks nor a broker that is
    unavailable delay alerts."""
    while not stop.is_set():
        close_old_connections()
        try:
            alerts_evaluate()
        except (DatabaseError, InterfaceError) as error:
            log.warning("Alert rules cannot be evaluated now: %s", str(error).partition("\n")[0])
            connection.close()
        except Exception:
            log.exception("A round of alert rules failed.")
        stop.wait(_INTERVAL_SECONDS)
    connection.close()


def alerts_evaluate() -> None:
    """One round: opens and closes alerts, and then notifies. A rule that cannot be evaluated now keeps its alerts. Does
    nothing while another host's round runs."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_ROUND_LOCK])
        if not cursor.fetchone()[0]:
            return
    try:
        _evaluate()
        notifications_send()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_ROUND_LOCK])


def _evaluate() -> None:
    """Evaluates all rules, in another order each time, so that none is left out for good where they take long."""
    unavailable: set[str] = set()
    spent: defaultdict[UUID, float] = defaultdict(float)
    rules = AlertRule.objects.filter(enabled=True).select_related("workspace", "pipeline", "connector")
    for rule in rules.order_by("?"):
        if rule.kind in unavailable or spent[rule.workspace_id] > _WORKSPACE_SECONDS:
            continue
        began = time.monotonic()
        try:
            _evaluate_rule(rule)
        except (RedisError, KafkaException) as error:
            log.warning("Alert rules of kind %s cannot be evaluated now: %s", rule.kind, error)
            unavailable.add(rule.kind)  # each of them would wait for the same answer
        except Exception as error:
            if not connection.is_usable():
                raise
            log.warning("Alert rule %s cannot be evaluated.", rule.pk, exc_info=error)
        spent[rule.workspace_id] += time.monotonic() - began


def _evaluate_rule(rule: AlertRule) -> None:
    findings = dict(_FINDERS[AlertRule.Kind(rule.kind)](rule))
    opened = {alert.subject: alert for alert in rule.alerts.filter(ended_at=None)}
    for subject, message in findings.items():
        if subject not in opened:
            opening = Alert(rule=rule, subject=subject, message=message)
            opening.notify("firing")
            opening.save()
    for subject, alert in opened.items():
        if subject not in findings:
            alert.ended_at = datetime.now(UTC)
            alert.notify("resolved")
            alert.save(update_fields=["ended_at", "unsent", "tries", "send_at"])


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
    names = {pipeline.pk: pipeline.name for pipeline in _pipelines(rule)}
    waiting = DeadLetter.objects.filter(
        workspace_id=rule.workspace.pk, pipeline_id__in=names, state=DeadLetter.State.WAITING, first_at__lt=before
    )
    for pipeline_id, count, oldest in waiting.values_list("pipeline_id").annotate(Count("pk"), Min("first_at")):
        yield (
            str(pipeline_id),
            f"{names[pipeline_id]}: {count:,} dead letters {condition}; the oldest is of {oldest:%Y-%m-%d %H:%M} UTC.",
        )


def _dead_letter_age(rule: AlertRule) -> Iterator[Finding]:
    before = datetime.now(UTC) - timedelta(minutes=rule.threshold)
    yield from _dead_letters(rule, before, f"have waited for more than {rule.threshold:g} minutes")


def _dead_letters_expire(rule: AlertRule) -> Iterator[Finding]:
    retention = timedelta(days=settings.CONSOLE.dead_letters_kept_days)
    before = datetime.now(UTC) - retention + timedelta(hours=rule.threshold)
    yield from _dead_letters(rule, before, f"lose their bodies within {rule.threshold:g} hours")


def _export_unstored(rule: AlertRule) -> Iterator[Finding]:
    names = {pipeline.pk: pipeline.name for pipeline in _pipelines(rule)}
    before = datetime.now(UTC) - timedelta(minutes=rule.threshold)
    for pipeline_id, outputs in unstored_files(names, made_before=before).items():
        for files in outputs:
            counted = "1 file" if files.count == 1 else f"{files.count:,} files"
            yield (
                f"{pipeline_id}/{files.output}",
                f"{names[pipeline_id]}: {counted} of the output {files.output} could not be stored for "
                f"more than {rule.threshold:g} minutes; the oldest is of {files.since:%Y-%m-%d %H:%M} UTC. "
                f"{files.error}",
            )


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
    for job in SparkJob.objects.filter(desired=SparkJob.Desired.RUNNING):
        if job.is_starting(None):
            continue
        if job.status != SparkJob.Status.RUNNING:
            yield job.name, f"The Spark application {job.name} is {job.get_status_display().lower()}."
        elif job.problem:
            yield f"{job.name}/problem", f"The Spark application {job.name} has a problem. {job.problem}"
    for loss in LostMessages.objects.filter(at__gt=datetime.now(UTC) - _LOSSES_SHOWN).select_related("job"):
        yield (
            f"{loss.job.name}/lost/{loss.pk}",
            f"{loss.count:,} messages of partition {loss.partition} were deleted by Kafka's retention before stage "
            f"{loss.stage} had read them, from offset {loss.first_offset} on.",
        )


def _registration(rule: AlertRule) -> Iterator[Finding]:
    names = {pipeline.pk: pipeline.name for pipeline in _pipelines(rule)}
    for endangered in Registration.objects.filter(pipeline_id__in=names).exclude(warning=""):
        yield (
            f"{endangered.pipeline_id}/{endangered.place}",
            f"{names[endangered.pipeline_id]}: {endangered.warning}",
        )


_FINDERS: dict[AlertRule.Kind, Callable[[AlertRule], Iterator[Finding]]] = {
    AlertRule.Kind.FAILURE_RATE: _failure_rate,
    AlertRule.Kind.DEAD_LETTER_AGE: _dead_letter_age,
    AlertRule.Kind.DEAD_LETTERS_EXPIRE: _dead_letters_expire,
    AlertRule.Kind.EXPORT_UNSTORED: _export_unstored,
    AlertRule.Kind.STAGE_LAG: _stage_lag,
    AlertRule.Kind.BREAKER_OPEN: _breaker_open,
    AlertRule.Kind.JOB_DOWN: _job_down,
    AlertRule.Kind.REGISTRATION: _registration,
}
