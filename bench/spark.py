"""`python -m raftwerk.bench spark`: Spark reads and writes topics, with its own Kafka connector and our data source.

Both run in turn in one Spark session, against one cluster of three nodes on the same cores. The median of the rounds is
shown; the ratio is the result. A read ends in Spark's `noop` sink, so that every row has been made. `lake` copies a
topic to a table to its end: with the connector into Spark's own Parquet sink, with our data source by the job `lake`,
which writes Iceberg; columns and partitions are the same. Beside the time on the clock is the CPU time of Spark with
its Python workers, which other work on the machine affects less. Needs Java 17 and Linux's /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pipeline.errors import PipelineError
from ..pipeline.jobs.job_command import ReadSettings
from ..pipeline.jobs.lake import Lake, LakeOptions
from ..pipeline.lakehouse.open_table import read_table
from ..pipeline.running_query import Metrics, ProgressLog
from ..pipeline.topics import Topics
from .common import client_workloads
from .common.systems import System

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("kafka", "raftwerk")
SIZES = ((100, 1_000_000), (1024, 300_000))
"""Bytes of a record, and the number of records."""
SHARES = {"read": 1, "write": 4, "lake": 1}
"""Divisors of the number of records, by job."""
_NODES = 3
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Workload:
    """A job over a number of records of one size."""

    job: str
    size: int
    rows: int


@dataclass(frozen=True)
class Result:
    """The figures of a workload with one format: rows a second, and CPU seconds for a million rows."""

    job: str
    size: int
    cores: int
    form: str
    rows_s: float
    cpu_s: float


def _cpu_seconds() -> float:
    """The CPU time of all running descendants of this process, and of those that they have waited for."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    mine = [pid for pid in parents if os.getpid() in _ancestors(pid, parents)]
    return sum(spent[pid] for pid in mine)


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while (pid := parents.get(pid, 0)) > 0:
        found.append(pid)
    return found


def _cost(action: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock, and CPU seconds."""
    before, started = _cpu_seconds(), time.perf_counter()
    action()
    return time.perf_counter() - started, _cpu_seconds() - before


def _reader(spark: SparkSession, form: str, bootstrap: str, topic: str) -> Any:
    return spark.read.format(form).options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic}).load()


def _to_parquet(spark: SparkSession, bootstrap: str, topic: str, directory: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    place = ("topic", "partition", "offset", "timestamp", "to_date(timestamp) as date", "key", "value")
    rows = spark.readStream.format("kafka").options(**options).load().selectExpr(*place)
    query = rows.writeStream.format("parquet").partitionBy("topic", "date").trigger(availableNow=True)
    query.option("checkpointLocation", f"{directory}/checkpoint").start(f"{directory}/table").awaitTermination()
    return spark.read.parquet(f"{directory}/table")


def _to_lake(spark: SparkSession, bootstrap: str, topic: str, directory: str) -> DataFrame:
    lake = Lake(spark, Topics(bootstrap, (topic,)), LakeOptions(f"{directory}/lake"))
    lake.start(ReadSettings(once=True), ProgressLog(quiet=True), Metrics("lake", None)).follow()
    return read_table(spark, f"{directory}/lake")


def _carry_out(spark: SparkSession, form: str, bootstrap: str, topic: str, workload: Workload) -> None:
    if workload.job == "lake":
        copy = _to_parquet if form == "kafka" else _to_lake
        with tempfile.TemporaryDirectory(prefix="raftwerk-lake-") as directory:
            found = copy(spark, bootstrap, topic, directory).count()
        if found != workload.rows:
            raise PipelineError(f"{form} has {found} rows in its table, and {workload.rows} records were sent.")
        return
    if workload.job == "read":
        _reader(spark, form, bootstrap, topic).write.format("noop").mode("overwrite").save()
        return
    value = f"lpad(cast(id as string), {workload.size}, 'x') as value"
    rows = spark.range(workload.rows).selectExpr("cast(id as string) as key", value)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-written"}
    rows.write.format(form).options(**options).mode("append").save()


def _compare(
    spark: SparkSession, rounds: int, bootstrap: str, topic: str, workload: Workload
) -> dict[str, tuple[float, float]]:
    """The median seconds by the clock and of CPU for each format, after a round that is not counted."""
    found: dict[str, list[tuple[float, float]]] = {form: [] for form in FORMATS}
    for _ in range(rounds + 1):
        for form, costs in found.items():
            costs.append(_cost(lambda form=form: _carry_out(spark, form, bootstrap, topic, workload)))  # type: ignore[misc]
    return {
        form: (statistics.median(one[0] for one in costs[1:]), statistics.median(one[1] for one in costs[1:]))
        for form, costs in found.items()
    }


def _measure(
    cores: int, rounds: int, jobs: list[str], bootstrap: str, topics: dict[int, tuple[str, int]]
) -> list[Result]:
    """All workloads with a number of cores."""
    from ..pipeline.session import JarSettings, spark_session
    from ..pipeline.source import RaftwerkDataSource

    spark = spark_session("bench", master=f"local[{cores}]", jars=JarSettings(True, ("iceberg",)))
    spark.dataSource.register(RaftwerkDataSource)
    results = []
    for size, (topic, count) in topics.items():
        for form in FORMATS:
            seen = _reader(spark, form, bootstrap, topic).count()
            if seen != count:
                raise PipelineError(f"{form} counted {seen} records in {topic}, and {count} were sent.")
        for workload in (Workload(job, size, count // SHARES[job]) for job in jobs):
            for form, (wall_s, cpu_s) in _compare(spark, rounds, bootstrap, topic, workload).items():
                results.append(
                    Result(workload.job, size, cores, form, workload.rows / wall_s, cpu_s * 1e6 / workload.rows)
                )
                print(results[-1], file=sys.stderr, flush=True)
    spark.stop()
    return results


def _measure_apart(
    cores: int, options: argparse.Namespace, bootstrap: str, topics: dict[int, tuple[str, int]]
) -> list[Result]:
    """Each number of cores in a process of its own, because a process has one JVM."""
    arguments = json.dumps([cores, options.rounds, options.jobs, bootstrap, topics])
    command = [sys.executable, "-m", "raftwerk.bench", "spark", "--child", arguments]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [Result(**row) for row in json.loads(answer.stdout.splitlines()[-1])]


def _print(results: list[Result]) -> None:
    """Print a table for each job."""
    for job in dict.fromkeys(one.job for one in results):
        _print_table([one for one in results if one.job == job])
        print()


def _print_table(results: list[Result]) -> None:
    by_key = {(one.job, one.size, one.cores, one.form): one for one in results}
    print(
        "| | kafka rows/s | raftwerk rows/s | kafka MB/s | raftwerk MB/s | ratio | CPU s/10^6 rows: kafka | raftwerk |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for job, size, cores in dict.fromkeys(key[:3] for key in by_key):
        theirs, ours = (by_key[job, size, cores, form] for form in FORMATS)
        cells = [
            f"{job} {size} B, {cores} core{'s' if cores > 1 else ''}",
            f"{theirs.rows_s:,.0f}",
            f"{ours.rows_s:,.0f}",
            f"{theirs.rows_s * size / 1e6:,.1f}",
            f"{ours.rows_s * size / 1e6:,.1f}",
            f"{ours.rows_s / theirs.rows_s:.2f}",
            f"{theirs.cpu_s:.1f}",
            f"{ours.cpu_s:.1f}",
        ]
        print(f"| {' | '.join(cells)} |")


def _run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="raftwerk-bench-") as directory:
        system = System(Path(directory), _NODES)
        try:
            topics = {}
            for size, full in SIZES:
                count = int(full * options.scale)
                name = client_workloads.create_topic(system.bootstrap, f"spark-{size}", 1)
                client_workloads.create_topic(system.bootstrap, f"{name}-written", 1)
                client_workloads.produce(system.bootstrap, name, count, size, 1)
                topics[size] = (name, count)
            results = [
                result for cores in options.cores for result in _measure_apart(cores, options, system.bootstrap, topics)
            ]
        finally:
            system.stop()
    _print(results)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in results], indent=1))


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench spark", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of records (default 1.0)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each workload, of which the median is shown")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="cores of Spark (default: 1, then 2)")
    parser.add_argument("--jobs", nargs="+", choices=sorted(SHARES), default=list(SHARES), help="default: all")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        if options.child:
            cores, rounds, jobs, bootstrap, topics = json.loads(options.child)
            results = _measure(
                cores, rounds, jobs, bootstrap, {int(size): tuple(topic) for size, topic in topics.items()}
            )
            print(json.dumps([asdict(one) for one in results]))
        else:
            _run(options)
        return 0
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 1
