"""Kafka Streams with `exactly_once_v2`: a word count whose brokers and whose own process are killed."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.e2e import helpers
from support.e2e.consumers import confluent

from raftwerk.cluster.local.supervisor import Supervisor

SOURCE = Path(helpers.__file__).parent / "java" / "WordCount.java"
PARTITIONS = 3
WORDS = [f"word-{number}" for number in range(20)]
WORDS_PER_LINE = 5
TIMEOUT_S = 60.0

pytestmark = pytest.mark.java


class WordCount:
    """The application: one process after the other, the next with no state but what is in the cluster."""

    def __init__(self, java_command: list[str], arguments: list[str], directory: Path) -> None:
        self._command = [*java_command, str(SOURCE), *arguments]
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        state = self._directory / f"state-{len(self._processes)}"
        nothing = subprocess.DEVNULL
        self._processes.append(subprocess.Popen([*self._command, str(state)], stdout=nothing, stderr=nothing))

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def word_count(
    new_cluster: Callable[..., Supervisor], java_command: list[str], topic: str, tmp_path: Path
) -> Iterator[tuple[Supervisor, WordCount]]:
    libs = Path(java_command[-1]).parent
    if not list(libs.glob("kafka-streams-*.jar")):
        pytest.skip(f"no jars of Kafka Streams in {libs} (make kafka-jars gets them): it is NOT tested")
    supervisor = new_cluster()
    bootstrap = supervisor.plan.bootstrap
    for name in (topic, f"{topic}-counts"):
        helpers.create_topic(bootstrap, name, PARTITIONS, min_insync_replicas="2")
    application = WordCount(java_command, [bootstrap, f"{topic}-app", topic, f"{topic}-counts"], tmp_path)
    yield supervisor, application
    application.kill()


def counts(consumer: Consumer, seen: dict[str, list[int]], total: int) -> None:
    """Read counts by word until there are `total` in all."""
    deadline = time.monotonic() + TIMEOUT_S
    while sum(map(len, seen.values())) < total:
        assert time.monotonic() < deadline, f"{sum(map(len, seen.values()))} of {total} words are counted"
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            seen[(message.key() or b"").decode()].append(int(message.value() or b""))


@pytest.mark.long
def test_each_word_is_counted_once(word_count: tuple[Supervisor, WordCount], topic: str) -> None:
    """Each count is one more than the one before: nothing is lost, doubled, or read before it is committed."""
    supervisor, application = word_count
    bootstrap, rng = supervisor.plan.bootstrap, random.Random(1)
    source = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    reader = confluent(bootstrap, f"{topic}-reader", **{"isolation.level": "read_committed"})
    reader.assign([TopicPartition(f"{topic}-counts", index, 0) for index in range(PARTITIONS)])
    sent = dict.fromkeys(WORDS, 0)
    seen: dict[str, list[int]] = {word: [] for word in WORDS}

    def send(lines: int) -> None:
        for _ in range(lines):
            line = [rng.choice(WORDS) for _ in range(WORDS_PER_LINE)]
            for word in line:
                sent[word] += 1
            source.produce(topic, " ".join(line), partition=rng.randrange(PARTITIONS))
        source.poll(0)

    application.start()
    send(100)
    counts(reader, seen, sum(sent.values()))
    for victim in (1, 2, 3):
        send(100)
        supervisor.kill(victim)
        send(100)
        if victim == 2:
            application.kill()
            application.start()
        counts(reader, seen, sum(sent.values()) - 100 * WORDS_PER_LINE)
        supervisor.start_node(victim)
        supervisor.wait_ready()
    assert source.flush(TIMEOUT_S) == 0
    counts(reader, seen, sum(sent.values()))
    reader.close()
    assert seen == {word: list(range(1, count + 1)) for word, count in sent.items()}
