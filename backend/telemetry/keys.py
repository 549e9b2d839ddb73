"""The names of the Redis keys, shared by writers and readers."""

SECONDS_KEPT = 2 * 3600
HOURS_KEPT = 8 * 86400
ERRORS_KEPT = 50


def by_second(pipeline_id: str, minute: int) -> str:
    """Hash of one minute's counts; its fields are ``event|second`` (Unix time)."""
    return f"headrace:counts:second:{pipeline_id}:{minute}"


def by_hour(pipeline_id: str, hour: int) -> str:
    """Hash of one hour's counts; its fields are events."""
    return f"headrace:counts:hour:{pipeline_id}:{hour}"


def totals(pipeline_id: str) -> str:
    """Hash of all counts since the pipeline was created; its fields are events."""
    return f"headrace:counts:total:{pipeline_id}"


def errors(pipeline_id: str) -> str:
    """List of the latest errors as JSON, newest first."""
    return f"headrace:errors:{pipeline_id}"


def job_heartbeat(job: str) -> str:
    """JSON that a Spark application writes about itself every two seconds."""
    return f"headrace:job:{job}:heartbeat"


DEFAULT_JOB = "data-plane"
"""The job that runs all stages in one Spark application."""
