"""The memory of half-received frames: bounded over all connections, shared without deadlock."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Coroutine
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, FakeTransport, Harness, connection_of, make_image, settle

from raftwerk.broker.network import request_memory
from raftwerk.broker.network.connection import ConnectionLimits
from raftwerk.broker.network.decoded_memory import DecodedMemory
from raftwerk.broker.network.request_memory import Claim, RequestMemory
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from raftwerk.wire.records import encode_batch

MIB = 1024 * 1024
DECLARED = 100 * MIB


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def limited(limit_bytes: int, frame_bytes: int) -> Harness:
    harness = Harness(ConnectionLimits(max_frame_bytes=frame_bytes))
    harness.server.memory = RequestMemory(limit_bytes, frame_bytes)
    return harness


def produce(harness: Harness, value_bytes: int, acks: int = 1, partitions: int = 1) -> bytes:
    records = bytes(encode_batch([(None, random.Random(1).randbytes(value_bytes), [], 1)]))
    rows = [{"index": index, "records": records} for index in range(partitions)]
    fields = {"acks": acks, "timeout": 1000, "topic_data": [{"name": TOPIC, "partition_data": rows}]}
    return harness.frame(ApiKey.PRODUCE, 9, fields)


def full_fetch(harness: Harness, partitions: int) -> bytes:
    """A follower's, which begins a session."""
    topics = [FetchTopic(TOPIC, None, [FetchPartition(index) for index in range(partitions)])]
    message = FetchRequest(2, 1, 0, 1, MIB, 0, 0, 0, topics)
    return harness.frame(ApiKey.FETCH, 12, encode_fetch_request(12, message))


def buffered(transport: FakeTransport) -> int:
    reader = connection_of(transport)._reader
    return 0 if reader._frame is None or transport.closing else reader._allowed_bytes


def test_parts_of_large_frames_on_many_connections_stay_below_the_bound_and_a_client_is_served() -> None:
    async def main() -> None:
        harness = limited(8 * MIB, 4 * MIB)
        memory = harness.server.memory
        part = struct.pack(">i", 4 * MIB) + bytes(256 * 1024)
        attackers = [harness.connect() for _ in range(100)]
        for attacker in attackers:
            attacker.deliver(part)
            assert memory.used_bytes <= 9 * MIB
        assert sum(map(buffered, attackers)) <= memory.used_bytes
        await settle()
        assert sum(map(buffered, attackers)) <= memory.used_bytes <= 9 * MIB
        client = harness.connect()
        client.deliver(harness.frame(ApiKey.API_VERSIONS, 0, {}))
        assert len(client.frames()) == 1
        client.deliver(produce(harness, 20_000))
        assert len(client.frames()) == 2

    run(main())


def test_a_frame_of_which_little_has_come_has_a_small_buffer() -> None:
    async def main() -> None:
        harness = Harness()
        attackers = [harness.connect() for _ in range(200)]
        for attacker in attackers:
            attacker.deliver(struct.pack(">i", DECLARED) + bytes(40_000))
        assert sum(map(buffered, attackers)) <= 200 * 4 * 40_000
        assert harness.server.memory.used_bytes == sum(map(buffered, attackers))

    run(main())


def test_frames_of_many_connections_are_all_completed_though_their_sum_is_far_above_the_bound() -> None:
    async def main() -> None:
        harness = limited(24 * MIB, 2 * MIB)
        memory, rng = harness.server.memory, random.Random(5)
        clients = [harness.connect() for _ in range(40)]
        frame = produce(harness, 2 * MIB - 1000)
        left = dict.fromkeys(clients, frame)
        waited = False
        while left:
            client = rng.choice(list(left))
            size = rng.randrange(1, 400_000)
            piece, left[client] = left[client][:size], left[client][size:]
            if not left[client]:
                del left[client]
            client.deliver(piece)
            waited = waited or not client.reading
            assert memory.used_bytes <= 27 * MIB
            await asyncio.sleep(0)
        await settle(300)
        assert waited
        assert [len(client.frames()) for client in clients] == [1] * 40
        assert memory.used_bytes == 0

    run(main())


def test_the_memory_of_a_frame_is_given_back_when_its_connection_ends() -> None:
    async def main() -> None:
        harness = limited(8 * MIB, 4 * MIB)
        attackers = [harness.connect() for _ in range(50)]
        for attacker in attackers:
            attacker.deliver(struct.pack(">i", 4 * MIB) + bytes(200_000))
        for attacker in attackers:
            attacker.abort()
        await settle()
        assert harness.server.memory.used_bytes == 0

    run(main())


def test_a_request_keeps_its_memory_until_it_is_answered() -> None:
    async def main() -> None:
        harness = Harness()
        harness.controller.gate = asyncio.Event()
        client = harness.connect()
        topics = [{"name": f"t{n:0100}", "num_partitions": 1, "replication_factor": 1} for n in range(1_000)]
        client.deliver(harness.frame(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout": 1000}))
        await settle()
        assert harness.server.memory.used_bytes >= 100_000 and not client.frames()
        harness.controller.gate.set()
        await settle(200)
        assert harness.server.memory.used_bytes == 0 and (client.frames() or client.closing)

    run(main())


def test_frames_that_do_not_arrive_are_given_up_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_memory, "STALLED_S", 0.05)
    monkeypatch.setattr(request_memory, "CHECK_INTERVAL_S", 0.02)

    async def main() -> None:
        harness = limited(4 * MIB, 4 * MIB)
        stalled = harness.connect()
        stalled.deliver(struct.pack(">i", 4 * MIB) + bytes(100_000))
        await asyncio.sleep(0.1)
        assert not stalled.closing, "nobody waits"
        client = harness.connect()
        client.deliver(produce(harness, MIB))
        assert not client.reading
        async with asyncio.timeout(5):
            while not client.frames():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert stalled.closing

    run(main())


class Owner:
    """Remembers that it was granted memory."""

    granted = False

    def on_memory_granted(self) -> None:
        self.granted = True

    def on_frame_too_slow(self) -> None:
        raise AssertionError


def test_a_frame_for_which_there_is_no_memory_after_all_closes_its_connection_and_others_go_on() -> None:
    """With TLS some bytes are read after the reading was paused; they take what was left of the memory."""

    async def main() -> None:
        harness = limited(8 * MIB, 4 * MIB)
        memory = harness.server.memory
        others, little = (memory.claim(Owner(), 9 * MIB) for _ in range(2))
        assert others.keep(9 * MIB - 20_000) and little.keep(100)
        greedy, patient = harness.connect(), harness.connect()
        greedy.deliver(struct.pack(">i", 4 * MIB) + bytes(10))
        for _ in range(2):
            connection_of(greedy).buffer_updated(len(connection_of(greedy).get_buffer(-1)))
        patient.deliver(struct.pack(">i", 40_000) + bytes(10))
        assert not greedy.reading and not patient.reading
        little.release()
        await settle()
        assert greedy.closing
        others.release()
        await settle()
        assert patient.reading and not patient.closing

    run(main())


@pytest.mark.parametrize("partitions", [1, 300])
def test_batches_that_wait_for_followers_keep_no_memory_from_a_followers_fetch(partitions: int) -> None:
    """They are in the log. The fetch names all partitions that the follower has, and advances the high watermark."""

    async def main() -> None:
        harness = Harness(ConnectionLimits(max_frame_bytes=MIB), image=make_image(partitions=partitions))
        memory = harness.server.memory = RequestMemory(4 * MIB, MIB)
        memory.decoded = DecodedMemory(64 * MIB)
        harness.replicas.hold = True
        producers = [harness.connect() for _ in range(6)]
        frame = produce(harness, 900_000 // partitions, -1, partitions)
        for producer in producers:
            producer.deliver(frame)
            await settle(200)
        assert len(harness.replicas.appended) == 6 * partitions and len(harness.replicas.held) >= 6
        assert memory.used_bytes == 0
        parked, harness.replicas.held, harness.replicas.hold = harness.replicas.held, [], False
        follower = harness.connect()
        follower.deliver(full_fetch(harness, 2_000))
        await settle(200)
        assert len(follower.frames()) == 1
        assert not any(producer.frames() for producer in producers)
        for done in parked:
            done()
        await settle(50)
        assert all(len(producer.frames()) == 1 for producer in producers)
        assert (memory.used_bytes, memory.decoded.used_bytes) == (0, 0)

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_one_that_holds_memory_can_always_complete_its_frame(seed: int) -> None:
    async def main() -> None:
        rng, largest = random.Random(seed), 100
        memory = RequestMemory(rng.randrange(largest, 4 * largest), largest)
        completed, target = 0, 60
        growing: dict[Claim, Owner] = {}
        while completed < target:
            if len(growing) < 8:
                owner = Owner()
                growing[memory.claim(owner, rng.randint(1, largest))] = owner
            going = [claim for claim in growing if claim not in memory._waiting]
            assert going, "a deadlock"
            claim = rng.choice(going)
            if claim.held_bytes >= claim.frame_bytes:
                del growing[claim]
                claim.release()
                completed += 1
            else:
                claim.grow(min(claim.frame_bytes, claim.held_bytes + rng.randint(1, 40)))
            assert memory.used_bytes == sum(one.held_bytes for one in growing) <= memory._limit_bytes
            await asyncio.sleep(0)
        for claim in growing:
            claim.release()

    run(main())
