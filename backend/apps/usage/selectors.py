"""Queries on usage."""

from datetime import UTC, datetime
from typing import Any

from django.db.models import Sum
from django.db.models.functions import TruncDay, TruncHour, TruncMinute

from backend.apps.pipelines.models import Pipeline
from backend.apps.usage.models import UsageMinute
from backend.apps.workspaces.models import Workspace

STEPS = {"minute": TruncMinute, "hour": TruncHour, "day": TruncDay}


def usage_of(
    workspace: Workspace, *, since: datetime, until: datetime, step: str, pipeline: Any = None, output: str = ""
) -> list[dict[str, Any]]:
    """Deliveries and bytes by period, pipeline and output, oldest first. Periods without any are left out."""
    minutes = UsageMinute.objects.filter(workspace_id=workspace.pk, minute__gte=since, minute__lt=until)
    if pipeline is not None:
        minutes = minutes.filter(pipeline_id=pipeline)
    if output:
        minutes = minutes.filter(output=output)
    rows = (
        minutes.annotate(period=STEPS[step]("minute"))
        .values("period", "pipeline_id", "output")
        .annotate(deliveries=Sum("deliveries"), bytes=Sum("bytes"))
        .order_by("period", "pipeline_id", "output")
    )
    names = dict(Pipeline.objects.filter(workspace=workspace).values_list("pk", "name"))
    return [{**row, "pipeline_name": names.get(row["pipeline_id"], "")} for row in rows]


def usage_this_month(workspace: Workspace) -> dict[str, Any]:
    """Deliveries and bytes since the month began (``since``), in UTC, as they are billed."""
    since = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    minutes = UsageMinute.objects.filter(workspace_id=workspace.pk, minute__gte=since)
    sums = minutes.aggregate(deliveries=Sum("deliveries", default=0), bytes=Sum("bytes", default=0))
    return {"since": since, "deliveries": int(sums["deliveries"]), "bytes": int(sums["bytes"])}
