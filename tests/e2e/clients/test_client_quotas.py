"""Clients with quotas, each by itself against one broker: what they get through is what the quota gives."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer
from support.e2e import helpers
from support.e2e.clusters import start_cluster
from support.e2e.command import fails
from support.e2e.in_process import ok

from raftwerk.cluster.local.supervisor import Supervisor

RATE = 200_000
"""Bytes a second."""
DURATION_S = 26.0
TOPIC = "limited"
VALUE = bytes(1000)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """One node that measures over three seconds, so that the burst at the beginning is small."""
    directory = tmp_path_factory.mktemp("quotas")
    shape = {"port": 0, "metrics_port": 0, "overrides": {"quota.window.num": "3"}}
    supervisor = start_cluster(directory, 1, **shape)
    helpers.create_topic(supervisor.plan.bootstrap, TOPIC, 1, 1)
    yield supervisor
    supervisor.stop()


def confluent_rate(bootstrap: str) -> float:
    """Bytes a second that confluent-kafka produces."""
    config = {"bootstrap.servers": bootstrap, "client.id": "confluent", "queue.buffering.max.kbytes": 300}
    producer = ConfluentProducer({**config, "acks": "all", "linger.ms": 5, "batch.size": 16_000})
    sent = 0

    def delivered(error: object, message: object) -> None:
        nonlocal sent
        assert error is None
        sent += len(VALUE)

    began = time.monotonic()
    while time.monotonic() - began < DURATION_S:
        try:
            producer.produce(TOPIC, VALUE, on_delivery=delivered)
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    rate = sent / (time.monotonic() - began)
    assert producer.flush(60) == 0
    return rate


def kafka_python_rate(bootstrap: str) -> float:
    """Bytes a second that kafka-python produces."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="kafka-python", acks="all", linger_ms=5)
    sent = 0

    def delivered(metadata: object) -> None:
        nonlocal sent
        sent += len(VALUE)

    waiting = []
    began = time.monotonic()
    while time.monotonic() - began < DURATION_S:
        waiting.append(producer.send(TOPIC, VALUE).add_callback(delivered))
        if len(waiting) == 200:
            waiting.pop(0).get(timeout=60)
    rate = sent / (time.monotonic() - began)
    producer.close()
    return rate


def java_rate(java: list[str], bootstrap: str) -> float:
    """Bytes a second that `kafka-producer-perf-test` reports for its intervals of five seconds, without the first."""
    count = int(RATE * DURATION_S / len(VALUE))
    settings = [f"bootstrap.servers={bootstrap}", "client.id=java", "acks=all"]
    arguments = ["--topic", TOPIC, "--num-records", str(count), "--record-size", str(len(VALUE)), "--throughput", "-1"]
    began = time.monotonic()
    done = subprocess.run(
        [*java, "org.apache.kafka.tools.ProducerPerformance", *arguments, "--producer-props", *settings],
        capture_output=True, check=True, text=True, timeout=120,
    )  # fmt: skip
    assert f"{count} records sent" in done.stdout.splitlines()[-1], done.stdout
    assert time.monotonic() - began >= DURATION_S / 2
    steady = [float(line.split(", ")[1].split()[0]) for line in done.stdout.splitlines()[1:-1]]
    return sum(steady) / len(steady) * len(VALUE)


def read_rate(bootstrap: str) -> float:
    """Bytes a second that confluent-kafka's consumer reads."""
    config = {"bootstrap.servers": bootstrap, "group.id": "g", "client.id": "reader", "check.crcs": False}
    consumer = Consumer({**config, "queued.max.messages.kbytes": 2000, "fetch.message.max.bytes": 50_000})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    read = 0
    began = time.monotonic()
    while time.monotonic() - began < DURATION_S:
        for message in consumer.consume(100, 0.1):
            assert message.error() is None
            read += len(message.value() or b"")
    consumer.close()
    return read / DURATION_S


def throttle_time_ms(cluster: Supervisor, kind: str, client_id: str) -> float:
    with urllib.request.urlopen(f"http://{cluster.plan.nodes[0].metrics_address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    of_client = f'client_id="{client_id}"'
    rows = [line for line in lines if line.startswith(f"kafka_server_{kind}_throttle_time") and of_client in line]
    return max((float(row.split()[-1]) for row in rows), default=0.0)


def is_near(rate: float) -> bool:
    """Within a tenth of the quota."""
    return abs(rate / RATE - 1) <= 0.1


@pytest.mark.long
def test_producers_get_what_their_quotas_give(limited: Supervisor, java_command: list[str]) -> None:
    bootstrap = limited.plan.bootstrap
    for client in ("confluent", "kafka-python", "java"):
        ok("quotas", "set", "--client-id", client, f"producer_byte_rate={RATE}", "-b", bootstrap)
    with ThreadPoolExecutor(3) as threads:
        runs: dict[str, Callable[[], float]] = {
            "confluent": lambda: confluent_rate(bootstrap),
            "kafka-python": lambda: kafka_python_rate(bootstrap),
            "java": lambda: java_rate(java_command, bootstrap),
        }
        waiting = {name: threads.submit(run) for name, run in runs.items()}
        longest_ms = 0.0
        while wait(waiting.values(), timeout=0.5).not_done:
            longest_ms = max(longest_ms, *(throttle_time_ms(limited, "produce", client) for client in runs))
        rates = {name: round(one.result()) for name, one in waiting.items()}
    assert all(map(is_near, rates.values())), rates
    assert longest_ms > 0


@pytest.mark.long
def test_a_consumer_gets_what_its_quota_gives(limited: Supervisor) -> None:
    bootstrap = limited.plan.bootstrap
    producer = ConfluentProducer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 16_000})
    for _ in range(int(RATE * DURATION_S * 1.5 / len(VALUE))):
        producer.produce(TOPIC, VALUE)
    assert producer.flush(60) == 0
    ok("quotas", "set", "--client-id", "reader", f"consumer_byte_rate={RATE}", "-b", bootstrap)
    rate = read_rate(bootstrap)
    assert is_near(rate), rate


def test_quotas_are_listed_and_removed(limited: Supervisor, tmp_path: Path) -> None:
    at = ("-b", limited.plan.bootstrap)
    ok("quotas", "set", "--user", "u", "--default-client-id", "producer_byte_rate=5000", "request_percentage=0.5", *at)
    ok("quotas", "set", "--default-ip", "connection_creation_rate=1000", *at)
    told = ok("quotas", "list", "--user", "u", *at)
    assert told == "default client-id, user u  producer_byte_rate=5000 request_percentage=0.5\n"
    rows = [json.loads(line) for line in ok("quotas", "list", "--json", *at).splitlines()]
    assert {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 1000.0}} in rows
    of_user = ("--user", "u", "--default-client-id", *at)
    told = fails(1, "quotas", "remove", *of_user, "request_percentage", "consumer_byte_rate")
    assert "has no quota consumer_byte_rate, and nothing was removed; raftwerk quotas list shows them" in told
    assert ok("quotas", "remove", *of_user, "request_percentage") == "Removed request_percentage.\n"
    assert ok("quotas", "remove", *of_user) == "Removed producer_byte_rate.\n"
    assert "user u, default client-id has no such quota; " in fails(1, "quotas", "remove", *of_user)
    ok("quotas", "remove", "--default-ip", *at)
    assert ok("quotas", "list", "--user", "u", *at) == ""
