"""A table of PostgreSQL into Kafka, and a repeat that reads what is new."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.domain import routing
from tests.bench.connectors import peer
from tests.bench.connectors.platform import PEERS_TOPIC, SOURCE, Platform, running_slot, source_connection, until

TABLE = """
CREATE TABLE {table} (
    id bigint PRIMARY KEY, customer text NOT NULL, country text NOT NULL, total numeric(12, 2) NOT NULL,
    items int NOT NULL, paid boolean NOT NULL, created_at timestamptz NOT NULL, note text
)
"""
_ROWS = """
INSERT INTO {table}
SELECT n, 'Customer ' || n % 9973, (ARRAY['BR', 'PT', 'DE'])[1 + n % 3], (n % 100000) / 100.0, n % 7, n % 2 = 0,
    timestamptz '2026-01-01' + n * interval '1 second', 'says "hello", and more'
FROM generate_series({first}::bigint, {last}::bigint) AS n
"""
NEW_SHARE = 100
"""One in so many rows is new at the repeat."""


@dataclass
class Run:
    """``cpu`` is in seconds: of the engine, and of PostgreSQL and Kafka. ``peak`` is MiB of the engine."""

    engine: str
    rows: int
    seconds: float
    cpu: float
    servers_cpu: float
    peak: float

    @property
    def size(self) -> int:
        return self.rows


def compare(platform: Platform, binary: Path | None, rows: int, rounds: int) -> list[Run]:
    """In turns. A tenth of the rows is read first, which shows whether memory depends on the table's size."""
    runs: list[Run] = []
    for size, times in ((rows // 10, 1), (rows, rounds)):
        table = f"orders_{size}"
        make_table(table, size)
        for _ in range(times):
            runs += run_headrace(platform, table, size)
            if binary is not None:
                runs.append(run_peer(binary, platform, table, size))
            print(*runs[-3:], sep="\n", file=sys.stderr, flush=True)
        with source_connection() as connection:
            connection.execute(f"DROP TABLE {table}")
    return runs


def make_table(table: str, rows: int) -> None:
    with source_connection() as connection:
        connection.execute(TABLE.format(table=table))
        connection.execute(_ROWS.format(table=table, first=1, last=rows))
        # Neither engine is to wait for what PostgreSQL still has to write.
        connection.execute(f"VACUUM ANALYZE {table}")
        connection.execute("CHECKPOINT")


def run_headrace(platform: Platform, table: str, rows: int, **options: Any) -> tuple[Run, Run]:
    """The first load, and the repeat."""
    from backend.apps.manager.models import InputLease
    from backend.apps.pipelines.services import pipeline_publish
    from tests import factories

    workspace = factories.make_workspace()
    source = factories.make_connector(workspace, type="sql", **SOURCE)
    read = {
        "source": {"type": "table", "table": table},
        "mode": {"type": "incrementing", "column": "id"},
        **options,
    }
    pipeline = factories.make_pipeline(
        workspace, input={"type": "connector", "connector": str(source.pk), "options": read}
    )
    leases = InputLease.objects.filter(pipeline=pipeline)

    def batch(engine: str, rows: int) -> Run:
        """The batch that is offered now."""
        with slot.used() as used:
            before = platform.servers_cpu()
            until(lambda: leases.filter(last_rows=rows).exists())
        lease = leases.get()
        assert lease.failure == ""
        assert lease.last_began_at is not None
        assert lease.last_ended_at is not None
        seconds = (lease.last_ended_at - lease.last_began_at).total_seconds()
        return Run(engine, rows, seconds, used.cpu, platform.servers_cpu() - before, used.peak)

    new = max(1, rows // NEW_SHARE)
    with platform.appended(routing.INPUT, rows + new), running_slot("input") as slot:
        pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))
        first = batch("Headrace", rows)
        with source_connection() as connection:
            connection.execute(_ROWS.format(table=table, first=rows + 1, last=rows + new))
        slot.forget_peak()
        repeat = batch("Headrace, what is new", new)
        with source_connection() as connection:
            connection.execute(f"DELETE FROM {table} WHERE id > {rows}")
    leases.delete()
    return first, repeat


def run_peer(binary: Path, platform: Platform, table: str, rows: int) -> Run:
    before = platform.servers_cpu()
    with platform.appended(PEERS_TOPIC, rows):
        ran = peer.run(binary, peer.table_to_kafka(table, PEERS_TOPIC))
        used = platform.servers_cpu() - before
    return Run(peer.NAME, rows, ran.seconds, ran.cpu, used, ran.peak)
