"""A consumer of each family, as a process, commits by itself and lives through the death of its coordinator."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from support.e2e.consumers import CLASSIC, CONSUMER, COUNT, PARTITIONS, confluent, coordinator_of, fill, read

from raftwerk.cluster.local.supervisor import Supervisor

MakeCluster = Callable[..., Supervisor]
_TIMEOUT_S = 60

_KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer
from kafka.errors import KafkaConnectionError
consumer = KafkaConsumer(sys.argv[2], bootstrap_servers=sys.argv[1].split(","), group_id=sys.argv[2],
                         auto_offset_reset="earliest", auto_commit_interval_ms=100, reconnect_backoff_max_ms=200)
while True:
    # Not shorter: 3.0 forgets the answer to a SyncGroup that comes when its poll has just ended, and then sits idle.
    try:
        polled = consumer.poll(5000)
    except KafkaConnectionError:
        continue  # 3.0 tells the application when it asks a broker that is just gone for metadata
    for records in polled.values():
        for record in records:
            print(record.value.decode(), flush=True)
"""
_AIOKAFKA = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer
async def run():
    async with AIOKafkaConsumer(sys.argv[2], bootstrap_servers=sys.argv[1], group_id=sys.argv[2],
                                auto_offset_reset="earliest", auto_commit_interval_ms=100) as consumer:
        async for record in consumer:
            print(record.value.decode(), flush=True)
asyncio.run(run())
"""


class Process:
    """A consumer that prints each value on a line; its group has the topic's name."""

    def __init__(self, command: list[str], out: Path) -> None:
        self.out = out
        with out.open("wb") as file, (out.parent / "err").open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=file, stderr=errors)

    def numbers(self) -> list[int]:
        whole, _, _ = self.out.read_text().rpartition("\n")
        return [int(line) for line in whole.splitlines() if line.isdigit()]

    def wait_for(self, count: int) -> None:
        """Until it has printed every number below `count`."""
        deadline = time.monotonic() + _TIMEOUT_S
        while len(set(self.numbers())) < count:
            told = (self.out.parent / "err").read_text()[-2000:]
            assert time.monotonic() < deadline, f"{len(set(self.numbers()))} of {count} numbers: {told}"
            assert self.process.poll() is None, told
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def wait_until_committed(bootstrap: str, group: str, each: int) -> None:
    """Until the group has committed `each` records of every partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200})
    deadline = time.monotonic() + _TIMEOUT_S
    found: dict[int, int] = {}
    while found != dict.fromkeys(range(PARTITIONS), each):
        assert time.monotonic() < deadline, f"committed: {found}"
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        found = {one.partition: one.offset for one in answer.topic_partitions}
        time.sleep(0.05)


@pytest.fixture(params=["kafka-python", "aiokafka", "kcat", "java-classic", "java-consumer"])
def family(request: pytest.FixtureRequest) -> tuple[str, list[str], dict[str, str]]:
    """Name, command (to which the cluster's address is given) and what another member of the group needs."""
    name = request.param
    if name == "kcat":
        kcat = request.getfixturevalue("kcat")
        settings = ("auto.offset.reset=earliest", "auto.commit.interval.ms=100", "reconnect.backoff.max.ms=200")
        return name, [kcat, "-u", "-q", *(word for one in settings for word in ("-X", one))], CLASSIC
    if name.startswith("java"):
        java = request.getfixturevalue("java_command")
        protocol = name.removeprefix("java-")
        chosen = [f"group.protocol={protocol}", "auto.commit.interval.ms=100"]
        properties = [word for one in chosen for word in ("--command-property", one)]
        tool = [*java, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--from-beginning", *properties]
        return name, tool, CONSUMER if protocol == "consumer" else CLASSIC
    return name, [sys.executable, "-c", _KAFKA_PYTHON if name == "kafka-python" else _AIOKAFKA], CLASSIC


@pytest.fixture
def consuming(
    family: tuple[str, list[str], dict[str, Any]], new_cluster: MakeCluster, topic: str, tmp_path: Path
) -> Iterator[tuple[Supervisor, Process]]:
    supervisor = new_cluster()
    bootstrap = supervisor.plan.bootstrap
    fill(bootstrap, topic)
    name, command, _ = family
    if name == "kcat":
        words = ["-b", bootstrap, "-G", topic, topic]
    elif name.startswith("java"):
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", topic]
    else:
        words = [bootstrap, topic]
    process = Process([*command, *words], tmp_path / "out")
    yield supervisor, process
    process.stop()


@pytest.mark.long
def test_a_consumer_outlives_its_coordinator(
    consuming: tuple[Supervisor, Process], family: tuple[str, list[str], dict[str, Any]], topic: str
) -> None:
    """What was committed before the kill is not read again, what came after is read, and commits go on."""
    supervisor, process = consuming
    bootstrap = supervisor.plan.bootstrap
    process.wait_for(COUNT)
    wait_until_committed(bootstrap, topic, COUNT // PARTITIONS)
    supervisor.kill(coordinator_of(bootstrap, topic))
    fill(bootstrap, topic, COUNT, create=False)
    process.wait_for(2 * COUNT)
    wait_until_committed(bootstrap, topic, 2 * COUNT // PARTITIONS)
    numbers = process.numbers()
    assert sorted(number for number in numbers if number < COUNT) == list(range(COUNT))
    assert set(numbers) == set(range(2 * COUNT))
    process.stop()
    successor = confluent(bootstrap, topic, **family[2])
    successor.subscribe([topic])
    assert read([successor], 1, timeout_s=2) == []
    successor.close()
