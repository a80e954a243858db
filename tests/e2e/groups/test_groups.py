"""Consumers of every family subscribe, share, come and go, commit and resume; their coordinator is killed."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from support.e2e import helpers
from support.e2e.consumers import (
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    COUNT,
    PARTITIONS,
    confluent,
    coordinator_of,
    fill,
    read,
    settle,
)
from support.e2e.java_tools import JavaTools

from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.cluster.local.supervisor import Supervisor

MakeCluster = Callable[..., Supervisor]


@pytest.mark.parametrize("config", [CLASSIC, COOPERATIVE, CONSUMER], ids=["range", "cooperative", "consumer"])
def test_confluent_consumers_share_come_and_go(bootstrap: str, filled: str, config: dict[str, str]) -> None:
    first = confluent(bootstrap, filled, **config)
    first.subscribe([filled])
    assert read([first], COUNT) == list(range(COUNT))
    first.commit(asynchronous=False)
    second = confluent(bootstrap, filled, **config)
    second.subscribe([filled])
    assert [len(owned) for owned in settle([first, second])] == [3, 3]
    second.close()
    assert [len(owned) for owned in settle([first])] == [6]
    fill(bootstrap, filled, COUNT, create=False)
    assert read([first], COUNT) == list(range(COUNT, 2 * COUNT))
    first.close()


def test_confluent_resumes_where_it_left_off(bootstrap: str, filled: str) -> None:
    consumer = confluent(bootstrap, filled)
    consumer.subscribe([filled])
    before = read([consumer], 100)
    consumer.commit(asynchronous=False)
    consumer.close()
    consumer = confluent(bootstrap, filled)
    consumer.subscribe([filled])
    after = read([consumer], COUNT - len(before))
    consumer.close()
    assert sorted(before + after) == list(range(COUNT))


def test_a_static_member_restarts_unnoticed(bootstrap: str, filled: str) -> None:
    config = {"session.timeout.ms": 30000}
    consumers = [confluent(bootstrap, filled, **config, **{"group.instance.id": f"i{n}"}) for n in range(2)]
    for consumer in consumers:
        consumer.subscribe([filled])
    owned = settle(consumers)
    consumers[1].close()
    consumers[1] = confluent(bootstrap, filled, **config, **{"group.instance.id": "i1"})
    consumers[1].subscribe([filled])
    assert settle(consumers) == owned
    for consumer in consumers:
        consumer.close()


def test_kafka_python(bootstrap: str, filled: str) -> None:
    from kafka import KafkaConsumer

    def consume(count: int) -> list[int]:
        consumer = KafkaConsumer(
            filled,
            bootstrap_servers=bootstrap,
            group_id=filled,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=15000,
            max_poll_records=50,
        )
        numbers: list[int] = []
        while len(numbers) < count:
            for batch in consumer.poll(1000).values():
                numbers += [int(message.value) for message in batch]
        consumer.commit()
        consumer.close()
        return numbers

    first = consume(100)
    assert sorted(first + consume(COUNT - len(first))) == list(range(COUNT))


def test_aiokafka(bootstrap: str, filled: str) -> None:
    from aiokafka import AIOKafkaConsumer

    async def consume(count: int) -> list[int]:
        settings: dict[str, Any] = {"group_id": filled, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with AIOKafkaConsumer(filled, bootstrap_servers=bootstrap, **settings) as consumer:
            numbers = [int((await asyncio.wait_for(consumer.getone(), 20)).value) for _ in range(count)]
            await consumer.commit()
            return numbers

    async def run() -> list[int]:
        return await consume(100) + await consume(COUNT - 100)

    assert sorted(asyncio.run(run())) == list(range(COUNT))


def test_kcat(bootstrap: str, filled: str, kcat: str) -> None:
    command = [kcat, "-b", bootstrap, "-G", filled, "-X", "auto.offset.reset=earliest", "-q", "-c", str(COUNT), filled]
    done = subprocess.run(command, capture_output=True, check=True, timeout=40)
    assert sorted(map(int, done.stdout.split())) == list(range(COUNT))


@pytest.mark.long
@pytest.mark.parametrize("config", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_the_coordinator_is_killed(new_cluster: MakeCluster, topic: str, config: dict[str, str]) -> None:
    """Consumers go on with the next coordinator; commits made before are there, and nobody is thrown out."""
    supervisor = new_cluster()
    bootstrap = supervisor.plan.bootstrap
    fill(bootstrap, topic)
    consumers = [confluent(bootstrap, topic, **config) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe([topic])
    # Shared out first: who takes a partition over while records are read begins it anew, and would commit less than
    # was read.
    owned = settle(consumers)
    assert read(consumers, COUNT) == list(range(COUNT))
    for consumer in consumers:
        consumer.commit(asynchronous=False)
    supervisor.kill(coordinator_of(bootstrap, topic))
    fill(bootstrap, topic, COUNT, create=False)
    assert read(consumers, COUNT) == list(range(COUNT, 2 * COUNT))
    commit_when_possible(consumers)
    assert settle(consumers) == owned
    for consumer in consumers:
        consumer.close()
    successor = confluent(bootstrap, topic, **config)
    successor.subscribe([topic])
    assert read([successor], 1, timeout_s=3) == []
    successor.close()


def commit_when_possible(consumers: list[Consumer]) -> None:
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + 20
    for consumer in consumers:
        while True:
            try:
                consumer.commit(asynchronous=False)
                break
            except KafkaException:
                assert time.monotonic() < deadline, "no commit after the coordinator was killed"
                consumer.poll(0.1)


@pytest.mark.java
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_console_consumer_and_group_tool(
    java_tools: JavaTools, bootstrap: str, filled: str, protocol: str
) -> None:
    server = ("--bootstrap-server", bootstrap)
    arguments = ("--topic", filled, "--group", filled, "--from-beginning", "--max-messages", str(COUNT))
    chosen = ("--timeout-ms", "30000", "--command-property", f"group.protocol={protocol}")
    told = java_tools.run("consumer.ConsoleConsumer", *server, *arguments, *chosen)
    assert sorted(int(line) for line in told.splitlines() if line.isdigit()) == list(range(COUNT))
    tool = "consumer.group.ConsumerGroupCommand"
    group = (*server, "--group", filled)
    assert filled in java_tools.run(tool, *server, "--list", "--type", protocol)
    rows = [line.split() for line in java_tools.run(tool, *group, "--describe").splitlines() if filled in line]
    assert sorted((row[2], row[3], row[5]) for row in rows if row[1] == filled) == [
        (str(partition), "50", "0") for partition in range(PARTITIONS)
    ]
    reset = ("--reset-offsets", "--to-offset", "7", "--topic", filled, "--execute")
    assert java_tools.run(tool, *group, *reset).count(filled) >= PARTITIONS
    assert "successful" in java_tools.run(tool, *group, "--delete")


def fill_one(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic, PARTITIONS, replicas=1)
    fill(bootstrap, topic, create=False)


@pytest.mark.java
def test_kafkas_dump_tool_reads_what_the_coordinator_writes(
    java_command: list[str], new_cluster: MakeCluster, topic: str
) -> None:
    supervisor = new_cluster(1)
    bootstrap = supervisor.plan.bootstrap
    fill_one(bootstrap, topic)
    for config in (CLASSIC, CONSUMER):
        consumer = confluent(bootstrap, f"{topic}-{len(config)}-{next(iter(config))}", **config)
        consumer.subscribe([topic])
        assert read([consumer], COUNT) == list(range(COUNT))
        consumer.commit(asynchronous=False)
        consumer.close()
    supervisor.stop()
    data = Path(supervisor.plan.node(1).data_dir)
    logs = [str(path) for path in data.glob(f"{OFFSETS_TOPIC}-*/*.log") if path.stat().st_size]
    command = [*java_command, "kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", ",".join(logs)]
    told = subprocess.run(command, capture_output=True, check=True, text=True, timeout=90).stdout
    for wanted in ('"offset":', '"protocolType":"consumer"', '"subscribedTopicNames"', '"assignedPartitions"'):
        assert wanted in told, told[-3000:]
    assert "corrupt" not in told.lower()
    assert "failed" not in told.lower()
