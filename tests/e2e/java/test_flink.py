"""Flink's KafkaSink with EXACTLY_ONCE: the job fails, and brokers and its own process are killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.e2e import helpers
from support.e2e.consumers import confluent

from raftwerk.cluster.local.supervisor import Supervisor

SOURCE = Path(helpers.__file__).parent / "java" / "FlinkCopy.java"
PARTITIONS = 2
TIMEOUT_S = 120.0
# Flink's own start scripts open these packages, too.
OPENED = ["--add-opens", "java.base/java.util=ALL-UNNAMED", "--add-opens", "java.base/java.lang=ALL-UNNAMED"]

pytestmark = pytest.mark.java


class Job:
    """The job and its mini cluster: one process after the other, each with the last checkpoint of the one before."""

    def __init__(self, class_path: str, arguments: list[str], checkpoints: Path) -> None:
        # Flink removes its temporary files when it ends in peace, and here it is killed.
        temporary = f"-Djava.io.tmpdir={checkpoints.parent}"
        java = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", temporary, *OPENED, "-cp", class_path, "FlinkCopy"]
        self._command = [*java, *arguments]
        self._checkpoints = checkpoints
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start a process; Flink writes the metadata of a checkpoint when all of it is there."""
        begin = sorted(self._checkpoints.glob("*/chk-*/_metadata"), key=lambda path: int(path.parent.name[4:]))[-1:]
        command = [*self._command, *(f"file://{path.parent}" for path in begin)]
        nothing = subprocess.DEVNULL
        self._processes.append(subprocess.Popen(command, stdout=nothing, stderr=nothing))

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Flink's jars, and the job as Flink loads it: compiled."""
    libs = os.environ.get("FLINK_LIBS") or os.path.expanduser("~/.cache/flink-2.1.0")
    compiler = shutil.which("javac")
    if compiler is None or shutil.which("java") is None or not os.path.isdir(libs):
        pytest.skip(f"no java, no javac, or no jars of Flink in {libs} (make flink-jars gets them): it is NOT tested")
    classes = tmp_path_factory.mktemp("flink")
    subprocess.run([compiler, "-d", str(classes), "-cp", f"{libs}/*", str(SOURCE)], check=True)
    return f"{libs}/*:{classes}"


@pytest.fixture(params=["INCREMENTING", "POOLING"])
def copying(
    new_cluster: Callable[..., Supervisor], class_path: str, request: pytest.FixtureRequest, topic: str, tmp_path: Path
) -> Iterator[tuple[Supervisor, Job]]:
    """A cluster and a job, which finds transactions of its former process by probing ids, or by ListTransactions."""
    supervisor = new_cluster()
    bootstrap, target = supervisor.plan.bootstrap, f"{topic}-copy"
    for name in (topic, target):
        helpers.create_topic(bootstrap, name, PARTITIONS, min_insync_replicas="2")
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    job = Job(class_path, [bootstrap, topic, target, str(checkpoints), request.param], checkpoints)
    yield supervisor, job
    job.kill()


def read(consumer: Consumer, found: list[bytes], total: int) -> None:
    """Read copies until there are `total` in all."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < total:
        assert time.monotonic() < deadline, f"{len(found)} of {total} records are copied"
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            found.append(message.value() or b"")


@pytest.mark.long
def test_each_record_is_copied_once(copying: tuple[Supervisor, Job], topic: str) -> None:
    """No transaction times out before the end of the test, so none may be left open by a process that was killed."""
    supervisor, job = copying
    bootstrap = supervisor.plan.bootstrap
    source = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    reader = confluent(bootstrap, f"{topic}-reader", **{"isolation.level": "read_committed"})
    reader.assign([TopicPartition(f"{topic}-copy", index, 0) for index in range(PARTITIONS)])
    sent: list[bytes] = []
    copied: list[bytes] = []

    def send(*values: bytes) -> None:
        for value in values or [b"%d" % number for number in range(len(sent), len(sent) + 50)]:
            source.produce(topic, value, partition=len(sent) % PARTITIONS)
            sent.append(value)
        assert source.flush(TIMEOUT_S) == 0

    job.start()
    send()
    read(reader, copied, len(sent))
    send()
    send(b"fail")
    send()
    read(reader, copied, len(sent))
    for victim in (1, 2, 3):
        send()
        supervisor.kill(victim)
        send()
        if victim == 2:
            job.kill()
            job.start()
        read(reader, copied, len(sent))
        supervisor.start_node(victim)
        supervisor.wait_ready()
    reader.close()
    assert sorted(copied) == sorted(sent)
