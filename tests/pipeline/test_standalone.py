"""`lake` on a Spark cluster of a master and two workers, as processes, and jobs under spark-submit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.chaos import histories
from support.ports import free_port

from raftwerk.pipeline import submit
from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.flights import feed, flights
from raftwerk.pipeline.lakehouse.duckdb_query import query
from raftwerk.pipeline.session import check_java
from raftwerk.pipeline.topics import Topics
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = [pytest.mark.process, pytest.mark.java, pytest.mark.xdist_group("spark")]

_START_TIMEOUT_S = 90
_JOB_TIMEOUT_S = 240


@dataclass
class Standalone:
    """A master at a URL, and its workers."""

    url: str
    workers: list[subprocess.Popen[bytes]]

    def kill_worker_with_executor(self) -> None:
        """Kill a worker that runs an executor, and the executor with it, as the loss of a machine does."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            for worker in self.workers:
                executors = _children(worker.pid)
                if executors:
                    for pid in (worker.pid, *executors):
                        os.kill(pid, signal.SIGKILL)
                    return
            assert time.monotonic() < deadline, "no worker has an executor"
            time.sleep(0.1)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master with two workers."""
    try:
        check_java()
    except PipelineError as error:
        pytest.skip(f"Spark standalone is NOT tested: {error}")
    home = Path(pytest.importorskip("pyspark").__file__).parent
    logs = tmp_path_factory.mktemp("standalone")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    commands += [
        [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1100m",
         "-d", str(logs / f"work{number}"), url]
        for number in (1, 2)
    ]  # fmt: skip
    environment = {**os.environ, "SPARK_DAEMON_MEMORY": "256m"}
    processes = []
    try:
        for number, command in enumerate(commands):
            log = (logs / f"{number}.log").open("wb")
            run = [str(home / "bin" / "spark-class"), *command]
            processes.append(subprocess.Popen(run, stdout=log, stderr=log, env=environment))
        _wait_for_workers(logs / "0.log")
        yield Standalone(url, processes[1:])
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


def _wait_for_workers(log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while len(re.findall("Registering worker", log.read_text())) < 2:
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)


def write_clean_history(directory: Path) -> Path:
    path = directory / "h.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in histories.clean(40)))
    return path


def test_a_lake_is_whole_after_the_loss_of_a_worker(master: Standalone, tmp_path: Path) -> None:
    with TestCluster.start(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        Topics(bootstrap, ("flights",)).create(4, {})
        feed(bootstrap, "flights", flights(2000))
        out = str(tmp_path / "lake")
        words = ["-b", bootstrap, "-t", "flights", "--out", out, "--once", "--value-format", "json"]
        words += ["--schema", "number BIGINT, carrier STRING", "--max-offsets", "400", "--master", master.url]
        command = [sys.executable, "-m", "raftwerk", "pipeline", "run", "lake", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
            assert job.stdout is not None
            told = []
            for line in job.stdout:
                told.append(line)
                if "batch 0 " in line:
                    master.kill_worker_with_executor()
        assert job.returncode == 0 and "2,000 rows in " in told[-1], "".join(told)[-3000:]
    numbers = query(out, "SELECT number FROM lake ORDER BY 1")
    assert [row[0] for row in numbers] == list(range(2000))


def test_spark_submit_runs_the_same_jobs(tmp_path: Path) -> None:
    """The master is that of spark-submit; bad input is a sentence and an exit code here too."""
    home = Path(pytest.importorskip("pyspark").__file__).parent
    script = Path(submit.__file__)
    few = ("--conf", "spark.sql.shuffle.partitions=2")
    words = [str(home / "bin" / "spark-submit"), "--master", "local[1]", *few, str(script), "audit"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [*words, *more]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_JOB_TIMEOUT_S, env=environment
        )

    history = write_clean_history(tmp_path)
    done = run(str(history), "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.strip().splitlines()[-1])["verdict"] == "VALID"
    failed = run(str(tmp_path / "nothing"))
    assert failed.returncode == 1
    assert "there is no file or directory" in failed.stderr + failed.stdout
