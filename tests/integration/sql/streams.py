"""Queries that run on Spark without the console: declarations and a query in, records in and out."""

import json
import re
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.parser import parse
from backend.domain.connect_sql.plans import Plan, Target, plan_of
from backend.domain.connect_sql.sources import Source, declared
from backend.kafka.client.producer import PARTITIONER
from backend.manager_api.sql import WantedQuery
from backend.settings import KafkaSettings
from spark_jobs.jobs.stream_sql import RunningQuery
from tests.infra import KAFKA
from tests.waiting import LIMIT_SECONDS, wait_until


class Streams:
    """Streams and tables, each on a topic of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.start = int(time.time() * 1000) - 60_000  # Kafka deletes what is older than its retention
        self._suffix = uuid.uuid4().hex[:8]
        self._producer = Producer({"bootstrap.servers": KAFKA, "partitioner": PARTITIONER})
        self._admin = AdminClient({"bootstrap.servers": KAFKA})
        self.sources: dict[str, Source] = {}

    def declare(self, text: str) -> None:
        """Each ``TOPIC`` is replaced by the name of a new topic."""
        for statement in parse(re.sub("TOPIC", lambda _: f"t-{uuid.uuid4().hex[:8]}", text)):
            assert isinstance(statement, s.Declare)
            source = declared(statement)
            self.sources[source.name] = source
            self._make(source.topic)

    def plan(self, text: str) -> Plan:
        [statement] = parse(text)
        assert isinstance(statement, s.CreateAs)
        query = statement.query
        reads = [self.sources[one.name] for one in (query.source, *(join.relation for join in query.joins))]
        topic = f"{statement.name}-{self._suffix}"
        plan, self.sources[statement.name] = plan_of(query, reads, Target(statement.kind, statement.name, topic))
        self._make(topic)
        return plan

    @contextmanager
    def running(self, text: str) -> Iterator[RunningQuery]:
        """Runs ``CREATE … AS SELECT`` meanwhile."""
        plan = self.plan(text)
        with self.plan_running(plan) as query:
            yield query

    @contextmanager
    def plan_running(self, plan: Plan) -> Iterator[RunningQuery]:
        query = RunningQuery(
            self._spark,
            KafkaSettings(bootstrap_servers=KAFKA),
            WantedQuery(plan.topic, 1, plan),
            str(self._folder / plan.topic),
        )
        try:
            yield query
        finally:
            query.stop()

    def write(self, name: str, key: Any, value: Any, at: int | None = None) -> None:
        """Texts and bytes are written as they are, other values as JSON; None is a tombstone. ``at`` is the record's
        time, in milliseconds after one that is the same for all."""
        source = self.sources[name]
        written_at = {} if at is None else {"timestamp": self.start + at}
        raw = None if value is None else value if isinstance(value, str | bytes) else json.dumps(value)
        if isinstance(key, int):
            key = struct.pack(">q", key)
        self._producer.produce(source.topic, key=key, value=raw, **written_at)  # type: ignore[arg-type]
        assert self._producer.flush(LIMIT_SECONDS) == 0

    def read(self, name: str) -> list[tuple[bytes | None, Any]]:
        """All records until now, with their values decoded."""
        topic = self.sources[name].topic
        consumer = Consumer(
            {
                "bootstrap.servers": KAFKA,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        records = []
        while (record := consumer.poll(LIMIT_SECONDS)) is not None and record.error() is None:
            value = record.value()
            records.append((record.key(), None if value is None else json.loads(value)))
        consumer.close()
        return records  # type: ignore[return-value]

    def wait_for(self, name: str, records: int) -> list[tuple[bytes | None, Any]]:
        """The records, once there are so many."""
        wait_until(lambda: len(self.read(name)) >= records, timeout=180, explain=lambda: self.read(name))
        return self.read(name)

    def _make(self, topic: str) -> None:
        for future in self._admin.create_topics([NewTopic(topic, 1, 1)]).values():
            future.result()
