"""Many pipelines and dead letters, as a workspace has them after years: with counts, errors and backlogs.

Run by ``manage.py shell`` within the installation.
"""

import json
import time
from datetime import UTC, datetime

from django.db import connection

from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import User, Workspace
from backend.apps.workspaces.services import workspace_create
from backend.network.redis_client import redis_client
from backend.telemetry import events, keys
from tests import factories
from tests.bench.lists import WORKSPACE
from tests.factories import make_letter, make_pipelines

_REASONS = "'http_500', 'http_503', 'timeout'"
_ERRORS = "'The receiver answered 500.', 'The receiver answered 503.', 'No answer within 10 seconds.'"


def write(pipelines: int, letters: int) -> None:
    """In a workspace of their own."""
    admin = User.objects.filter(is_superuser=True).earliest("pk")
    workspace = workspace_create(slug=WORKSPACE, name="Many", admin=admin)
    made = make_pipelines(workspace, pipelines, transforms=[{"type": "set", "path": "source", "value": "x" * 300}])
    Pipeline.objects.filter(pk__in=[pipeline.pk for pipeline in made[::10]]).update(paused=True)
    _letters(workspace, made, letters)
    _counts([str(pipeline.pk) for pipeline in made])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _letters(workspace: Workspace, pipelines: list[Pipeline], count: int) -> None:
    ids = ", ".join(f"'{pipeline.pk}'" for pipeline in pipelines)
    original = make_letter(pipelines[0])
    factories.copies(
        original,
        count - 1,
        pipeline_id=f"(ARRAY[{ids}]::uuid[])[1 + mod(n, {len(pipelines)})]",
        message_id="gen_random_uuid()::text",
        reason=f"(ARRAY[{_REASONS}])[1 + mod(n, 3)]",
        error=f"(ARRAY[{_ERRORS}])[1 + mod(n, 3)]",
        first_at="now() - make_interval(secs => n)",
        last_at="now() - make_interval(secs => n)",
    )


def _counts(pipelines: list[str]) -> None:
    """Of the last day, and the latest errors."""
    hour = int(time.time()) // 3600
    error = {"stage": "output out", "reason": "http_503", "message": "The receiver answered 503.", "message_id": "1"}
    entry = json.dumps(error | {"at": datetime.now(UTC).isoformat().replace("+00:00", "Z")})
    with redis_client().pipeline(transaction=False) as batch:
        for number, pipeline in enumerate(pipelines):
            for back in range(24):
                accepted = 1000 + (number * 37 + back * 211) % 900
                counts = {events.ACCEPTED: accepted, events.delivered("out"): accepted - 20, events.dead("out"): 15}
                batch.hset(keys.by_hour(pipeline, hour - back), mapping=counts)
            batch.lpush(keys.errors(pipeline), entry)
        batch.execute()
