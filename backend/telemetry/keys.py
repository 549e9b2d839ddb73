"""The names of the Redis keys, shared by writers and readers."""

from backend.domain.stages import Application

SECONDS_KEPT = 2 * 3600
HOURS_KEPT = 8 * 86400
ERRORS_KEPT = 50
UNUSED_KEPT = 30 * 86400
"""Seconds after the last write; so the state of a deleted pipeline goes too."""


def by_second(pipeline_id: str, minute: int) -> str:
    """Hash of one minute's counts; its fields are ``event|second`` (Unix time)."""
    return f"headrace:counts:second:{pipeline_id}:{minute}"


def by_hour(pipeline_id: str, hour: int) -> str:
    """Hash of one hour's counts; its fields are events."""
    return f"headrace:counts:hour:{pipeline_id}:{hour}"


def totals(pipeline_id: str) -> str:
    """Hash of all counts; its fields are events. It begins anew after UNUSED_KEPT without counts."""
    return f"headrace:counts:total:{pipeline_id}"


def errors(pipeline_id: str) -> str:
    """List of the latest errors as JSON, newest first; kept for UNUSED_KEPT."""
    return f"headrace:errors:{pipeline_id}"


HEARTBEAT_KEPT_SECONDS = 3600


def job_heartbeat(job: str) -> str:
    """JSON that a Spark application writes about itself every two seconds. It expires HEARTBEAT_KEPT_SECONDS after
    it was written, so its time to live tells its age by Redis's own clock."""
    return f"headrace:job:{job}:heartbeat"


DEFAULT_JOB = Application.DATA_PLANE.value
"""The job that runs all stages in one Spark application."""
