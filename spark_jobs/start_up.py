"""Starts Spark, reads a stream for a moment and ends: the classes that it loads meanwhile make an archive."""

import time

from pyspark.sql import SparkSession


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    topic = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "none"}  # only loading classes, without connecting
    spark.readStream.format("kafka").options(**topic).load().selectExpr("CAST(value AS STRING)")
    numbers = spark.readStream.format("rate").option("rowsPerSecond", 10).load().selectExpr("value * 2 AS value")
    query = numbers.writeStream.format("noop").start()
    while query.isActive and not query.recentProgress:
        time.sleep(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
