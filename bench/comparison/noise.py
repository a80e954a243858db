"""What goes on beside a measurement of latency. All of it is done by processes of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.reassignment import Move, reassign, wait_for_moves
from ..common.client_workloads import new_producer, produce
from ..common.page_cache import drop_from_page_cache
from ..common.raw_client import API_VERSIONS_REQUEST
from .peer import UNREPLICATED, Peer
from .throughput import topic

IDLE_CONNECTIONS = 2_000
_COMPACTED_MB_PER_S = 5
_COMPACTED_KEYS = 20_000
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
    "file.delete.delay.ms": "1000",
}
_OLD_RECORDS = 250_000
_MOVED_RECORDS = 250_000
_READY_TIMEOUT_S = 60.0
_MOVE_TIMEOUT_S = 120.0


@contextmanager
def _beside(work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Let a process do the work, which says when it has begun, until the block ends."""
    context = get_context("spawn")
    begun, is_over = context.Event(), context.Event()
    process = context.Process(target=work, args=(*arguments, begun, is_over))
    process.start()
    try:
        if not begun.wait(_READY_TIMEOUT_S):
            raise TimeoutError(f"{work.__name__} has not begun after {_READY_TIMEOUT_S:g} s")
        yield
    finally:
        is_over.set()
        process.join(_READY_TIMEOUT_S)
        if process.is_alive():
            process.kill()
        if process.exitcode:
            raise RuntimeError(f"{work.__name__} failed: it ended with exit code {process.exitcode}")


def _write_keys(bootstrap: str, name: str, begun: Event, is_over: Event) -> None:
    producer, value = new_producer(bootstrap, 1), os.urandom(1024)
    written, began = 0, time.monotonic()
    while not is_over.is_set():
        due = (time.monotonic() - began) * _COMPACTED_MB_PER_S * 1e6 / len(value)
        while written < due:
            producer.produce(name, value, b"%d" % (written * 48271 % _COMPACTED_KEYS))
            written += 1
        producer.poll(0.01)
        if time.monotonic() - began > 1:
            begun.set()
    producer.flush(20)


@contextmanager
def compaction(peer: Peer) -> Iterator[None]:
    """5 MB/s of keys that are replaced soon, in a compacted topic with small segments."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin, name = (
        AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 4}),
        f"bench-compacted-{time.time_ns()}",
    )
    admin.create_topics([NewTopic(name, 3, peer.replicated.replicas, config=_COMPACTED)])[name].result()
    with _beside(_write_keys, peer.bootstrap, name):
        yield
    admin.delete_topics([name])[name].result()


def _read_again_and_again(bootstrap: str, name: str, begun: Event, is_over: Event) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False}
    consumer = Consumer(settings | {"fetch.queue.backoff.ms": 5, "queued.max.messages.kbytes": 65_536})
    while not is_over.is_set():
        consumer.assign([TopicPartition(name, partition, 0) for partition in range(6)])
        read = 0
        while read < _OLD_RECORDS and not is_over.is_set():
            read += len(consumer.consume(1000, 1.0))
            begun.set()
    consumer.close()


@contextmanager
def cold_reader(peer: Peer) -> Iterator[None]:
    """A consumer that reads a quarter of a gigabyte from its beginning; from the disk, where we know the files."""
    with topic(peer, "old", peer.replicated) as name:
        produce(peer.bootstrap, name, _OLD_RECORDS, 1024, -1)
        if peer.directory is not None:
            for directory, _, _ in os.walk(peer.directory):  # passes over directories that are deleted meanwhile
                if Path(directory).name.startswith(f"{name}-"):
                    for log in Path(directory).glob("*.log"):
                        drop_from_page_cache(log)
        with _beside(_read_again_and_again, peer.bootstrap, name):
            yield


def _connect_and_wait(bootstrap: str, begun: Event, is_over: Event) -> None:
    addresses = [one.rpartition(":") for one in bootstrap.split(",")]
    with ExitStack() as stack:
        for number in range(IDLE_CONNECTIONS):
            host, _, port = addresses[number % len(addresses)]
            connection = stack.enter_context(socket.create_connection((host, int(port)), 20))
            connection.sendall(API_VERSIONS_REQUEST)
            connection.recv(65_536)
        begun.set()
        is_over.wait()


@contextmanager
def idle_connections(peer: Peer) -> Iterator[None]:
    """2,000 connections that have asked for ApiVersions and are silent since."""
    with _beside(_connect_and_wait, peer.bootstrap):
        yield


@contextmanager
def joining_replica(peer: Peer) -> Iterator[None]:
    """A partition of a quarter of a gigabyte gets a further replica, which copies all of it."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 4})
    with topic(peer, "moved", UNREPLICATED) as name:
        produce(peer.bootstrap, name, _MOVED_RECORDS, 1024, 1)
        view = admin.list_topics(timeout=10)
        moves = []
        for partition in view.topics[name].partitions.values():
            others = [broker for broker in view.brokers if broker not in partition.replicas]
            moves.append(Move(name, partition.id, (*partition.replicas, *others[:1])))
        asyncio.run(_start(peer.bootstrap, moves))
        yield
        asyncio.run(_wait_until_moved(peer.bootstrap, moves))


async def _start(bootstrap: str, moves: list[Move]) -> None:
    async with ClusterClient(bootstrap) as client:
        await reassign(client, moves)


async def _wait_until_moved(bootstrap: str, moves: list[Move]) -> None:
    async with ClusterClient(bootstrap) as client:
        await wait_for_moves(client, moves, _MOVE_TIMEOUT_S)
