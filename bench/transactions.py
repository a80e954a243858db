"""`python -m raftwerk.bench transactions`: transactions of Raftwerk and of Apache Kafka, by one client in one run.

Each system runs on three nodes with three replicas, one system after the other. Every row has the same length in both.
The result is a Markdown table. Apache Kafka is measured if its jars are there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .common.client_workloads import PARTITIONS, Figure, consume, create_topic, new_producer
from .common.side_by_side import REPLICAS, run
from .common.systems import ApacheKafka, System

COMMIT_INTERVAL_S = 0.1
_CLIENT_TIMEOUT_S = 60.0
_SMALL, _LARGE = 100, 1024


class CommitTimes:
    """How long each commit of some producers took; `failed` counts those that raised."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.failed = 0

    def commit(self, producer: Any) -> None:
        """Commit the producer's transaction; abort it if that fails."""
        from confluent_kafka import KafkaException

        began = time.perf_counter()
        try:
            producer.commit_transaction(_CLIENT_TIMEOUT_S)
        except KafkaException as error:
            self.failed += 1
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(_CLIENT_TIMEOUT_S)
        else:
            self.times_s.append(time.perf_counter() - began)

    def figures(self, name: str, seconds: float) -> Iterator[Figure]:
        """Commits a second, and the median and the 99th percentile of the time of a commit."""
        yield Figure(f"{name}: commits", len(self.times_s) / seconds, "/s", self.failed)
        times = sorted(self.times_s) or [float("nan")]
        for label, quantile in (("p50", 0.5), ("p99", 0.99)):
            yield Figure(f"{name}: commit {label}", times[int(len(times) * quantile)] * 1e3, "ms", self.failed, False)


def transactional_producer(bootstrap: str, transactional_id: str) -> Any:
    """A producer whose transactional id is initialized. Raises `KafkaException`."""
    producer = new_producer(bootstrap, -1, **{"transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(_CLIENT_TIMEOUT_S)
    return producer


def commit_for(producer: Any, topic: str, records: int, seconds: float, times: CommitTimes) -> None:
    """Commit transactions of `records` records, which go to the partitions in turn, for some seconds."""
    value, sent = os.urandom(_SMALL), 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value, partition=sent % PARTITIONS)
            sent += 1
        times.commit(producer)


def one_producer(bootstrap: str, topic: str, records: int, seconds: float) -> Iterator[Figure]:
    """The commits of one producer that does nothing else."""
    producer, times = transactional_producer(bootstrap, f"{topic}-{records}"), CommitTimes()
    began = time.perf_counter()
    commit_for(producer, topic, records, seconds, times)
    yield from times.figures(f"{records} record{'s' * (records > 1)} a transaction", time.perf_counter() - began)


def many_producers(bootstrap: str, topic: str, count: int, seconds: float) -> Iterator[Figure]:
    """The commits of many producers at once, of one record each; all have connected and committed before."""
    with ThreadPoolExecutor(count) as pool:
        producers = list(pool.map(lambda at: transactional_producer(bootstrap, f"{topic}-{at}"), range(count)))

        def run(duration_s: float) -> list[CommitTimes]:
            times = [CommitTimes() for _ in producers]
            list(pool.map(lambda at: commit_for(producers[at], topic, 1, duration_s, times[at]), range(count)))
            return times

        run(seconds / 2)
        began = time.perf_counter()
        all_times = run(seconds)
        took = time.perf_counter() - began
    total = CommitTimes()
    for one in all_times:
        total.times_s += one.times_s
        total.failed += one.failed
    yield from total.figures(f"{count} producers", took)


def produce_for(producer: Any, topic: str, seconds: float, commits: CommitTimes | None) -> tuple[int, float, int]:
    """Produce as much as the client takes; how many records, in how many seconds, and how many were not delivered.

    With `commits`, the producer commits every `COMMIT_INTERVAL_S`.
    """
    value, sent, failed = os.urandom(_LARGE), 0, [0]

    def delivered(error: Any, _message: Any) -> None:
        failed[0] += error is not None

    began = time.perf_counter()
    commit_at = began + COMMIT_INTERVAL_S
    if commits is not None:
        producer.begin_transaction()
    while (now := time.perf_counter()) < began + seconds:
        if commits is not None and now >= commit_at:
            commits.commit(producer)
            producer.begin_transaction()
            commit_at = time.perf_counter() + COMMIT_INTERVAL_S
        try:
            for _ in range(100):
                told = delivered if sent % 1000 == 0 else None
                producer.produce(topic, value, partition=sent % PARTITIONS, on_delivery=told)
                sent += 1
        except BufferError:
            producer.poll(0.05)  # a client that tries again sooner takes processor time from the brokers
        producer.poll(0)
    if commits is not None:
        commits.commit(producer)
    failed[0] += producer.flush(_CLIENT_TIMEOUT_S) + (commits.failed if commits is not None else 0)
    return sent, time.perf_counter() - began, failed[0]


def throughput(bootstrap: str, topic: Callable[[str], str], seconds: float) -> Iterator[Figure]:
    """An idempotent producer, the same one with transactions, and a consumer with `read_committed` of the latter."""
    bounded = {"queue.buffering.max.kbytes": 16_384}  # what is queued when the time is over takes no long time to send
    idempotent = new_producer(bootstrap, -1, **{"enable.idempotence": True, **bounded})
    produce_for(idempotent, topic("warm-throughput"), seconds / 2, None)
    sent, took, bad = produce_for(idempotent, topic("idempotent"), seconds, None)
    plain = sent * _LARGE / took / 1e6
    yield Figure("idempotent produce, 1 KB", plain, "MB/s", bad)
    name = topic("transactional")
    producer = new_producer(bootstrap, -1, **{"transactional.id": name, **bounded})
    producer.init_transactions(_CLIENT_TIMEOUT_S)
    sent, took, bad = produce_for(producer, name, seconds, CommitTimes())
    transactional = sent * _LARGE / took / 1e6
    yield Figure("transactional produce, 1 KB, a commit each 100 ms", transactional, "MB/s", bad)
    yield Figure("throughput lost by transactions", (1 - transactional / plain) * 100, "%", bad, False)
    read = consume(bootstrap, name, sent, _LARGE)
    yield Figure("read_committed consume, 1 KB", read.value, "MB/s", read.bad)


def measure(system: System, seconds: float) -> Iterator[Figure]:
    """All rows of a running system."""
    bootstrap, tag = system.bootstrap, f"transactions{int(time.time())}"

    def topic(name: str) -> str:
        return create_topic(bootstrap, f"{tag}-{name}", REPLICAS)

    for _ in one_producer(bootstrap, topic("warm"), 1, seconds / 2):
        pass  # creates `__transaction_state`, and warms up what compiles at run time
    for records in (1, 10, 100):
        yield from one_producer(bootstrap, topic(f"of-{records}"), records, seconds)
    yield from many_producers(bootstrap, topic("many"), 100, seconds)
    yield from throughput(bootstrap, topic, seconds)


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code is 1 if a figure has errors."""
    return run(arguments, "transactions", __doc__, measure, ours=System, theirs=ApacheKafka)
