"""Apache Kafka's own tools."""

from __future__ import annotations

import subprocess

import pytest
from support.e2e import helpers

pytestmark = pytest.mark.java


def run_tool(java: list[str], tool: str, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        [*java, f"org.apache.kafka.tools.{tool}", *arguments],
        input=text,
        capture_output=True,
        check=False,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_topics(java_command: list[str], bootstrap: str, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    made = run_tool(java_command, "TopicCommand", *server, "--create", "--partitions", "2", "--replication-factor", "3")
    assert f"Created topic {topic}." in made
    described = run_tool(java_command, "TopicCommand", *server, "--describe")
    assert "PartitionCount: 2" in described
    assert "ReplicationFactor: 3" in described


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer(java_command: list[str], bootstrap: str, topic: str, codec: str) -> None:
    helpers.create_topic(bootstrap, topic)
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    lines = [f"line {number}" for number in range(50)]
    run_tool(java_command, "ConsoleProducer", *server, "--compression-codec", codec, text="\n".join(lines) + "\n")
    assert helpers.read_all(bootstrap, topic) == [[line.encode() for line in lines]]
    if codec == "zstd":
        arguments = ("--partition", "0", "--offset", "earliest", "--max-messages", "50", "--timeout-ms", "20000")
        assert run_tool(java_command, "consumer.ConsoleConsumer", *server, *arguments).splitlines() == lines


def test_producer_performance(java_command: list[str], bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic, 6, min_insync_replicas="2")
    arguments = ["--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"]
    settings = ["--bootstrap-server", bootstrap, "--command-property", "acks=all"]
    told = run_tool(java_command, "ProducerPerformance", *arguments, *settings)
    assert "20000 records sent" in told
    assert sum(map(len, helpers.read_all(bootstrap, topic, 6))) == 20000
