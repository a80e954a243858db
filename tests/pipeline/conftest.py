"""One Spark, one three-node cluster, for all tests of a process: a JVM of a gigabyte is not started twice."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftwerk.pipeline.errors import PipelineError
from raftwerk.testkit.process_cluster import TestCluster

HERE = Path(__file__).parent
_numbers = itertools.count(1)
_NOT_LONG = (
    "test_exactly_once_through_kills_and_a_restart[raftwerk]",
    "test_the_lake_holds_each_flight_once_over_restarts[raftwerk-iceberg]",
    "test_where_a_stream_starts",
)
"""One or two tests of each thing that Spark does here, for `make test`; `make test-all` runs every one."""


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.process)
            item.add_marker(pytest.mark.java)
        if item.get_closest_marker("java") and not item.name.startswith(_NOT_LONG):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """Spark on two cores, with its own Kafka connector and Avro, the table formats and our data source."""
    pyspark = pytest.importorskip("pyspark", reason="no PySpark: Spark is NOT tested")
    from raftwerk.pipeline.lakehouse.table_format import TRANSACTIONAL_FORMATS
    from raftwerk.pipeline.session import JarSettings, spark_session

    settings = {"spark.sql.streaming.numRecentProgressUpdates": "10000", "spark.sql.streaming.pollingDelay": "10ms"}
    # Compiling Java for a few rows takes longer than reading them.
    settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    jars = JarSettings(True, TRANSACTIONAL_FORMATS)
    packages = [one.coordinates for one in jars.packages(pyspark.__version__)]
    packages.append(f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}")  # for a recipe of docs/registry.md
    settings["spark.jars.packages"] = ",".join(packages)
    try:
        session = spark_session("tests", jars=jars, memory="1g", config=settings)
    except PipelineError as error:
        pytest.skip(f"Spark is NOT tested: {error}")
    from raftwerk.pipeline.source import RaftwerkDataSource

    session.dataSource.register(RaftwerkDataSource)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[TestCluster]:
    """Three nodes that are whole when a test begins; a test that kills one heals it. Old records are kept."""
    with TestCluster.start(3, settings={"min.insync.replicas": "2", "log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def bootstrap(cluster: TestCluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
def topic() -> str:
    """A name nobody else uses."""
    return f"t-{os.getpid()}-{next(_numbers)}"
