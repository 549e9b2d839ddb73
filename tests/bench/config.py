"""``make bench-config``: the manager and the data plane with 50,000 pipelines, PostgreSQL and Redis of its own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tests.bench.machine import machine

RESULTS = Path(__file__).parent / "results/config.md"
PIPELINES = int(os.environ.get("PIPELINES", "50000"))
CHANGES = 20
IDLE_SECONDS = 65


def resident() -> float:
    """MiB of this process."""
    return psutil.Process().memory_info().rss / 2**20


async def data_plane() -> None:
    """One data-plane process: prints how long it took to start, and its memory before and after; then each change."""
    from backend.manager_api.client import ConfigClient

    before, began = resident(), time.perf_counter()
    client = ConfigClient(
        manager_address=os.environ["HEADRACE_MANAGER_ADDRESS"],
        service_token=os.environ["HEADRACE_SERVICE_TOKEN"],
        redis_url=os.environ["HEADRACE_REDIS_URL"],
    )
    await client.start(timeout=300)
    print(f"{time.perf_counter() - began} {before} {resident()} {client.connected}", flush=True)
    while pipeline := await asyncio.to_thread(sys.stdin.readline):
        pipeline_id, _, paused = pipeline.strip().partition(" ")
        while client.pipeline(pipeline_id).accepting == (paused == "True"):  # type: ignore[union-attr]
            await asyncio.sleep(0.001)
        print(time.time(), flush=True)


def measure() -> str:
    import django

    from tests import infra

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from backend.apps.connectors.secrets import create_keys_file
    from backend.apps.pipelines import services
    from tests import factories
    from tests.factories import make_pipelines

    create_keys_file(infra.VAR / "secrets/secret-keys.json")
    workspace = factories.make_workspace()
    actor = factories.admin_of(workspace)
    pipelines = make_pipelines(workspace, PIPELINES, transforms=[{"type": "set", "path": "note", "value": "x" * 300}])
    manager = subprocess.Popen([sys.executable, "manage.py", "manager_grpc"])
    process = psutil.Process(manager.pid)
    client = [sys.executable, "-m", "tests.bench.config", "data-plane"]
    readers = []
    starts = []
    try:
        time.sleep(60)  # the manager writes the snapshot
        written = process.cpu_times().user
        for _ in range(2):
            reader = subprocess.Popen(client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            readers.append(reader)
            assert reader.stdout is not None
            starts.append(reader.stdout.readline().split())
        latencies = []
        reader = readers[0]
        assert reader.stdin is not None
        assert reader.stdout is not None
        for pipeline in pipelines[:: PIPELINES // CHANGES][:CHANGES]:
            print(pipeline.pk, True, file=reader.stdin, flush=True)
            began = time.time()
            services.pipeline_pause(pipeline=pipeline, actor=actor)
            latencies.append(float(reader.stdout.readline()) - began)
        before = sum(process.cpu_times()[:2])
        time.sleep(IDLE_SECONDS)
        idle = (sum(process.cpu_times()[:2]) - before) / IDLE_SECONDS
        latencies.sort()
        rows = [
            ("start of a data-plane process", f"{float(starts[0][0]):.1f} s; the second {float(starts[1][0]):.1f} s"),
            ("its memory", f"{float(starts[0][1]):.0f} MiB before, {float(starts[0][2]):.0f} MiB after"),
            (
                "a change, from the click to the data plane",
                f"median {latencies[len(latencies) // 2] * 1000:.0f} ms, "
                f"longest of {CHANGES} {latencies[-1] * 1000:.0f} ms",
            ),
            ("the manager's memory", f"{process.memory_info().rss / 2**20:.0f} MiB"),
            ("the manager's CPU in its first minute, in which it writes the snapshot to Redis", f"{written:.0f} s"),
            ("cores that the manager uses while nothing changes", f"{idle:.3f}"),
        ]
    finally:
        for running in [*readers, manager]:
            running.terminate()
            running.wait(30)
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        f"# Configuration of {PIPELINES:,} pipelines\n\n`make bench-config`, {datetime.now(UTC):%Y-%m-%d}, "
        f"{machine()}.\n"
        "The machine was shared with other work. PostgreSQL and Redis ran on it too.\n\n"
        f"| | |\n|---|---|\n{table}\n"
    )


def main() -> None:
    if sys.argv[1:] == ["data-plane"]:
        asyncio.run(data_plane())
        return
    # Its ports and folders are those of this process; the data plane's process is given them.
    from backend.runtime import servers, stack
    from tests import infra

    data = infra.VAR / "postgresql"
    servers.postgresql_prepare(data, infra.PASSWORD)
    postgresql = infra.Server(
        "postgresql",
        servers.postgresql_command(data, infra.POSTGRESQL_PORT),
        lambda: stack.postgresql_ready(infra.DATABASE_URL),
        servers.postgresql_user(),
        signal.SIGINT,  # without waiting for connections to end
    )
    redis = infra.Server(
        "redis",
        servers.redis_command(infra.VAR / "redis", infra.REDIS_PORT),
        lambda: stack.redis_ready(infra.REDIS_URL),
    )
    try:
        postgresql.start()
        redis.start()
        text = measure()
    finally:
        redis.stop()
        postgresql.stop()
        infra.pytest_unconfigure()
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
