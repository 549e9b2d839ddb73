"""Runs the queries of Connect SQL, each a Structured Streaming query of its own with its own checkpoint.

The manager says which queries are to run, and is told how they do. A query that fails is started again, after a growing
pause and from its checkpoint, without the others. There is no Python per row.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from backend.domain import limits
from backend.domain.connect_sql.joins import StreamJoin, TableJoin, TablesJoin
from backend.domain.connect_sql.plans import ROWS, Input, Plan
from backend.domain.connect_sql.sources import PSEUDO_COLUMNS
from backend.domain.connect_sql.types import quoted_name
from backend.domain.message import CONTENT_TYPE
from backend.domain.stages import STREAM_SQL
from backend.kafka.client.topic_limit import topic_limit
from backend.manager_api.jobs import ManagerUnavailableError
from backend.manager_api.sql import QueryClient, QueryReport, WantedQuery
from backend.settings import KafkaSettings, Settings
from spark_jobs.jobs.adapting import advance
from spark_jobs.kafka_options import kafka_options
from spark_jobs.running_stage import Driver, RunningStage
from spark_jobs.streaming.avro_rows import avro_as_json
from spark_jobs.streaming.kept_running import KeptRunning
from spark_jobs.streaming.table_join import IS_THERE, OF_TABLE, with_each_other, with_latest

log = logging.getLogger("spark_jobs")

_SYNC_SECONDS = 1.0
_STATE = "spark.sql.streaming.stateStore"
_SETTINGS = {
    # An expression that cannot be computed is NULL, and ends no query.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # A query keeps this number with its checkpoint.
    "spark.sql.shuffle.partitions": "2",
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A batch stores what has changed, and not the whole state.
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    # All queries share this memory.
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": "256",
}
_TRIGGER = "200 milliseconds"
_MOST_RECORDS = 1_000_000
"""Records of a stream in one batch."""
_BATCH_SECONDS = 120.0
"""A batch that takes longer may never end; so many records take less."""
_CORRUPT = "_corrupt"
_OBSERVED = "written"
_LEFT_OUT = "left_out"
_OVERHEAD_BYTES = 1024
"""Of a record in its batch, with the headers."""
_RECORD = ("key", "value", "timestamp", "partition", "offset", "headers")


def start_stage(driver: Driver) -> RunningStage:
    """Starts the queries that are wanted, and keeps to what is wanted until it is stopped."""
    queries = StreamSql(driver.spark, driver.environment, driver.checkpoint)
    queries.start()
    return RunningStage(queries.problem, queries.progress, queries.stop)


class StreamSql:
    """Keeps the wanted queries running until it is stopped."""

    def __init__(self, spark: SparkSession, environment: Settings, checkpoints: str) -> None:
        self._spark = spark
        self._kafka = environment.kafka
        self._checkpoints = checkpoints
        self._client = QueryClient(environment)
        self._queries: dict[str, RunningQuery] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=STREAM_SQL.name, daemon=True)
        self._unknown = ""

    def start(self) -> None:
        self._thread.start()

    def problem(self) -> str:
        failing = [query.wanted.id for query in list(self._queries.values()) if query.report().error]
        listed = f"{len(failing)} of {len(self._queries)} queries fail; SHOW QUERIES says why." if failing else ""
        return " ".join(filter(None, [self._unknown, listed]))

    def progress(self) -> dict[str, Any]:
        return {"queries": len(self._queries)}

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        swept = False
        while not self._stopped.is_set():
            try:
                wanted = {query.id: query for query in self._client.sync([q.report() for q in self._queries.values()])}
                self._unknown = ""
                self._apply(wanted)
                if not swept:
                    self._sweep(wanted)
                    swept = True
            except ManagerUnavailableError as error:
                self._unknown = "The manager does not say which queries are to run; those that run go on."
                log.warning("%s", error)
            except Exception:
                log.exception("The queries could not be compared with what is wanted.")
            self._stopped.wait(_SYNC_SECONDS)
        self._end(list(self._queries.values()))
        self._client.close()

    def _apply(self, wanted: dict[str, WantedQuery]) -> None:
        gone = [query for name, query in self._queries.items() if name not in wanted]
        changed = [
            query
            for name, query in self._queries.items()
            if name in wanted and wanted[name].revision != query.wanted.revision
        ]
        self._end([*gone, *changed])
        for query in [*gone, *changed]:
            del self._queries[query.wanted.id]
        for query in gone:
            self._delete(query.checkpoint)
        for name, plan in wanted.items():
            if name not in self._queries:
                self._queries[name] = RunningQuery(self._spark, self._kafka, plan, f"{self._checkpoints}/{name}")

    @staticmethod
    def _end(queries: "list[RunningQuery]") -> None:
        ending = [threading.Thread(target=query.stop) for query in queries]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    def _sweep(self, wanted: dict[str, WantedQuery]) -> None:
        """Deletes the checkpoints of queries that ended while this application did not run."""
        path, files = self._path(self._checkpoints)
        for status in files.listStatus(path) if files.exists(path) else []:
            if status.getPath().getName() not in wanted:
                files.delete(status.getPath(), True)

    def _delete(self, checkpoint: str) -> None:
        path, files = self._path(checkpoint)
        files.delete(path, True)

    def _path(self, name: str) -> tuple[Any, Any]:
        context = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(name)  # type: ignore[union-attr]
        return path, path.getFileSystem(context._jsc.hadoopConfiguration())  # type: ignore[union-attr]


class RunningQuery:
    """One query, started again whenever it fails."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings, wanted: WantedQuery, checkpoint: str) -> None:
        self.wanted = wanted
        self.checkpoint = checkpoint
        self._session = spark.newSession()
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)
        self._kafka = kafka
        self._query: StreamingQuery | None = None
        self._rested_at = time.monotonic()
        """When it was last seen between two batches, or in another one than before."""
        self._batch = -1
        self._stopped = threading.Event()
        self._kept = KeptRunning(f"query {wanted.id}", self._run, self._stopped)

    def stop(self) -> None:
        self._stopped.set()
        if self._query is not None:
            self._query.stop()
        self._kept.join()

    def report(self) -> QueryReport:
        query = self._query
        error = self._kept.error if self._kept.problem() else ""
        running = query is not None and query.isActive
        last = query.lastProgress if query is not None and running else None
        if query is not None and running:
            error = error or self._overdue(query, -1 if last is None else last["batchId"]) or self._left_out(last)
        if last is None:
            return QueryReport(self.wanted.id, self.wanted.revision, running, error, self._kept.failures)
        metrics = [source["metrics"] for source in last["sources"]]
        behind = sum(
            round(float(one.get("avgOffsetsBehindLatest", 0)) * len(offsets))
            for one, offsets in zip(metrics, map(_partitions, last["sources"]), strict=True)
        )
        state = last["stateOperators"]
        return QueryReport(
            id=self.wanted.id,
            revision=self.wanted.revision,
            running=running,
            error=error,
            failures=self._kept.failures,
            rows_per_second=float(last["processedRowsPerSecond"] or 0),
            behind=behind,
            state_rows=sum(one["numRowsTotal"] for one in state),
            state_bytes=sum(one["memoryUsedBytes"] for one in state),
        )

    def _overdue(self, query: StreamingQuery, batch: int) -> str:
        """What to say of a batch that does not end; ``batch`` is the last one that has ended."""
        if batch != self._batch or not query.status["isTriggerActive"]:
            self._batch, self._rested_at = batch, time.monotonic()
        seconds = time.monotonic() - self._rested_at
        return f"It has ended no batch for {seconds:.0f} s." if seconds > _BATCH_SECONDS else ""

    def _left_out(self, last: StreamingQueryProgress | None) -> str:
        observed = last["observedMetrics"].get(_OBSERVED) if last is not None else None
        rows = observed[_LEFT_OUT] if observed is not None else 0
        return f"{rows:,} rows of the last batch are larger than their topic takes and were left out." if rows else ""

    def _run(self) -> None:
        """Raises StreamingQueryException when it fails."""
        self._rested_at = time.monotonic()
        self._query = query = start(self._session, self._kafka, self.wanted, self.checkpoint)
        if self._stopped.is_set():
            query.stop()
        query.awaitTermination()


def start(session: SparkSession, kafka: KafkaSettings, wanted: WantedQuery, checkpoint: str) -> StreamingQuery:
    plan = wanted.plan
    read: Callable[[Input], DataFrame] = lambda one: records(session, kafka, one)  # noqa: E731
    rows(session, plan, read).createOrReplaceTempView(ROWS)
    return (
        written(session.sql(plan.select), plan, _most_bytes(kafka, plan))
        .writeStream.format("kafka")
        .queryName(wanted.id)
        .options(**kafka_options(kafka))
        .option("kafka.max.request.size", str(limits.TOPIC_BYTES))
        .option("kafka.compression.type", "lz4")
        .option("includeHeaders", "true")
        .option("checkpointLocation", checkpoint)
        .outputMode(plan.mode)
        .trigger(processingTime=_TRIGGER)
        .start()
    )


def records(session: SparkSession, kafka: KafkaSettings, read: Input) -> DataFrame:
    """The topic as a stream of records."""
    reader = (
        session.readStream.format("kafka")
        .options(**kafka_options(kafka))
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.fetch.max.wait.ms", "10")
        .option("subscribe", read.topic)
        .option("startingOffsets", _starting_offsets(read))
        .option("failOnDataLoss", "false")
        .option("includeHeaders", "true")
    )
    if not read.is_table:
        reader = reader.option("maxOffsetsPerTrigger", str(_MOST_RECORDS))
    return reader.load()


def _starting_offsets(read: Input) -> str:
    if read.starts is not None:
        return json.dumps({read.topic: read.starts})
    return "earliest" if read.from_beginning else "latest"


def rows(session: SparkSession, plan: Plan, read: Callable[[Input], DataFrame]) -> DataFrame:
    """What the plan's SELECT reads; see ROWS. ``read`` gives an input's records."""
    first = plan.inputs[0]
    if plan.stream_join is not None:
        return near_each_other(plan, plan.stream_join, read)
    if plan.tables_join is not None:
        return with_counterparts(plan, plan.tables_join, read)
    made = decoded(read(first), first)
    if not first.is_table:
        made = made.where("alive")
    structs = [quoted_name(first.alias)]
    record = ["key", "headers"]
    if plan.join is not None:
        second = plan.inputs[1]
        made = joined(made, decoded(read(second), second), plan.join)
        made = decoded(made, first)
        of_table = [f"{OF_TABLE}{name} AS {name}" for name in _RECORD]
        of_stream = [f"{name} AS stream_{name}" for name in record]
        made = decoded(made.selectExpr(*structs, *of_stream, *of_table), second, optional=True)
        record = [f"stream_{name} AS {name}" for name in record]
        structs.append(quoted_name(second.alias))
    made = made.selectExpr(
        *[*structs, *record, "alive"],
        *[f"{structs[0]}.{name} AS {name}" for name in PSEUDO_COLUMNS],
        f"{first.time} AS event_time",
    )
    if plan.late_milliseconds is not None:
        made = made.withWatermark("event_time", f"{plan.late_milliseconds} milliseconds")
    return made


def near_each_other(plan: Plan, join: StreamJoin, read: Callable[[Input], DataFrame]) -> DataFrame:
    """The rows of two streams with the same key whose times are near each other. A row without a key has no
    counterpart, and is left out."""
    first, second = plan.inputs

    def side(one: Input, prefix: str, key: str, *kept: str) -> DataFrame:
        rows = decoded(read(one), one).where("alive")
        named = [quoted_name(one.alias), f"{key} AS {prefix}_key", f"{one.time} AS {prefix}_time", *kept]
        keyed = rows.selectExpr(*named).where(f"{prefix}_key IS NOT NULL")
        return keyed.withWatermark(f"{prefix}_time", f"{join.late} milliseconds")

    left = side(first, "left", join.left_key, "key", "headers")
    right = side(second, "right", join.right_key)
    near = (
        f"left_key = right_key AND right_time >= left_time - INTERVAL {join.before} MILLISECONDS "
        f"AND right_time <= left_time + INTERVAL {join.after} MILLISECONDS"
    )
    structs = [quoted_name(one.alias) for one in plan.inputs]
    return left.join(right, F.expr(near), join.kind).selectExpr(
        *structs,
        "key",
        "headers",
        "true AS alive",
        *[f"coalesce({structs[0]}.{name}, {structs[1]}.{name}) AS {name}" for name in PSEUDO_COLUMNS],
        "greatest(left_time, right_time) AS event_time",
    )


def with_counterparts(plan: Plan, join: TablesJoin, read: Callable[[Input], DataFrame]) -> DataFrame:
    """What becomes of the rows of two tables with the same key. Records without a key are left out."""
    first, second = plan.inputs
    of_first = _keyed(decoded(read(first), first), join.left_key, is_table=False)
    of_second = _keyed(decoded(read(second), second), join.right_key, is_table=True)
    both = of_first.union(of_second).where("join_key IS NOT NULL")
    keeps_first, keeps_second = (join.kind in (kind, "FULL") for kind in ("LEFT", "RIGHT"))
    made = with_each_other(both, keeps_first=keeps_first, keeps_second=keeps_second)
    structs = [quoted_name(one.alias) for one in plan.inputs]
    of_table = [f"{OF_TABLE}{name} AS {name}" for name in _RECORD]
    made = decoded(made, first, optional=True).selectExpr(structs[0], IS_THERE, *of_table)
    return decoded(made, second, optional=True).selectExpr(
        *structs,
        "key",
        "headers",
        f"{IS_THERE} AS alive",
        *[f"coalesce({structs[0]}.{name}, {structs[1]}.{name}) AS {name}" for name in PSEUDO_COLUMNS],
        "CAST(NULL AS TIMESTAMP) AS event_time",
    )


def joined(stream: DataFrame, table: DataFrame, join: TableJoin) -> DataFrame:
    """The stream's records, with the table's record that was the latest for their key. A row without a key has none."""
    # No key of a table is empty.
    of_stream = _keyed(stream, join.stream_key, is_table=False).fillna("", ["join_key"])
    of_table = _keyed(table, join.table_key, is_table=True).where("join_key IS NOT NULL")
    return with_latest(of_stream.union(of_table), keeps_unmatched=join.keeps_unmatched)


def _keyed(records: DataFrame, key: str, *, is_table: bool) -> DataFrame:
    """As the joins of table_join.py expect them."""
    fields = [one if one != "value" else "raw AS value" for one in _RECORD]
    return records.selectExpr(f"concat('=', {key}) AS join_key", f"{is_table} AS is_table", *fields)


def decoded(records: DataFrame, read: Input, *, optional: bool = False) -> DataFrame:
    """The records with their row as a struct named as the input's alias. Records that cannot be read are left out.
    The value as it was is ``raw``. If the record is ``optional``, the struct is NULL where there is none; a record of
    a table has a key."""
    corrupt = f"{read.value_type.removesuffix('>')}, {_CORRUPT}: STRING>"
    text = F.col("value").cast("string")
    if read.value_format == "AVRO":
        text = F.udf(avro_as_json, "string", useArrow=False)("value")
    row = F.expr(read.row)
    value = F.from_json(text, corrupt, {"columnNameOfCorruptRecord": _CORRUPT})
    return (
        records.withColumn("alive", F.col("value").isNotNull())
        .withColumn("raw", F.col("value"))
        .withColumn("value", value)
        .where(F.col("value").isNull() | F.col(f"value.{_CORRUPT}").isNull())
        .withColumn(read.alias, F.when(F.col("key").isNotNull(), row) if optional else row)
    )


def _most_bytes(kafka: KafkaSettings, plan: Plan) -> int:
    """What the plan's topic takes, as far as it is known."""
    limit = None
    if not plan.onward:
        with contextlib.suppress(KafkaException):
            limit = topic_limit(AdminClient({**kafka.client(), "log_level": 0}), plan.topic)
    return min(limit or limits.TOPIC_BYTES, limits.TOPIC_BYTES) - _OVERHEAD_BYTES


def written(result: DataFrame, plan: Plan, most_bytes: int) -> DataFrame:
    """The result as records, of the target topic, where those that are larger than ``most_bytes`` are left out and
    counted, or of the next one of their routing slips. Kafka would refuse a larger one again and again, and no row
    would follow."""
    records = result.withColumn("value", F.to_json("value", {"ignoreNullFields": "false"}).cast("binary"))
    if not plan.onward:
        sizes = [F.coalesce(F.octet_length(part), F.lit(0)) for part in ("key", "value")]
        fits = sizes[0] + sizes[1] <= most_bytes
        counted = records.observe(_OBSERVED, F.count(F.when(~fits, 1)).alias(_LEFT_OUT))
        return counted.where(fits).withColumn("topic", F.lit(plan.topic))
    content_type = F.struct(F.lit(CONTENT_TYPE).alias("key"), F.lit("application/json").cast("binary").alias("value"))
    headers = F.transform("headers", lambda one: F.when(one["key"] == CONTENT_TYPE, content_type).otherwise(one))
    return advance(records.withColumn("headers", headers), STREAM_SQL)


def _partitions(source: Any) -> dict[str, Any]:
    offsets = json.loads(source["endOffset"] or "{}")
    return next(iter(offsets.values()), {}) if isinstance(offsets, dict) else {}
