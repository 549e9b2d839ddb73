"""What operators do about failed deliveries."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from backend.apps.audit.services import audit_record
from backend.apps.deliveries.models import DeadLetter
from backend.apps.deliveries.redelivery import REDELIVERED_STAGES
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import User, Workspace
from backend.domain.breaker import BreakerState
from backend.domain.reasons import Reason
from backend.domain.transforms.call import BREAKER_PREFIX
from backend.network.redis_client import redis_client
from backend.resilience.scripts import EVENTS, OutputKey, script
from backend.settings import platform_settings


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
        count = letters.filter(state=DeadLetter.State.WAITING, stage__in=REDELIVERED_STAGES).update(
            due_at=datetime.now(UTC), use_current_version=use_current_version
        )
        done = {"filter": filter, "count": count, "current_version": use_current_version}
        audit_record(action="dead_letters.redrive", actor=actor, workspace=workspace, after=done)
    return count


def dead_letters_discard(
    *, letters: QuerySet[DeadLetter], workspace: Workspace, actor: User, filter: dict[str, str], reason: str
) -> int:
    """Discards waiting dead letters, and returns how many. The rows stay, with who discarded them and why."""
    with transaction.atomic():
        count = letters.filter(state=DeadLetter.State.WAITING).update(
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
    penalty = seconds or platform_settings().breaker.open_seconds
    state = BreakerState.OPEN if to_open else BreakerState.CLOSED
    cause = f"{'Opened' if to_open else 'Closed'} by {actor.username}."
    client.eval(script("set_breaker").text, 2, key.breaker, EVENTS, "", state, penalty, cause, key.name())
    after = {"output": output, "breaker": state.value}
    audit_record(action="breaker.set", actor=actor, workspace=pipeline.workspace, target=pipeline, after=after)
    if not to_open:
        # Messages held back by the breaker of an external API have not reached an output yet.
        DeadLetter.objects.filter(
            pipeline_id=key.pipeline_id,
            output="" if output.startswith(BREAKER_PREFIX) else output,
            reason=Reason.BREAKER_OPEN,
            state=DeadLetter.State.WAITING,
            due_at__isnull=False,
        ).update(due_at=datetime.now(UTC))


def dead_letters_expire(*, keep: timedelta, most_bytes: int) -> int:
    """Removes the bodies of those that waited too long or exceed the size limit, oldest first; returns how many.

    The rows stay, so that no loss goes unnoticed.
    """
    waiting = DeadLetter.objects.filter(state=DeadLetter.State.WAITING)
    expired = _expire(waiting.filter(first_at__lt=datetime.now(UTC) - keep), f"It waited for {keep.days} days.")
    excess: list[UUID] = []
    total_bytes = 0
    for pk, size in waiting.order_by("-first_at").values_list("pk", "body_bytes").iterator(chunk_size=10_000):
        total_bytes += size
        if total_bytes > most_bytes:
            excess.append(pk)
    return expired + _expire(waiting.filter(pk__in=excess), "Newer dead letters took the room that is allowed.")


def _expire(letters: QuerySet[DeadLetter], why: str) -> int:
    return letters.update(
        state=DeadLetter.State.EXPIRED, body=b"", due_at=None, closed_at=datetime.now(UTC), closed_why=why
    )
