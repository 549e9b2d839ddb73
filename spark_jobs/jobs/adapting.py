"""Adapting for pipelines without transforms: moves each record to the next topic of its routing
slip. Structured Streaming in real-time mode, native expressions only: milliseconds per message
and no Python per row."""

import time

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from backend.domain import message as names
from backend.domain import routing

STAGE = "adapting"

_CHECKPOINT_SECONDS = 5
"""Real-time mode's batch duration; after a kill everything since the last checkpoint is repeated."""


def start(spark: SparkSession, *, bootstrap_servers: str, checkpoint: str) -> StreamingQuery:
    """Starts the query. It needs one task slot per partition of ``firehose_input``."""
    return write(advance(read(spark, bootstrap_servers)), bootstrap_servers, checkpoint)


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
    known = F.coalesce(next_topic.isin(*routing.TOPICS), F.lit(False))
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
        names.DEAD_STAGE: STAGE,
        names.DEAD_REASON: "malformed",
        names.DEAD_ERROR: "The record has no routing slip that names a known topic.",
    }
    return F.concat(
        F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>")),
        F.array(*(F.struct(F.lit(k).alias("key"), F.lit(v).cast("binary").alias("value")) for k, v in cause.items())),
    )


def write(records: DataFrame, bootstrap_servers: str, checkpoint: str) -> StreamingQuery:
    writer = (
        records.writeStream.format("kafka")
        .queryName(STAGE)
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.max.request.size", str(4 * 1024 * 1024))
        .option("kafka.linger.ms", "3")
        .option("kafka.compression.type", "lz4")
        .option("includeHeaders", "true")
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
    )
    # PySpark's own annotations do not know this trigger yet.
    query: StreamingQuery = writer.trigger(realTime=f"{_CHECKPOINT_SECONDS} seconds").start()  # type: ignore[call-overload]
    return query


def stop(query: StreamingQuery) -> None:
    """Stops the query at the end of a batch: what an unfinished one has moved would be moved again."""
    deadline = time.monotonic() + 2 * _CHECKPOINT_SECONDS
    running = _finished_batch(query)
    while query.isActive and _finished_batch(query) == running and time.monotonic() < deadline:
        time.sleep(0.01)
    query.stop()


def _finished_batch(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])
