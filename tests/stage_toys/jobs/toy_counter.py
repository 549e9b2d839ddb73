"""Writes numbers to the topic of the store, in short batches."""

import threading

from pyspark.sql import functions as F

from backend.domain.stages import stage_named
from spark_jobs.kafka_options import kafka_options
from spark_jobs.running_stage import Driver, RunningStage
from spark_jobs.streaming.kept_running import KeptRunning

STAGE = stage_named("toy_counter")


def start_stage(driver: Driver) -> RunningStage:
    stopped = threading.Event()

    def run() -> None:
        numbers = driver.spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        records = numbers.select(
            F.format_string("counted %d", "value").alias("value"), F.lit(STAGE.next[0]).alias("topic")
        )
        query = (
            records.writeStream.format("kafka")
            .options(**kafka_options(driver.environment.kafka))
            .option("checkpointLocation", driver.checkpoint)
            .trigger(processingTime="1 second")
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
