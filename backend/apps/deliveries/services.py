"""What operators do about failed deliveries."""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from redis.exceptions import RedisError

from backend.apps.audit.services import audit_record
from backend.apps.connectors.models import Connector
from backend.apps.connectors.signals import HEARD_AFTER
from backend.apps.deliveries.locking import letters_update
from backend.apps.deliveries.models import DeadLetter
from backend.apps.deliveries.redelivery import REDELIVERED_STAGES
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import pipelines_using
from backend.apps.workspaces.models import User, Workspace
from backend.domain.breaker import BreakerState
from backend.domain.model import UnreadableConfigError
from backend.domain.reasons import Reason
from backend.domain.transforms.call import BREAKER_PREFIX
from backend.network.redis_client import redis_client
from backend.resilience.scripts import EVENTS, OutputKey, script
from backend.settings import platform_settings

log = logging.getLogger(__name__)


def dead_letters_redrive(
    *,
    letters: QuerySet[DeadLetter],
    workspace: Workspace,
    actor: User,
    filter: dict[str, str],
    use_current_version: bool,
) -> int:
    """Makes waiting dead letters due now, and returns how many. Breakers and rate limits still apply."""
    with transaction.atomic():
        waiting = letters.filter(state=DeadLetter.State.WAITING, stage__in=REDELIVERED_STAGES)
        count = letters_update(waiting, due_at=datetime.now(UTC), use_current_version=use_current_version)
        done = {"filter": filter, "count": count, "current_version": use_current_version}
        audit_record(action="dead_letters.redrive", actor=actor, workspace=workspace, after=done)
    return count


def dead_letters_discard(
    *, letters: QuerySet[DeadLetter], workspace: Workspace, actor: User, filter: dict[str, str], reason: str
) -> int:
    """Discards waiting dead letters, and returns how many. The rows stay, with who discarded them and why."""
    with transaction.atomic():
        count = letters_update(
            letters.filter(state=DeadLetter.State.WAITING),
            state=DeadLetter.State.DISCARDED,
            due_at=None,
            closed_at=datetime.now(UTC),
            closed_by=actor.username,
            closed_why=reason,
        )
        done = {"filter": filter, "count": count, "reason": reason}
        audit_record(action="dead_letters.discard", actor=actor, workspace=workspace, after=done)
    return count


def breaker_set(*, pipeline: Pipeline, output: str, to_open: bool, seconds: float | None, actor: User) -> None:
    """Sets the breaker manually. Closing it makes the dead letters that it held back due at once."""
    key = OutputKey(str(pipeline.pk), output)
    client = redis_client()
    open_seconds = seconds or platform_settings().breaker.open_seconds
    state = BreakerState.OPEN if to_open else BreakerState.CLOSED
    cause = f"{'Opened' if to_open else 'Closed'} by {actor.username}."
    client.eval(script("set_breaker").text, 2, key.breaker, EVENTS, "", state, open_seconds, cause, key.name())
    after = {"output": output, "breaker": state.value}
    audit_record(action="breaker.set", actor=actor, workspace=pipeline.workspace, target=pipeline, after=after)
    if not to_open:
        # Messages held back by the breaker of an external API have not reached an output yet.
        held_back = DeadLetter.objects.filter(
            pipeline_id=key.pipeline_id,
            output="" if output.startswith(BREAKER_PREFIX) else output,
            reason=Reason.BREAKER_OPEN,
            state=DeadLetter.State.WAITING,
            due_at__isnull=False,
        )
        letters_update(held_back, due_at=datetime.now(UTC))


def breakers_probe_soon(*, connector: Connector, **_: Any) -> None:
    """Outputs and external calls that were suspended after failures are probed soon after the transaction, since their
    connector has changed: its former password may have been the reason. What somebody has suspended stays so."""
    # Robust, since a failure here must not keep the change from being announced to the data plane.
    transaction.on_commit(lambda: _probe_soon(list(_breakers_using(connector))), robust=True)


def _breakers_using(connector: Connector) -> Iterator[OutputKey]:
    for pipeline in pipelines_using(connector).exclude(published=None).select_related("published"):
        assert pipeline.published is not None
        try:
            uses = pipeline.published.load().uses()
        except UnreadableConfigError:
            continue
        for _, use in uses:
            if use.connector == connector.pk and use.breaker_name is not None:
                yield OutputKey(str(pipeline.pk), use.breaker_name)


def _probe_soon(keys: list[OutputKey]) -> None:
    soon = time.time() + HEARD_AFTER.total_seconds()
    try:
        with redis_client().pipeline(transaction=False) as batch:
            for key in keys:
                batch.hmget(key.breaker, "state", "errors", "until")
            for key, (state, errors, until) in zip(keys, batch.execute(), strict=True):
                # Whoever opens a breaker manually sets its errors to zero.
                if state == BreakerState.OPEN.encode() and int(errors or 0) and float(until) > soon:
                    batch.hset(key.breaker, "until", str(soon))
            batch.execute()
    except RedisError as error:
        log.warning("Outputs whose connector was saved are not probed before their time: Redis failed: %s", error)
