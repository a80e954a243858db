"""Throughput, and the processor time of the nodes that it takes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from statistics import harmonic_mean

from ..common import client_workloads
from ..common.client_workloads import PARTITIONS, Figure
from .peer import UNREPLICATED, Peer, Replication

SIZES = ((1024, 300_000), (100, 800_000))
"""Bytes of a record, and how many of them."""
READS = 5
"""How often a single consumer reads the data of a row: once takes a third of a second, which is too short."""
CONSUMERS = (3, 10)
ONE_RECORD_REQUESTS = 30_000
_SETTLE_S = 0.5
_numbers = itertools.count(1)


@contextmanager
def topic(peer: Peer, kind: str, replication: Replication, partitions: int = PARTITIONS) -> Iterator[str]:
    """A new topic, which is deleted afterwards."""
    from confluent_kafka.admin import AdminClient

    name = f"bench-{int(time.time())}-{kind}-{next(_numbers)}"
    client_workloads.create_topic(peer.bootstrap, name, replication.replicas, partitions)
    try:
        yield name
    finally:
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 4})
        admin.delete_topics([name])[name].result()


def _costed(peer: Peer, name: str, cost: str, amount: float, work: Callable[[], Figure]) -> Iterator[Figure]:
    """The figure of the work by this name, and the processor time of all nodes for each unit of the amount."""
    before = peer.cpu_seconds()
    figure = work()
    time.sleep(_SETTLE_S)  # followers take what was written last
    after = peer.cpu_seconds()
    yield Figure(name, figure.value, figure.unit, figure.bad)
    if before is not None and after is not None:
        yield Figure(f"{name}, processor time", (after - before) / amount, cost, 0, False)


def _consume_at_once(peer: Peer, name: str, count: int, size: int, consumers: int) -> Figure:
    with ThreadPoolExecutor(consumers) as threads:
        began = time.perf_counter()
        running = [
            threads.submit(client_workloads.consume, peer.bootstrap, name, count, size, **{"group.id": f"{name}-{one}"})
            for one in range(consumers)
        ]
        figures = [one.result() for one in running]
        seconds = time.perf_counter() - began
    return Figure("", consumers * count * size / seconds / 1e6, "MB/s", sum(one.bad for one in figures))


def _consume_repeatedly(peer: Peer, name: str, count: int, size: int) -> Figure:
    """The mean rate of consumers that read all of the topic, one after the other."""
    figures = [client_workloads.consume(peer.bootstrap, name, count, size) for _ in range(READS)]
    return Figure("", harmonic_mean(one.value for one in figures), "MB/s", sum(one.bad for one in figures))


def batches(peer: Peer, replication: Replication, scale: float) -> Iterator[Figure]:
    """Large batches: one producer, then one consumer and several of the same data."""
    for size, full in SIZES:
        count = int(full * scale)
        gigabytes = count * size / 1e9
        with topic(peer, f"{size}", replication) as name:
            label = f"{replication}, {size:,} B"
            yield from _costed(
                peer,
                f"produce {label}",
                "s/GB",
                gigabytes,
                partial(client_workloads.produce, peer.bootstrap, name, count, size, replication.acks),
            )
            yield from _costed(
                peer,
                f"consume {label}",
                "s/GB",
                gigabytes * READS,
                partial(_consume_repeatedly, peer, name, count, size),
            )
            if replication.replicas == 1 or size < 1024:
                continue
            for consumers in CONSUMERS:
                yield from _costed(
                    peer,
                    f"{consumers} consumers at once RF{replication.replicas}, {size:,} B",
                    "s/GB",
                    gigabytes * consumers,
                    partial(_consume_at_once, peer, name, count, size, consumers),
                )


def one_record_row(replication: Replication) -> str:
    """The name of the row with the one-record requests a second."""
    return f"one-record requests {replication}"


def one_record_requests(peer: Peer, replication: Replication, scale: float) -> Iterator[Figure]:
    """Requests of one record each, as many as go at once."""
    count = int(ONE_RECORD_REQUESTS * scale)
    with topic(peer, "single", replication) as name:
        yield from _costed(
            peer,
            one_record_row(replication),
            "s/million",
            count / 1e6,
            partial(client_workloads.produce_single, peer.bootstrap, name, count, replication.acks),
        )


def idle(peer: Peer, seconds: float, what: str) -> Iterator[Figure]:
    """Processor time of all nodes that have nothing to do, in percent of a core, and their memory."""
    before = peer.cpu_seconds()
    time.sleep(seconds)
    after, memory = peer.cpu_seconds(), peer.memory_mb()
    if before is not None and after is not None and memory is not None:
        yield Figure(f"idle {what}, all nodes", (after - before) / seconds * 100, "% of a core", 0, False)
        yield Figure(f"memory {what}, a node", memory / len(peer.pids), "MB", 0, False)


def warm_up(peer: Peer, scale: float) -> None:
    """Let a JVM compile what will be measured."""
    for replication in (UNREPLICATED, peer.replicated):
        with topic(peer, "warm", replication) as name:
            count = int(200_000 * scale)
            client_workloads.produce(peer.bootstrap, name, count, 1024, replication.acks)
            client_workloads.consume(peer.bootstrap, name, count, 1024)
            client_workloads.produce_single(peer.bootstrap, name, int(20_000 * scale), replication.acks)
