"""Metadata waits while a leader is suspected to be dead, and no longer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, TOPIC_ID, FakeTransport, Harness, decode_answer, run, settle

from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import BrokerChangeRecord, PartitionChangeRecord
from raftwerk.wire.api_keys import ApiKey


def ask(harness: Harness, transport: FakeTransport, topics: list[dict[str, Any]] | None) -> None:
    transport.deliver(harness.frame(ApiKey.METADATA, 9, {"topics": topics}))


def leaders(transport: FakeTransport, index: int = 0) -> list[int]:
    answer = decode_answer(ApiKey.METADATA, 9, transport.frames()[index])
    return [one.leader_id for topic in answer.topics for one in topic.partitions]


def suspect(harness: Harness, broker_id: int) -> None:
    harness.suspected_brokers.on_connection_lost(broker_id, harness.image, asyncio.get_running_loop().time())


def test_metadata_waits_for_the_election() -> None:
    async def main() -> None:
        harness = Harness()
        suspect(harness, 1)
        transport, other = harness.connect(), harness.connect()
        ask(harness, transport, [{"name": TOPIC}])
        ask(harness, other, [])
        await settle()
        assert transport.frames() == []
        assert len(other.frames()) == 1
        delta, image = MetadataDelta(), harness.image
        image.replay(BrokerChangeRecord(1, image.brokers[1].epoch, fenced=True), image.offset + 1, delta)
        image.replay(PartitionChangeRecord(TOPIC_ID, 0, isr=(2, 3), leader=2), image.offset + 1, delta)
        harness.suspected_brokers.on_metadata(image, delta)
        await settle()
        assert leaders(transport) == [2, 2]

    run(main())


def test_a_broker_that_accepts_a_connection_is_not_suspected() -> None:
    async def main() -> None:
        harness = Harness()
        suspect(harness, 1)
        transport = harness.connect()
        ask(harness, transport, None)
        await settle()
        assert transport.frames() == []
        harness.suspected_brokers.on_connected(1)
        await settle()
        assert leaders(transport) == [1, 2]

    run(main())


def test_the_wait_ends_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftwerk.broker.apis.metadata.suspected_brokers.SUSPICION_S", 0.05)

    async def main() -> None:
        harness = Harness()
        suspect(harness, 1)
        transport = harness.connect()
        ask(harness, transport, None)
        await asyncio.sleep(0.1)
        assert leaders(transport) == [1, 2]

    run(main())


def test_suspicion_of_other_or_fenced_brokers_causes_no_wait() -> None:
    async def main() -> None:
        harness = Harness()
        suspect(harness, 3)
        image = harness.image
        image.replay(BrokerChangeRecord(2, image.brokers[2].epoch, fenced=True), image.offset + 1, MetadataDelta())
        suspect(harness, 2)
        transport = harness.connect()
        ask(harness, transport, None)
        assert len(transport.frames()) == 1

    run(main())


def test_an_older_connection_waits_a_moment_before_the_answer() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        transport.protocol.opened_at -= 2
        ask(harness, transport, [{"name": TOPIC}])
        await settle()
        assert transport.frames() == []
        suspect(harness, 1)
        await asyncio.sleep(0.05)
        assert transport.frames() == []
        harness.suspected_brokers.on_connected(1)
        await settle()
        assert leaders(transport) == [1, 2]

    run(main())
