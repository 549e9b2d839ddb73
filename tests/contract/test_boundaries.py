import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("backend.domain.pipeline", ("django", "pyspark", "redis", "grpc")),
        ("backend.ingest.app", ("django", "pyspark")),
        ("spark_jobs.streaming.lane", ("django", "pyspark")),
        ("spark_jobs.jobs.syndicating", ("django",)),
    ],
)
def test_importing_loads_nothing_forbidden(module: str, forbidden: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print(*sorted(set(sys.modules) & set({forbidden!r})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
