"""Copies each message that is to be delivered to the topic of the lane, in real time."""

import threading

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backend.domain.stages import stage_named
from spark_jobs.kafka_options import kafka_options
from spark_jobs.running_stage import Driver, RunningStage
from spark_jobs.streaming.kept_running import KeptRunning

STAGE = stage_named("toy_tap")


def start_stage(driver: Driver) -> RunningStage:
    stopped = threading.Event()

    def run() -> None:
        query = (
            _copies(driver)
            .writeStream.format("kafka")
            .options(**kafka_options(driver.environment.kafka))
            .option("includeHeaders", "true")
            .option("checkpointLocation", driver.checkpoint)
            .outputMode("update")
            .trigger(realTime=f"{driver.batch_seconds} seconds")  # type: ignore[call-overload]
            .start()
        )
        while not query.awaitTermination(1):
            if stopped.is_set():
                query.stop()

    kept = KeptRunning(STAGE.name, run, stopped)

    def end() -> None:
        stopped.set()
        kept.join()

    return RunningStage(kept.problem, dict, end)


def _copies(driver: Driver) -> DataFrame:
    records = (
        driver.spark.readStream.format("kafka")
        .options(**kafka_options(driver.environment.kafka))
        .option("subscribe", STAGE.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "false")
        .load()
    )
    return records.select("key", "value", "headers", F.lit(STAGE.next[0]).alias("topic"))
