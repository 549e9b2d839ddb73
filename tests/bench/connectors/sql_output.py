"""Messages of Kafka into a table of PostgreSQL, by its key."""

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from backend.domain import json, routing
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.stages import SYNDICATING
from backend.kafka.client.ends import end_offsets
from tests import infra
from tests.bench.connectors import peer
from tests.bench.connectors.platform import (
    PARTITIONS,
    PEERS_TOPIC,
    SOURCE,
    Measured,
    Platform,
    running_slot,
    source_connection,
    until,
)
from tests.bench.connectors.sql_input import TABLE
from tests.bench.topics import Filling, fill

_WRITES = 2
"""Of each row: all are inserted, and then all updated, since the peer refuses batches with two messages of one key."""
_BATCH_MESSAGES = 500
_CONNECTIONS = 4
_ANSWER_SECONDS = 60.0


@dataclass
class Run:
    """``rows`` are those that were written in the seconds, and ``size`` how many there were. ``cpu`` is in seconds: of
    the engine, and of PostgreSQL and Kafka. ``peak`` is MiB of the engine, and ``outdated`` the number of rows that are
    not as their last message has them."""

    engine: str
    size: int
    rows: int
    seconds: float
    cpu: float
    servers_cpu: float
    peak: float
    outdated: int = 0


def compare(platform: Platform, binary: Path | None, messages: int, rounds: int) -> list[Run]:
    """In turns."""
    runs: list[Run] = []
    for _ in range(rounds):
        runs.append(run_headrace(platform, messages))
        if binary is not None:
            runs.append(run_peer(binary, platform, messages))
        print(*runs[-2:], sep="\n", file=sys.stderr, flush=True)
    return runs


def run_headrace(platform: Platform, messages: int) -> Run:
    from backend.apps.pipelines.services import pipeline_publish
    from tests import factories

    workspace = factories.make_workspace()
    with _table() as table, platform.appended(routing.ADAPTED, messages):
        connector = factories.make_connector(workspace, type="sql", **SOURCE)
        options = {"table": table, "key": ["id"], "connections": _CONNECTIONS}
        batch = {"messages": _BATCH_MESSAGES, "seconds": 0.2}
        output = factories.output(connector, options=options, batch=batch, queue=_CONNECTIONS * _BATCH_MESSAGES)
        pipeline = factories.make_pipeline(workspace, outputs=[output])
        pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))
        done = _committed(SYNDICATING.group, routing.ADAPTED)
        fill(infra.KAFKA, routing.ADAPTED, _records(messages, str(pipeline.pk)))
        with running_slot("syndicating") as slot:
            run = _timed("Headrace", messages, done, slot, platform)
        run.outdated = _outdated(table, messages)
    assert run.outdated == 0
    return run


def run_peer(binary: Path, platform: Platform, messages: int) -> Run:
    group = f"peer-{uuid.uuid4().hex[:8]}"
    with _table() as table, platform.appended(PEERS_TOPIC, messages):
        done = _committed(group, PEERS_TOPIC)
        fill(infra.KAFKA, PEERS_TOPIC, _records(messages, ""))
        config = peer.topic_to_table(PEERS_TOPIC, group, table, _BATCH_MESSAGES, _CONNECTIONS)
        with peer.running(binary, config) as process:
            run = _timed(peer.NAME, messages, done, process, platform)
        run.outdated = _outdated(table, messages)
    return run


@contextmanager
def _table() -> Iterator[str]:
    table = f"written_{uuid.uuid4().hex[:8]}"
    with source_connection() as connection:
        connection.execute(TABLE.format(table=table))
        connection.execute("CHECKPOINT")
    yield table
    with source_connection() as connection:
        connection.execute(f"DROP TABLE {table}")


def _records(messages: int, pipeline: str) -> Iterator[Filling]:
    rows = messages // _WRITES
    for number in range(messages):
        write, row = divmod(number, rows)
        body = json.dumps(
            {
                "id": row,
                "customer": f"Customer {row % 9973}",
                "country": ("BR", "PT", "DE")[row % 3],
                "total": f"{row % 100_000 / 100:.2f}",
                "items": write,
                "paid": row % 2 == 0,
                "created_at": "2026-01-01T00:00:00Z",
                "note": 'says "hello", and more',
            }
        )
        key = str(row).encode()
        message = Message(new_message_id(), pipeline, 1, key, body, "application/json", utc_now(), ())
        yield Filling(body, key, message.headers())


def _committed(group: str, topic: str) -> Callable[[], int]:
    """How many messages of the topic the group has committed since now."""
    # An open transaction is not waited for. The admin client crashes while the group's coordinator is loading.
    config = {"bootstrap.servers": infra.KAFKA, "group.id": group, "isolation.level": "read_uncommitted"}
    consumer = Consumer(config)
    began = end_offsets(AdminClient({"bootstrap.servers": infra.KAFKA}), {topic})
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def committed() -> int:
        offsets = consumer.committed(partitions, _ANSWER_SECONDS)
        return sum(max(0, part.offset - began[topic, part.partition]) for part in offsets)

    return committed


def _timed(engine: str, messages: int, done: Callable[[], int], process: Measured, platform: Platform) -> Run:
    """From the first commit that is seen to the last."""
    until(lambda: done() > 0)
    first, began, servers_cpu = done(), time.monotonic(), platform.servers_cpu()
    with process.used() as used:
        until(lambda: done() >= messages)
    seconds, servers_cpu = time.monotonic() - began, platform.servers_cpu() - servers_cpu
    return Run(engine, messages, messages - first, seconds, used.cpu, servers_cpu, used.peak)


def _outdated(table: str, messages: int) -> int:
    """Checks that every row is there."""
    with source_connection() as connection:
        counts: Any = connection.execute(
            f"SELECT count(*), count(*) FILTER (WHERE items < {_WRITES - 1}) FROM {table}"
        ).fetchone()
    rows, outdated = counts
    assert rows == messages // _WRITES, f"There are {rows:,} rows."
    return int(outdated)
