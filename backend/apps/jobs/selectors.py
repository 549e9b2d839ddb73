"""Questions about jobs."""

from typing import Any

from backend.apps.jobs import spark
from backend.apps.jobs.models import SparkJob
from backend.apps.jobs.services import heartbeat


def job_stages(job: SparkJob) -> list[dict[str, Any]]:
    """Each stage and whether it is alive, by the application's last heartbeat."""
    said: dict[str, Any] = (heartbeat(job.name) or {}) if job.status == SparkJob.Status.RUNNING else {}
    return [{"name": name, "alive": False, **said.get("stages", {}).get(name, {})} for name in job.stages]


def adapting_offsets() -> dict[int, int]:
    """Where the adapting query was at its last checkpoint, by partition; empty when it does not run."""
    for job in SparkJob.objects.filter(stages__contains=["adapting"]):
        said: dict[str, Any] = heartbeat(job.name) or {}
        offsets = said.get("stages", {}).get("adapting", {}).get("offsets")
        if offsets:
            return {int(partition): int(offset) for partition, offset in offsets.items()}
    return {}


def job_log(job: SparkJob, lines: int) -> list[str]:
    return spark.log_tail(job.name, lines)
