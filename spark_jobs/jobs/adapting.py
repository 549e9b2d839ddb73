"""Adapting for pipelines without transforms: forwards each record to the next topic of its routing
slip. Structured Streaming in real-time mode with native expressions only, which takes milliseconds
per message and runs no Python per row."""

import json
import time
from datetime import datetime
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from backend.domain import message as names
from backend.domain import routing
from backend.domain.reasons import Reason
from backend.domain.stages import ADAPTING
from backend.kafka.client.ends import end_offsets


def start(spark: SparkSession, *, bootstrap_servers: str, checkpoint: str, batch_seconds: int) -> StreamingQuery:
    """Starts the query. It needs one task slot per partition of ``firehose_input``.

    ``batch_seconds``, at least 5, is the time between two checkpoints. Each checkpoint pauses reading for some 150 ms;
    after a kill, everything since the last one is forwarded again.
    """
    return write(advance(read(spark, bootstrap_servers)), bootstrap_servers, checkpoint, batch_seconds)


def read(spark: SparkSession, bootstrap_servers: str) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", routing.INPUT)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )


def advance(records: DataFrame) -> DataFrame:
    """Each record with the next topic of its slip and the slip shortened by it.

    A record without a usable slip goes to the dead letters, with its cause in the headers.
    """
    slip = F.try_element_at(F.filter("headers", lambda header: header["key"] == names.ROUTING_SLIP), F.lit(1))[
        "value"
    ].cast("string")
    next_topic = F.substring_index(slip, ",", 1)
    known = F.coalesce(next_topic.isin(*ADAPTING.next), F.lit(False))
    return records.select(
        "key",
        "value",
        F.when(known, next_topic).otherwise(F.lit(routing.DEAD_LETTER)).alias("topic"),
        F.when(known, _shortened(slip)).otherwise(_with_cause()).alias("headers"),
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


def _with_cause() -> Column:
    cause = {
        names.DEAD_STAGE: ADAPTING.name,
        names.DEAD_REASON: str(Reason.MALFORMED),
        names.DEAD_ERROR: "The record has no routing slip that names a known topic.",
    }
    return F.concat(
        F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>")),
        F.array(*(F.struct(F.lit(k).alias("key"), F.lit(v).cast("binary").alias("value")) for k, v in cause.items())),
    )


def write(records: DataFrame, bootstrap_servers: str, checkpoint: str, batch_seconds: int) -> StreamingQuery:
    writer = (
        records.writeStream.format("kafka")
        .queryName(ADAPTING.name)
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.max.request.size", str(4 * 1024 * 1024))
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


def stop(query: StreamingQuery, *, bootstrap_servers: str, batch_seconds: int) -> None:
    """Stops the query so that no record is forwarded twice: at once when the current batch has forwarded nothing
    yet, otherwise at the end of that batch."""
    deadline = time.monotonic() + 2 * batch_seconds
    running = _finished_batch(query)
    idle = _has_read_all(query, bootstrap_servers)
    while not idle and query.isActive and _finished_batch(query) == running and time.monotonic() < deadline:
        time.sleep(0.01)
    query.stop()


def _has_read_all(query: StreamingQuery, bootstrap_servers: str) -> bool:
    """Whether no records have arrived since the last batch ended."""
    last = query.lastProgress
    if last is None:
        return False
    try:
        ends = end_offsets(AdminClient({"bootstrap.servers": bootstrap_servers}), {routing.INPUT})
    except KafkaException:
        return False
    return _end_offsets(last) == {str(partition): end for (_, partition), end in ends.items()}


def _end_offsets(ended: StreamingQueryProgress) -> dict[str, int]:
    """By partition, in Spark's notation."""
    offsets: dict[str, int] = json.loads(ended["sources"][0]["endOffset"] or "{}").get(routing.INPUT, {})
    return offsets


def _finished_batch(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])
