"""Many connections to one broker: how fast they are accepted, what each takes, and how soon each is answered."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from ...cluster.client.cluster_client import ClusterClient
from ...wire.api_keys import ApiKey
from ...wire.codec import decode_response, encode_request
from ...wire.frames import RequestHeader, parse_response_header
from ...wire.frames import encode_request as encode_frame
from ...wire.records import encode_batch
from ..common.client_workloads import Figure
from ..common.raw_client import API_VERSIONS_REQUEST
from .peer import UNREPLICATED, Peer
from .throughput import topic

IDLE, ACTIVE = 5_000, 1_000
_CONNECTING_AT_ONCE = 50
_PRODUCE_VERSION = 9
_SETTLE_S = 0.5
_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _connect(host: str, port: int, count: int) -> list[_Stream]:
    """Connections that have been answered once."""
    free = asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def one() -> _Stream:
        async with free:
            reader, writer = await asyncio.open_connection(host, port, limit=4096)
            writer.write(API_VERSIONS_REQUEST)
            await _answer(reader)
            return reader, writer

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def _leader(bootstrap: str, name: str) -> tuple[str, int]:
    async with ClusterClient(bootstrap) as client:
        view = await client.metadata([name])
    leader = view.topic(name).partitions[0].leader
    return next((broker.host, broker.port) for broker in view.brokers if broker.node_id == leader)


@dataclass
class _Clients:
    """Clients that each send one record a second and wait for its ack."""

    request: bytes
    until: float
    times_s: list[float] = field(default_factory=list)
    bad: int = 0

    async def run(self, stream: _Stream, number: int) -> None:
        reader, writer = stream
        loop = asyncio.get_running_loop()
        due = loop.time() + number / ACTIVE
        while due < self.until:
            await asyncio.sleep(due - loop.time())
            began = time.perf_counter()
            writer.write(self.request)
            answer = await _answer(reader)
            self.times_s.append(time.perf_counter() - began)
            self.bad += _error_code(answer) != 0
            due += 1.0


def _error_code(frame: bytes) -> int:
    _, at = parse_response_header(int(ApiKey.PRODUCE), _PRODUCE_VERSION, memoryview(frame))
    answer: Any = decode_response(ApiKey.PRODUCE, _PRODUCE_VERSION, memoryview(frame)[at:])
    return int(answer.responses[0].partition_responses[0].error_code)


def _produce_request(name: str) -> bytes:
    batch = bytes(encode_batch([(None, b"x" * 100, [], int(time.time() * 1000))]))
    rows = [{"name": name, "partition_data": [{"index": 0, "records": batch}]}]
    body = encode_request(ApiKey.PRODUCE, _PRODUCE_VERSION, {"acks": 1, "timeout": 30_000, "topic_data": rows})
    frame = b"".join(encode_frame(RequestHeader(int(ApiKey.PRODUCE), _PRODUCE_VERSION, 1, "bench"), body))
    return bytes(frame)


async def _measure(peer: Peer, name: str, seconds: float) -> list[Figure]:
    host, port = await _leader(peer.bootstrap, name)
    figures = []
    with ExitStack() as stack:
        memory_before = peer.memory_mb()
        began = time.perf_counter()
        idle = await _connect(host, port, IDLE)
        elapsed = time.perf_counter() - began
        for _, writer in idle:
            stack.callback(writer.transport.abort)
        figures.append(Figure("connections accepted and answered once", IDLE / elapsed, "/s"))
        await asyncio.sleep(_SETTLE_S)
        memory_after = peer.memory_mb()
        if memory_before is not None and memory_after is not None:
            kilobytes = (memory_after - memory_before) * 1024 / IDLE
            figures.append(Figure(f"memory of a connection, of {IDLE:,} idle ones", kilobytes, "KB", 0, False))
        active = idle[:ACTIVE]
        clients = _Clients(_produce_request(name), asyncio.get_running_loop().time() + seconds)
        await asyncio.gather(*(clients.run(stream, number) for number, stream in enumerate(active)))
    times = sorted(clients.times_s)
    for percentile, q in (("p50", 0.5), ("p99", 0.99)):
        label = f"ack RF1 acks=1 of {ACTIVE:,} clients beside {IDLE - ACTIVE:,} idle ones, {percentile}"
        figures.append(Figure(label, times[int(len(times) * q)] * 1e3, "ms", clients.bad, False))
    return figures


def many(peer: Peer, seconds: float) -> Iterator[Figure]:
    """5,000 connections to one broker, of which 1,000 then send a record a second each."""
    with topic(peer, "connections", UNREPLICATED) as name:
        yield from asyncio.run(_measure(peer, name, seconds))
