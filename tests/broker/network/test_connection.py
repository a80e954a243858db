"""Connections in memory: order, back-pressure, refusals, and that a bad client does not affect others."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import resource
import socket
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker.broker_harness import (
    TOPIC,
    FakeTransport,
    Harness,
    connection_of,
    correlation_ids,
    decode_answer,
    run,
    settle,
)
from support.ports import free_port

from raftwerk.broker.network.connection import ConnectionLimits
from raftwerk.broker.network.loop_budget import UNITS_ALONE
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.runtime.invariants import InvariantViolation
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.records import encode_batch

BATCH = bytes(encode_batch([(None, b"value", [], 1)]))


def produce(harness: Harness, acks: int = 1, version: int = 9, records: bytes = BATCH, partition: int = 0) -> bytes:
    partitions = [{"index": partition, "records": records}]
    fields = {"acks": acks, "timeout": 1000, "topic_data": [{"name": TOPIC, "partition_data": partitions}]}
    return harness.frame(ApiKey.PRODUCE, version, fields)


def api_versions(harness: Harness, version: int = 0) -> bytes:
    return harness.frame(ApiKey.API_VERSIONS, version, {})


def test_pipelined_requests_of_one_read_are_answered_in_one_write() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        transport.deliver(b"".join(produce(harness) for _ in range(50)))
        assert correlation_ids(transport) == list(range(1, 51))
        assert transport.writes == 1
        assert len(harness.replicas.appended) == 50

    run(main())


def test_responses_completed_in_one_iteration_go_out_in_one_write_and_in_order() -> None:
    async def main() -> None:
        harness = Harness()
        harness.replicas.hold = True
        transport = harness.connect()
        for _ in range(5):
            transport.deliver(produce(harness, acks=-1))
        for callback in reversed(harness.replicas.held):
            callback()
        await settle()
        assert correlation_ids(transport) == [1, 2, 3, 4, 5]
        assert transport.writes == 1

    run(main())


@given(st.lists(st.sampled_from(["produce", "fetch", "forward", "versions"]), min_size=1, max_size=12), st.randoms())
@settings(max_examples=60)
def test_responses_are_in_the_order_of_the_requests(kinds: list[str], rng: random.Random) -> None:
    async def main() -> None:
        harness = Harness()
        harness.replicas.hold = True
        harness.controller.answer = {"topics": [], "throttle_time": 0}
        transport = harness.connect()
        frames = {
            "produce": lambda: produce(harness, acks=-1),
            "fetch": lambda: harness.frame(ApiKey.FETCH, 4, fetch_fields()),
            "forward": lambda: harness.frame(ApiKey.CREATE_TOPICS, 5, {"topics": []}),
            "versions": lambda: api_versions(harness),
        }
        transport.deliver(b"".join(frames[kind]() for kind in kinds), chunk=rng.randint(1, 500))
        for _ in range(4 * len(kinds)):
            held = harness.replicas.held
            if held:
                held.pop(rng.randrange(len(held)))()
            await settle(4)
        assert correlation_ids(transport) == list(range(1, len(kinds) + 1))
        assert connection_of(transport).in_flight == 0

    run(main())


def fetch_fields() -> dict[str, Any]:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    topics = [{"topic": TOPIC, "partitions": partitions}]
    return {"replica_id": -1, "max_wait": 10, "min_bytes": 1, "max_bytes": 1000, "topics": topics}


def test_a_request_starts_when_earlier_ones_are_answered() -> None:
    async def main() -> None:
        harness = Harness()
        harness.controller.answer = {"topics": [], "throttle_time": 0}
        harness.controller.gate = asyncio.Event()
        transport = harness.connect()
        metadata = harness.frame(ApiKey.METADATA, 5, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True})
        transport.deliver(harness.frame(ApiKey.CREATE_TOPICS, 5, {"topics": []}) + metadata)
        await settle()
        assert harness.controller.created == []
        assert not transport.reading
        harness.controller.gate.set()
        await settle()
        assert harness.controller.created == ["new"]
        assert len(transport.frames()) == 2
        assert transport.reading

    run(main())


def test_reading_stops_at_the_limit_of_requests_in_flight() -> None:
    async def main() -> None:
        harness = Harness(ConnectionLimits(max_in_flight=3))
        harness.replicas.hold = True
        transport = harness.connect()
        transport.deliver(b"".join(produce(harness, acks=-1) for _ in range(10)))
        assert len(harness.replicas.held) == 3
        assert not transport.reading
        for _ in range(10):
            harness.replicas.held.pop(0)()
            await settle(4)
        assert correlation_ids(transport) == list(range(1, 11))
        assert transport.reading

    run(main())


def test_other_connections_are_served_during_a_flood_of_requests() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        transport.deliver(b"".join(produce(harness) for _ in range(3 * UNITS_ALONE)), chunk=2000)
        assert len(transport.frames()) == UNITS_ALONE
        assert not transport.reading
        await settle()
        assert len(transport.frames()) == 3 * UNITS_ALONE
        assert transport.reading

    run(main())


def test_reading_stops_at_the_limit_of_bytes_in_flight() -> None:
    async def main() -> None:
        harness = Harness(ConnectionLimits(max_in_flight_bytes=300))
        harness.replicas.hold = True
        transport = harness.connect()
        transport.deliver(b"".join(produce(harness, acks=-1) for _ in range(10)))
        assert 1 < len(harness.replicas.held) < 10
        assert not transport.reading

    run(main())


def test_reading_stops_while_the_client_does_not_read() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        connection_of(transport).pause_writing()
        transport.deliver(produce(harness))
        assert not transport.reading
        assert harness.replicas.appended == []
        connection_of(transport).resume_writing()
        await settle()
        assert len(transport.frames()) == 1
        assert transport.reading

    run(main())


class Unread(FakeTransport):
    """A connection with TLS whose client reads nothing: the protocol is told when a mebibyte is unsent."""

    is_full = False

    def __init__(self) -> None:
        super().__init__()
        self.tls = object()

    def write(self, data: Any) -> None:
        self.unsent_bytes += len(data)
        if self.unsent_bytes > 1 << 20 and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()

    def is_read(self) -> None:
        self.unsent_bytes, self.is_full = 0, False
        self.protocol.resume_writing()


def fetches(harness: Harness, count: int) -> bytes:
    rows = [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    fields = {"replica_id": -1, "max_wait": 5, "min_bytes": 1, "max_bytes": 50 << 20, "isolation_level": 0,
              "session_id": 0, "session_epoch": -1, "topics": [{"topic": TOPIC, "partitions": rows}]}  # fmt: skip
    return b"".join(harness.frame(ApiKey.FETCH, 11, fields) for _ in range(count))


def test_of_pipelined_fetches_few_answers_are_in_memory_while_the_client_reads_nothing() -> None:
    """With TLS the answers are in memory. They are charged by their bytes."""

    async def main() -> None:
        harness = Harness()
        harness.replicas.records[f"{TOPIC}-0"] = bytes(encode_batch([(None, b"v" * 400_000, [], 1)]))
        transport = Unread()
        transport.protocol = harness.server.make_connection()
        transport.protocol.connection_made(transport)
        transport.deliver(fetches(harness, 100))
        sent = 0
        while sent < 100 * 400_000:
            await settle()
            assert 0 < transport.unsent_bytes < 2_000_000
            sent += transport.unsent_bytes
            transport.is_read()

    run(main())


def test_few_answers_are_in_memory_while_an_earlier_one_is_not_there_yet() -> None:
    async def main() -> None:
        harness = Harness()
        harness.replicas.records[f"{TOPIC}-0"] = bytes(encode_batch([(None, b"v" * 400_000, [], 1)]))
        harness.replicas.hold = True
        transport = harness.connect()
        transport.deliver(fetches(harness, 1))
        harness.replicas.hold = False
        transport.deliver(fetches(harness, 50))
        await settle()
        assert connection_of(transport).in_flight == 1 + 3
        harness.replicas.held.pop()()
        await settle(200)
        assert correlation_ids(transport) == list(range(1, 52))
        assert transport.reading

    run(main())


def test_write_pause_while_blocked_is_not_forgotten() -> None:
    async def main() -> None:
        harness = Harness(ConnectionLimits(max_in_flight=1))
        harness.replicas.hold = True
        transport = harness.connect()
        transport.deliver(produce(harness, acks=-1) + produce(harness, acks=-1))
        connection_of(transport).pause_writing()
        harness.replicas.held.pop(0)()
        await settle()
        assert harness.replicas.held == []
        connection_of(transport).resume_writing()
        await settle()
        harness.replicas.held.pop(0)()
        await settle()
        assert correlation_ids(transport) == [1, 2]
        assert transport.reading

    run(main())


def test_requests_are_carried_out_after_the_client_has_closed_its_side() -> None:
    async def main() -> None:
        harness = Harness(ConnectionLimits(max_in_flight=1))
        harness.replicas.hold = True
        transport = harness.connect()
        transport.deliver(produce(harness, acks=0) + produce(harness, acks=0))
        assert connection_of(transport).eof_received() is True
        for _ in range(2):
            harness.replicas.held.pop(0)()
            await settle()
        assert len(harness.replicas.appended) == 2
        assert transport.closing

    run(main())


def test_acks_0_is_never_answered_and_an_error_closes() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        transport.deliver(produce(harness, acks=0) + produce(harness, acks=1))
        assert correlation_ids(transport) == [2]
        transport.deliver(produce(harness, acks=0, partition=99))
        assert transport.closing

    run(main())


@pytest.mark.parametrize(
    ("bytes_sent", "reason"),
    [
        (struct.pack(">i", 0), "a frame of 0 bytes"),
        (struct.pack(">i", -7), "a frame of -7 bytes"),
        (struct.pack(">i", 2**31 - 1), "socket.request.max.bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP"),
        (bytes.fromhex("16030100c8010000c40303"), "the client speaks TLS"),
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), "unknown API key 999"),
        (struct.pack(">ihhihb", 11, 0, 99, 1, -1, 0), "PRODUCE v99"),
        (struct.pack(">ihhih", 10, 8, 1, 1, -1), "OFFSET_COMMIT"),
        (struct.pack(">ih", 2, 3), "malformed request header"),
        (struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1), "malformed METADATA v1"),
        (struct.pack(">ihhihi", 14, 0, 3, 1, -1, 2**31 - 1), "malformed PRODUCE v3"),
    ],
)
def test_other_protocols_are_closed_and_logged_once(
    bytes_sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        harness = Harness()
        other = harness.connect("192.0.2.9")
        for _ in range(3):
            transport = harness.connect()
            transport.deliver(bytes_sent)
            assert transport.closing
            assert transport.written == b""
        other.deliver(produce(harness))
        assert len(other.frames()) == 1
        assert harness.server.rejected_total == 3
        assert not harness.fatal

    with caplog.at_level(logging.WARNING, "raftwerk.broker"):
        run(main())
    assert [reason in record.getMessage() for record in caplog.records] == [True]


@given(st.lists(st.binary(max_size=300), max_size=6), st.integers(1, 300), st.booleans())
@settings(max_examples=300)
def test_random_bytes_never_raise_and_others_are_served(pieces: list[bytes], chunk: int, framed: bool) -> None:
    async def main() -> None:
        harness = Harness()
        transport, other = harness.connect(), harness.connect("192.0.2.9")
        for piece in pieces:
            transport.deliver(struct.pack(">i", len(piece)) + piece if framed else piece, chunk)
        await settle()
        other.deliver(api_versions(harness))
        assert len(other.frames()) == 1
        assert not harness.fatal

    run(main())


@given(st.sampled_from([int(key) for key in ApiKey]), st.integers(0, 19), st.binary(max_size=200))
@settings(max_examples=400)
def test_random_bodies_of_every_api_end_in_an_answer_or_a_closed_connection(
    key: int, version: int, body: bytes
) -> None:
    async def main() -> None:
        harness = Harness()
        harness.controller.answer = {"throttle_time": 0, "topics": [], "responses": [], "results": []}
        transport, other = harness.connect(), harness.connect("192.0.2.9")
        frame = struct.pack(">hhih", key, version, 77, -1) + body
        transport.deliver(struct.pack(">i", len(frame)) + frame)
        await settle()
        acks_0 = key == ApiKey.PRODUCE and not transport.frames()
        assert transport.closing or len(transport.frames()) == 1 or acks_0
        other.deliver(api_versions(harness))
        assert len(other.frames()) == 1

    run(main())


def test_an_exception_in_a_handler_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        harness = Harness()
        harness.replicas.fail_with = RuntimeError("a defect")
        transport = harness.connect()
        transport.deliver(produce(harness) + api_versions(harness))
        answer = decode_answer(ApiKey.PRODUCE, 9, transport.frames()[0])
        assert answer.responses[0].partition_responses[0].error_code == -1
        assert len(transport.frames()) == 2
        assert not harness.fatal

    run(main())
    assert "a defect" in caplog.text


def test_a_broken_invariant_is_reported_as_fatal() -> None:
    async def main() -> None:
        harness = Harness()
        harness.replicas.fail_with = InvariantViolation("must hold")
        transport = harness.connect()
        transport.deliver(produce(harness))
        assert transport.closing
        assert [str(error) for error in harness.fatal] == ["must hold"]

    run(main())


def test_idle_connections_are_closed_and_busy_ones_kept() -> None:
    async def main() -> None:
        harness = Harness()
        idle, busy, waiting = harness.connect(), harness.connect(), harness.connect()
        harness.replicas.hold = True
        waiting.deliver(produce(harness, acks=-1))
        for _ in range(12):
            busy.deliver(api_versions(harness))
            harness.server._close_idle()
        assert (idle.closing, busy.closing, waiting.closing) == (True, False, False)
        await harness.server.stop()

    run(main())


def test_a_client_that_reads_no_responses_is_closed_when_it_is_idle(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        harness = Harness()
        silent, slow, done = harness.connect(), harness.connect(), harness.connect()
        silent.unsent_bytes = slow.unsent_bytes = done.unsent_bytes = 1_000_000
        for tick in range(12):
            slow.unsent_bytes -= 1
            if tick == 10:  # the client has read all, and the transport tells of it
                done.unsent_bytes = 0
                connection_of(done).resume_writing()
            harness.server._close_idle()
        assert (silent.is_lost, slow.closing, done.closing) == (True, False, False)
        assert "did not read its responses" in caplog.text
        await harness.server.stop()

    run(main())


def test_a_client_that_was_refused_and_reads_no_responses_is_not_waited_for() -> None:
    async def main() -> None:
        harness = Harness()
        harness.replicas.hold = True
        client = harness.connect()
        client.deliver(produce(harness, acks=-1))
        client.unsent_bytes = 1_000_000
        client.deliver(b"GET / HTTP/1.1")
        assert client.closing and not client.is_lost
        for _ in range(12):
            harness.server._close_idle()
        await settle()
        assert client.is_lost and not harness.server.connections
        await harness.server.stop()

    run(main())


def test_connections_are_refused_while_few_file_descriptors_are_left(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        harness = Harness()
        await harness.server.start()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(30)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 20, hard))
            connections = [await asyncio.open_connection("127.0.0.1", harness.server.port) for _ in range(8)]
            assert await asyncio.wait_for(connections[-1][0].read(), 5) == b""
            assert 1 <= harness.server.rejected_total <= 8
            assert caplog.text.count("hardly any more files") == 1
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
        writer.write(produce(harness))
        assert struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 5))[0] > 0
        await harness.server.stop()

    run(main())


def test_a_real_socket_serves_and_stops() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
        writer.write(
            produce(harness) * 1 + produce(harness, records=bytes(encode_batch([(None, b"x" * 900_000, [], 1)])))
        )
        for expected in (1, 2):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            assert struct.unpack_from(">i", await reader.readexactly(size))[0] == expected
        await harness.server.stop()
        assert await reader.read() == b""
        writer.close()

    run(main())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the system has no IPv6")
@pytest.mark.parametrize("host", ["", "::"])
def test_a_listener_on_all_addresses_takes_ipv4_and_ipv6(host: str) -> None:
    async def main() -> None:
        port = free_port("")
        server = Server(ServerConfig("PLAINTEXT", host, port), Harness().dispatcher)
        await server.start()
        for address in ("127.0.0.1", "::1"):
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
        await server.stop()

    run(main())
