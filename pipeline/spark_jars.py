"""Jars that Spark's JVM needs beside its own, by Maven coordinates: Spark's Kafka connector and the table formats.

None of them is part of PySpark. Spark fetches them as the JVM starts, and keeps them in Ivy's cache in the home
directory. `spark.jars.repositories` and `spark.jars.ivySettings` name other repositories.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .errors import PipelineError

ICEBERG_VERSION = "1.11.0"
ICEBERG_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_ICEBERG_SPARKS = ("4.0", "4.1")
_DELTA_BY_SPARK = {"4.0": "io.delta:delta-spark_2.13:4.0.0", "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0"}
"""Delta 4.1 and 4.2 were compiled for Spark 4.1.0; their ALTER TABLE and OPTIMIZE fail on Spark 4.1.2 and later."""
_EXTENSIONS = "spark.sql.extensions"
_DIRECTORY_END = b"PK\x05\x06"
_DIRECTORY_END_BYTES_MAX = 22 + 0xFFFF
"""The last entry of an archive, with the longest comment."""
_ZIP64 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class JarPackage:
    """What is fetched by `coordinates`, a class that it has, and the settings of a session that uses it."""

    name: str
    coordinates: str
    class_name: str
    settings: Mapping[str, str] = field(default_factory=dict)


def connector_coordinates(spark_version: str) -> str:
    """The Maven coordinates of Spark's Kafka connector, whose version must be Spark's own."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"


def kafka_connector(spark_version: str) -> JarPackage:
    """Spark's own Kafka connector."""
    return JarPackage(
        "Spark's Kafka connector",
        connector_coordinates(spark_version),
        "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    )


def table_format_jars(table_format: str, spark_version: str) -> list[JarPackage]:
    """The jars of a table format, none for Parquet. `PipelineError` when it has none for this version of Spark."""
    minor = ".".join(spark_version.split(".")[:2])
    if table_format == "iceberg":
        if minor not in _ICEBERG_SPARKS:
            raise _no_jars("Iceberg", spark_version, _ICEBERG_SPARKS)
        return [
            JarPackage(
                "Iceberg",
                f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:{ICEBERG_VERSION}",
                ICEBERG_CATALOG,
                {_EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
            )
        ]
    if table_format == "delta":
        if minor not in _DELTA_BY_SPARK:
            raise _no_jars("Delta", spark_version, _DELTA_BY_SPARK)
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        return [
            JarPackage(
                "Delta",
                _DELTA_BY_SPARK[minor],
                catalog,
                {_EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension", "spark.sql.catalog.spark_catalog": catalog},
            )
        ]
    return []


def settings_of(packages: Sequence[JarPackage]) -> dict[str, str]:
    """The settings of a session that uses all of these packages."""
    merged: dict[str, str] = {}
    for package in packages:
        for name, value in package.settings.items():
            merged[name] = f"{merged[name]},{value}" if name == _EXTENSIONS and name in merged else value
    return merged


def may_hold_python(archive: str) -> bool:
    """Whether the directory of an archive names a Python module, or cannot be read.

    It is searched as bytes, which takes milliseconds; its entries as objects would take a second for a large jar.
    """
    try:
        with open(archive, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _DIRECTORY_END_BYTES_MAX))
            tail = file.read()
            end = tail.rindex(_DIRECTORY_END)
            directory_size, directory_at = struct.unpack_from("<II", tail, end + 12)
            if _ZIP64 in (directory_size, directory_at):
                return True
            file.seek(size - len(tail) + end - directory_size)
            return b".py" in file.read(directory_size)
    except (OSError, ValueError, struct.error):
        return True


def _no_jars(name: str, spark_version: str, known: Sequence[str] | Mapping[str, str]) -> PipelineError:
    return PipelineError(
        f"{name} has jars for Spark {' and '.join(known)}, and this is Spark {spark_version}: install one of those "
        f"(pip install 'pyspark=={max(known)}.*'); only the job lake needs none, with --format parquet."
    )
