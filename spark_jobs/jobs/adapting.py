"""Adapting for pipelines without transforms: forwards each record to the next topic of its routing
slip. Structured Streaming in real-time mode with native expressions only, which takes milliseconds
per message and runs no Python per row."""

import json
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from backend.domain import limits, routing
from backend.domain import message as names
from backend.domain.reasons import Reason
from backend.domain.stages import ADAPTING, Stage
from backend.kafka.client.ends import end_offsets, first_offsets
from backend.manager_api.jobs import Loss
from backend.settings import KafkaSettings
from spark_jobs.kafka_options import kafka_options
from spark_jobs.running_stage import Driver, RunningStage
from spark_jobs.streaming.kept_running import KeptRunning

log = logging.getLogger("spark_jobs")

_LOOK_SECONDS = 2
_OVERDUE_LOOK_SECONDS = 5.0
_BATCH_END_SECONDS = 15.0
"""How long the end of a batch usually takes at most; then everybody is told."""
_STUCK_SECONDS = 30.0
"""After this it is stuck, and the query is started again."""

_KAFKA_SECONDS = 10.0


def start_stage(driver: Driver) -> RunningStage:
    """Starts the query, and keeps it running until it is stopped."""
    query = Adapting(
        driver.spark,
        kafka=driver.environment.kafka,
        checkpoint=driver.checkpoint,
        batch_seconds=driver.batch_seconds,
        lost=driver.lost,
    )
    kept = KeptRunning(ADAPTING.name, query.run, query.stopped)

    def end() -> None:
        query.stop()
        kept.join()

    return RunningStage(lambda: kept.problem() or query.problem(), query.progress, end)


class StuckError(Exception):
    """The query runs and forwards nothing."""


class Position:
    """Keeps the query's position in Kafka as well, as its stage's consumer group: a query whose checkpoint was lost
    goes on from there instead of repeating everything that Kafka has. The delivered ledger relies on it too."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._consumer = Consumer({**kafka.client(), "group.id": ADAPTING.group, "enable.auto.commit": False})
        self._batch = -1

    def keep(self, query: StreamingQuery) -> None:
        """Commits where the last checkpoint is, once for each. Does not wait for Kafka."""
        last = query.lastProgress
        if last is None or last["batchId"] == self._batch:
            return
        self._batch = last["batchId"]
        parts = [TopicPartition(routing.INPUT, int(part), offset) for part, offset in _end_offsets(last).items()]
        if parts:
            self._consumer.commit(offsets=parts, asynchronous=True)

    def kept(self) -> dict[int, int]:
        """The offset of each partition that was kept. Raises KafkaException."""
        topic = self._consumer.list_topics(routing.INPUT, _KAFKA_SECONDS).topics[routing.INPUT]
        parts = [TopicPartition(routing.INPUT, part) for part in topic.partitions]
        return {
            part.partition: part.offset for part in self._consumer.committed(parts, _KAFKA_SECONDS) if part.offset >= 0
        }


class Adapting:
    """The query, and what is noticed about it. It needs one task slot per partition of ``firehose_input``.

    ``batch_seconds``, at least 5, is the time between two checkpoints. Each checkpoint pauses reading for some 150 ms;
    after a kill, everything since the last one is forwarded again. ``lost`` is called with messages that Kafka deleted
    before they were read.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        kafka: KafkaSettings,
        checkpoint: str,
        batch_seconds: int,
        lost: Callable[[Loss], None],
    ) -> None:
        self.stopped = threading.Event()
        self._spark = spark
        self._kafka = kafka
        self._checkpoint = checkpoint
        self._batch_seconds = batch_seconds
        self._query: StreamingQuery | None = None
        self._observer = Observer(kafka, batch_seconds, lost)
        self._position = Position(kafka)

    def run(self) -> None:
        """Runs the query until it is stopped. Raises StreamingQueryException when it fails, and StuckError."""
        checkpoint, starting = self._start()
        records = advance(read(self._spark, self._kafka, starting))
        self._query = query = write(records, self._kafka, checkpoint, self._batch_seconds)
        while not query.awaitTermination(_LOOK_SECONDS):
            self._position.keep(query)
            self._observer.look(query)
            if self._observer.is_stuck:
                query.stop()
                raise StuckError(self._observer.problem)

    def _start(self) -> tuple[str, str]:
        """The checkpoint to go on from, and Spark's starting offsets, which count only for a new checkpoint.

        In real-time mode a position that retention has overtaken fails the query, whatever its options, and a
        checkpoint cannot be moved. So the query then begins a new one at the earliest messages that are left. Raises
        KafkaException.
        """
        number, positions = _newest_checkpoint(self._spark, self._checkpoint)
        starts = self._observer.starts(positions or self._position.kept())
        if not positions:
            return _numbered(self._checkpoint, number), json.dumps({routing.INPUT: starts})
        if starts == {part: positions.get(part, first) for part, first in starts.items()}:
            return _numbered(self._checkpoint, number), "earliest"
        return _numbered(self._checkpoint, number + 1), json.dumps({routing.INPUT: starts})

    def problem(self) -> str:
        return self._observer.problem

    def progress(self) -> dict[str, Any]:
        return progress(self._query) if self._query is not None else {}

    def stop(self) -> None:
        self.stopped.set()
        if self._query is not None:
            stop(self._query, kafka=self._kafka, batch_seconds=self._batch_seconds)


class Observer:
    """Compares the query's positions with what Kafka has, after each batch and while one is overdue.

    In real-time mode a partition without a task slot is silently never read, while the query stays active.
    """

    def __init__(self, kafka: KafkaSettings, batch_seconds: int, lost: Callable[[Loss], None]) -> None:
        self.problem = ""
        self._admin = AdminClient({**kafka.client(), "log_level": 0})
        self.is_stuck = False
        self._batch_seconds = batch_seconds
        self._lost = lost
        self._batch = -1
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._waiting_since: float | None = None
        self._looked = 0.0

    def starts(self, positions: dict[int, int]) -> dict[int, int]:
        """Where the query can begin, given the positions in its checkpoint. Reports what was lost. Raises
        KafkaException."""
        firsts = {part: first for (_, part), first in first_offsets(self._admin, {routing.INPUT}).items()}
        ends = {part: end for (_, part), end in end_offsets(self._admin, {routing.INPUT}).items()}
        starts = dict(firsts)
        for part, position in positions.items():
            if part not in firsts or position > ends[part]:
                log.error(
                    "The topic %s was created again: its partition %d is read from the start.", routing.INPUT, part
                )
            elif position < firsts[part]:
                self._lost(Loss(ADAPTING.name, part, position, firsts[part] - position))
            else:
                starts[part] = position
        self._positions, self._ends, self._waiting_since = starts, {}, None
        self.is_stuck = False
        return starts

    def look(self, query: StreamingQuery) -> None:
        ended = _finished_batch(query) != self._batch
        if not ended and time.monotonic() - self._looked < _OVERDUE_LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        last = query.lastProgress
        positions = {int(part): at for part, at in _end_offsets(last).items()} if last is not None else self._positions
        try:
            ends = {part: end for (_, part), end in end_offsets(self._admin, {routing.INPUT}).items()}
        except KafkaException as error:
            log.warning("The query's progress is unknown: %s", error.args[0].str())
            return
        self.compare(_finished_batch(query), positions, ends)

    def compare(self, batch: int, positions: dict[int, int], ends: dict[int, int]) -> None:
        """The positions after the last batch that ended, and the partitions' ends now."""
        now = time.monotonic()
        waiting = [part for part, end in ends.items() if end > positions.get(part, 0)]
        if batch != self._batch:
            starving = [
                part
                for part in waiting
                if self._ends.get(part, 0) > positions.get(part, 0) == self._positions.get(part, 0)
            ]
            self.problem = (
                f"{ADAPTING.name} does not read partition {', '.join(map(str, sorted(starving)))} of {routing.INPUT}: "
                "Spark has too few task slots (HEADRACE_SPARK_MASTER)."
                if starving
                else ""
            )
            self._batch, self._positions, self._ends = batch, positions, ends
            self._waiting_since = None
        if not waiting:
            self._waiting_since = None
            return
        self._waiting_since = self._waiting_since or now
        overdue = now - self._waiting_since - self._batch_seconds
        self.is_stuck = overdue > _STUCK_SECONDS
        if overdue > _BATCH_END_SECONDS:
            self.problem = (
                f"{ADAPTING.name} has ended no batch for {now - self._waiting_since:.0f} s although messages wait."
            )


def _numbered(checkpoint: str, number: int) -> str:
    """The folder of a checkpoint; each loss of messages begins the next one."""
    return f"{checkpoint}-{number}" if number else checkpoint


def _newest_checkpoint(spark: SparkSession, checkpoint: str) -> tuple[int, dict[int, int]]:
    """The number of the newest checkpoint that was written, and its positions."""
    number, positions = 0, _positions(spark, checkpoint)
    while later := _positions(spark, _numbered(checkpoint, number + 1)):
        number, positions = number + 1, later
    return number, positions


def _positions(spark: SparkSession, checkpoint: str) -> dict[int, int]:
    """The positions in a checkpoint; empty before one was written."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path
    files = path(checkpoint).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # type: ignore[union-attr]
    commits = path(f"{checkpoint}/commits")
    names = [status.getPath().getName() for status in files.listStatus(commits)] if files.exists(commits) else []
    committed = [int(name) for name in names if name.isdecimal()]
    if not committed:
        return {}
    stream = files.open(path(f"{checkpoint}/offsets/{max(committed)}"))
    try:
        content = str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
    return {int(part): at for part, at in _offsets(content.splitlines()[-1]).items()}


def read(spark: SparkSession, kafka: KafkaSettings, starting: str = "earliest") -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .options(**kafka_options(kafka))
        .option("subscribe", routing.INPUT)
        .option("startingOffsets", starting)
        .option("includeHeaders", "true")
        # What was lost is reported, and must not end the query.
        .option("failOnDataLoss", "false")
        .load()
    )


def advance(records: DataFrame, stage: Stage = ADAPTING) -> DataFrame:
    """Each record with the next topic of its slip and the slip shortened by it.

    A record without a usable slip, or with a body that no message may have, goes to the dead letters, with its cause
    in the headers.
    """
    slip = F.try_element_at(F.filter("headers", lambda header: header["key"] == names.ROUTING_SLIP), F.lit(1))[
        "value"
    ].cast("string")
    next_topic = F.substring_index(slip, ",", 1)
    known = F.coalesce(next_topic.isin(*stage.next), F.lit(False))
    # A producer with other settings may have written what this query's producer refuses, which would end the query.
    fits = F.coalesce(F.octet_length("value") + F.coalesce(F.octet_length("key"), F.lit(0)), F.lit(0)) <= (
        limits.BODY_BYTES + limits.KEY_BYTES
    )
    malformed = _with_cause(stage, Reason.MALFORMED, "The record has no routing slip that names a known topic.")
    too_large = _with_cause(stage, Reason.TOO_LARGE, f"The record's body is larger than {limits.BODY_BYTES:,} bytes.")
    return records.select(
        F.when(fits, F.col("key")).otherwise(F.substring("key", 1, limits.KEY_BYTES)).alias("key"),
        F.when(fits, F.col("value")).otherwise(F.substring("value", 1, limits.BODY_BYTES)).alias("value"),
        F.when(known & fits, next_topic).otherwise(F.lit(routing.DEAD_LETTER)).alias("topic"),
        F.when(known & fits, _shortened(slip)).when(fits, malformed).otherwise(too_large).alias("headers"),
    )


def _shortened(slip: Column) -> Column:
    rest = F.regexp_replace(slip, "^[^,]*,?", "")
    return F.transform(
        "headers",
        lambda header: F.when(
            header["key"] == names.ROUTING_SLIP,
            F.struct(header["key"].alias("key"), rest.cast("binary").alias("value")),
        ).otherwise(header),
    )


def _with_cause(stage: Stage, reason: Reason, error: str) -> Column:
    cause = {names.DEAD_STAGE: stage.name, names.DEAD_REASON: str(reason), names.DEAD_ERROR: error}
    headers = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
    return F.concat(
        F.transform(
            headers,
            lambda header: F.struct(
                header["key"].alias("key"), F.substring(header["value"], 1, limits.HEADER_BYTES).alias("value")
            ),
        ),
        F.array(*(F.struct(F.lit(k).alias("key"), F.lit(v).cast("binary").alias("value")) for k, v in cause.items())),
    )


def write(records: DataFrame, kafka: KafkaSettings, checkpoint: str, batch_seconds: int) -> StreamingQuery:
    writer = (
        records.writeStream.format("kafka")
        .queryName(ADAPTING.name)
        .options(**kafka_options(kafka))
        .option("kafka.max.request.size", str(limits.TOPIC_BYTES))
        .option("kafka.linger.ms", "1")
        .option("kafka.compression.type", "lz4")
        .option("includeHeaders", "true")
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
    )
    # PySpark's type annotations lack this trigger.
    query: StreamingQuery = writer.trigger(realTime=f"{batch_seconds} seconds").start()  # type: ignore[call-overload]
    return query


def progress(query: StreamingQuery) -> dict[str, Any]:
    """The query's progress at the end of its last batch, for the heartbeat; empty before a batch has ended."""
    last = query.lastProgress
    if last is None:
        return {}
    source, offsets = last["sources"][0], _end_offsets(last)
    behind = source["metrics"].get("avgOffsetsBehindLatest")
    began = datetime.fromisoformat(last["timestamp"]).timestamp()
    return {
        "rows_per_second": last["processedRowsPerSecond"],
        "offsets": offsets,
        "behind": None if behind is None else round(float(behind) * len(offsets)),
        "ended_at": began + last["durationMs"]["triggerExecution"] / 1000,
    }


def stop(query: StreamingQuery, *, kafka: KafkaSettings, batch_seconds: int) -> None:
    """Stops the query so that no record is forwarded twice: at once when the current batch has forwarded nothing
    yet, otherwise at the end of that batch."""
    deadline = time.monotonic() + 2 * batch_seconds
    running = _finished_batch(query)
    idle = _has_read_all(query, kafka)
    while not idle and query.isActive and _finished_batch(query) == running and time.monotonic() < deadline:
        time.sleep(0.01)
    query.stop()


def _has_read_all(query: StreamingQuery, kafka: KafkaSettings) -> bool:
    """Whether no records have arrived since the last batch ended."""
    last = query.lastProgress
    if last is None:
        return False
    try:
        ends = end_offsets(AdminClient(kafka.client()), {routing.INPUT})
    except KafkaException:
        return False
    return _end_offsets(last) == {str(partition): end for (_, partition), end in ends.items()}


def _end_offsets(ended: StreamingQueryProgress) -> dict[str, int]:
    """By partition, in Spark's notation."""
    return _offsets(ended["sources"][0]["endOffset"] or "{}")


def _offsets(text: str) -> dict[str, int]:
    offsets: dict[str, int] = json.loads(text).get(routing.INPUT, {})
    return offsets


def _finished_batch(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])
