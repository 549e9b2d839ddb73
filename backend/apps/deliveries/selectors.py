"""Questions about deliveries."""

from datetime import UTC, datetime
from typing import Any

import redis
from django.conf import settings
from django.db.models import Count, Min, QuerySet

from backend.apps.deliveries.models import Attempt, DeadLetter, OutputEvent
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import Workspace
from backend.delivery.scripts import OutputKey
from backend.domain.breaker import BreakerState

ERRORS_SHOWN = 5
OPEN = (DeadLetter.State.WAITING, DeadLetter.State.REDELIVERING)


def dead_letters_of(workspace: Workspace) -> QuerySet[DeadLetter]:
    return DeadLetter.objects.filter(workspace_id=workspace.pk)


def dead_letter_summary(letters: QuerySet[DeadLetter]) -> list[dict[str, Any]]:
    """Why, how many, since when and what comes next, by pipeline, output and reason."""
    found: Any = (
        letters.values("pipeline_id", "output", "reason")
        .annotate(count=Count("pk"), oldest=Min("first_at"), next_due=Min("due_at"))
        .order_by("-count")
    )
    return list(found)


def waiting_by_output() -> dict[tuple[Any, str], int]:
    """Open dead letters of the installation by pipeline and output."""
    counted = DeadLetter.objects.filter(state__in=OPEN).values_list("pipeline_id", "output").annotate(n=Count("pk"))
    return {(pipeline_id, output): n for pipeline_id, output, n in counted}


def attempts_of(workspace: Workspace) -> QuerySet[Attempt]:
    return Attempt.objects.filter(workspace_id=workspace.pk)


def events_of(workspace: Workspace) -> QuerySet[OutputEvent]:
    return OutputEvent.objects.filter(workspace_id=workspace.pk)


def outputs_of(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The outputs in force, or of the newest version of a pipeline never published, with the state of each."""
    version = pipeline.published or pipeline.versions.first()
    configs = version.config["outputs"] if version is not None else []
    waiting = dict(
        DeadLetter.objects.filter(pipeline_id=pipeline.pk, state__in=OPEN).values_list("output").annotate(n=Count("pk"))
    )
    client = redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    return [
        {
            "name": config["name"],
            "connector": config["connector"],
            "rate_limit": config.get("rate_limit"),
            "dead_letters": waiting.get(config["name"], 0),
            "breaker": breaker_shown(client, OutputKey(str(pipeline.pk), config["name"])),
        }
        for config in configs
    ]


def breaker_shown(client: redis.Redis, key: OutputKey) -> dict[str, Any]:
    """What the dashboard shows of a breaker; ``last_errors`` are newest first."""
    with client.pipeline(transaction=False) as batch:
        batch.hgetall(key.breaker)
        batch.lrange(key.errors, 0, ERRORS_SHOWN - 1)
        found, errors = batch.execute()
    return breaker_from(found, errors)


def breaker_from(found: dict[bytes, bytes], errors: list[bytes]) -> dict[str, Any]:
    """From the breaker's hash and its list of errors."""
    state = found.get(b"state", b"closed").decode()
    return {
        "state": state,
        "since": _time(found.get(b"since")),
        "until": _time(found.get(b"until")) if state != BreakerState.CLOSED else None,
        "cause": found.get(b"cause", b"").decode(errors="replace"),
        "last_errors": [
            {"at": _time(at), "message": message.decode(errors="replace")}
            for at, _, message in (entry.partition(b"|") for entry in errors)
        ],
    }


def _time(text: bytes | None) -> str | None:
    if not text or not float(text):
        return None
    return datetime.fromtimestamp(float(text), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
