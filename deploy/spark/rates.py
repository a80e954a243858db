"""Counts the records of a topic by second, with PySpark's Structured Streaming, and prints the counts."""

from __future__ import annotations

import os
import sys

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def session() -> SparkSession:
    """A session with two threads and the Kafka connector, which Spark fetches by its Maven coordinates at first use."""
    settings = {
        "spark.jars.packages": CONNECTOR,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
    }
    builder = SparkSession.builder.master("local[2]").appName("rates")
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def main() -> None:
    """Print the counts of the topic in the first argument, or only fetch the connector (`--fetch-connector`)."""
    spark = session()
    if sys.argv[1] == "--fetch-connector":
        spark.stop()
        return
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["RAFTWERK_BOOTSTRAP"])
        .option("subscribe", sys.argv[1])
        .option("startingOffsets", "latest")
        .load()
    )
    rates = (
        records.withWatermark("timestamp", "2 seconds")
        .groupBy(f.window("timestamp", "1 second").alias("second"))
        .agg(f.count("*").alias("records"), f.approx_count_distinct("partition").alias("partitions"))
    )
    rows = rates.select(f.col("second.start").alias("second"), "records", "partitions")
    shown = rows.writeStream.outputMode("append").format("console").option("truncate", "false")
    shown.trigger(processingTime="5 seconds").start().awaitTermination()


if __name__ == "__main__":
    main()
