"""A broker with very many partitions leaves: some partitions change in each batch, those that it led first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

import pytest
from support.controller.controller_harness import Harness, scenario

from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    BrokerChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftwerk.controller.partitions import broker_departures
from raftwerk.wire.errors import ErrorCode

PER_BATCH = 4
COUNT = 30


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(broker_departures, "CHANGES_PER_BATCH", PER_BATCH)
    yield


async def cluster() -> Harness:
    harness = Harness()
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id)
    assignments = [[(1, 2, 3), (2, 3, 1), (3, 1, 2)][index % 3] for index in range(COUNT)]
    await harness.create("t", *assignments)
    harness.quorum.batches_before = len(harness.quorum.batches)  # type: ignore[attr-defined]
    return harness


def new_batches(harness: Harness) -> list[Any]:
    return harness.quorum.batches[harness.quorum.batches_before :]  # type: ignore[attr-defined]


def partitions(harness: Harness) -> list[Any]:
    return list(harness.image.topics_by_name["t"].partitions.values())


def check(image: MetadataImage, gone: int) -> None:
    for partition in image.topics_by_name["t"].partitions.values():
        assert gone not in partition.isr and partition.leader != gone and partition.leader in partition.isr


@scenario
async def test_a_silent_broker_is_fenced_with_its_last_partition() -> None:
    harness = await cluster()
    led = [index for index, partition in enumerate(partitions(harness)) if partition.leader == 3]
    for _ in range(40):
        await asyncio.sleep(0.5)
        for broker_id in (1, 2):
            await harness.controller.broker_heartbeat(harness.heartbeat(broker_id))
    check(harness.image, 3)
    assert harness.image.brokers[3].fenced
    batches = [batch for batch in new_batches(harness) if batch.records]
    assert all(len(batch.records) <= PER_BATCH + 1 for batch in batches) and len(batches) >= COUNT // PER_BATCH
    records = [record for offset, record in harness.quorum.records() if offset >= batches[0].base_offset]
    changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
    assert [change.partition for change in changes[: len(led)]] == led, "what it led comes first"
    fenced = [at for at, record in enumerate(records) if isinstance(record, BrokerChangeRecord) and record.fenced]
    left = [record for record in records[fenced[0] :] if isinstance(record, PartitionChangeRecord)]
    assert len(left) < PER_BATCH


UPTIME_S = 1_000_000
"""The loop's clock counts from the start of the machine."""


@scenario
async def test_a_broker_that_dies_just_after_one_with_very_many_partitions_is_fenced_in_time() -> None:
    """While the first one was fenced in parts, the controller took itself for stopped since the machine's start."""
    await asyncio.sleep(UPTIME_S)
    harness = await cluster()
    for silent_for_s in range(11):
        for broker_id in (1, 2, 3):
            if broker_id == 1 or (broker_id == 3 and not silent_for_s):
                await harness.controller.broker_heartbeat(harness.heartbeat(broker_id))
        await asyncio.sleep(1)
    assert harness.image.brokers[2].fenced and harness.image.brokers[3].fenced
    assert {partition.leader for partition in partitions(harness)} == {1}


@scenario
async def test_an_incarnation_that_died_with_one_with_very_many_partitions_blocks_no_restart() -> None:
    await asyncio.sleep(UPTIME_S)
    harness = await cluster()
    for _ in range(9):
        await asyncio.sleep(0.95)
        for broker_id in (1, 2):
            await harness.controller.broker_heartbeat(harness.heartbeat(broker_id))
    for _ in range(15):  # broker 2 dies, too, within a second before broker 3 is fenced
        await asyncio.sleep(1)
        await harness.controller.broker_heartbeat(harness.heartbeat(1))
    assert harness.image.brokers[3].fenced
    answer = await harness.controller.register_broker(harness.registration(2, incarnation=2))
    assert answer["error_code"] == 0


@scenario
async def test_controlled_shutdown_waits_until_others_know_of_the_last_move() -> None:
    harness = await cluster()
    first = await harness.controller.broker_heartbeat(harness.heartbeat(2, want_shut_down=True))
    assert not first["should_shut_down"]
    check(harness.image, 2)
    moved = harness.image.offset
    for behind in (moved - PER_BATCH, moved - 1):
        for broker_id in (1, 3):
            await harness.controller.broker_heartbeat(harness.heartbeat(broker_id, current_metadata_offset=behind))
        again = await harness.controller.broker_heartbeat(harness.heartbeat(2, want_shut_down=True))
        assert not again["should_shut_down"]
    for broker_id in (1, 3):
        await harness.controller.broker_heartbeat(harness.heartbeat(broker_id))
    last = await harness.controller.broker_heartbeat(harness.heartbeat(2, want_shut_down=True))
    assert last["should_shut_down"] and harness.image.brokers[2].fenced


@scenario
async def test_a_new_controller_continues_a_controlled_shutdown() -> None:
    harness = await cluster()
    pending = harness.controller.broker_heartbeat(harness.heartbeat(2, want_shut_down=True))
    await asyncio.sleep(0)
    harness.quorum.elect(None, 2)
    assert (await pending)["error_code"] == ErrorCode.NOT_CONTROLLER
    assert any(partition.leader == 2 for partition in partitions(harness)), "it stopped half way"
    harness.quorum.elect(1, 3)
    assert harness.image.brokers[2].in_controlled_shutdown
    answer = await harness.controller.broker_heartbeat(harness.heartbeat(2, want_shut_down=True))
    assert not answer["should_shut_down"]
    check(harness.image, 2)


@scenario
async def test_a_restart_registers_after_its_previous_incarnation_has_left_all_isrs() -> None:
    harness = await cluster()
    harness.controller.on_broker_disconnected(3)
    answer = await harness.controller.register_broker(harness.registration(3, incarnation=2))
    assert answer["error_code"] == 0
    check(harness.image, 3)
    records = harness.quorum.records()
    assert isinstance(records[-1][1], RegisterBrokerRecord) and records[-1][0] == answer["broker_epoch"]


@scenario
async def test_partitions_that_cannot_move_do_not_block_others() -> None:
    """Without the ELR, the broker stays in the ISRs in which it is alone, and these do not change twice."""
    harness = Harness()
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id)
    await harness.create("alone", *[(3,)] * (3 * PER_BATCH))
    await harness.create("t", *[(1, 2, 3)] * (3 * PER_BATCH))
    answer = await harness.controller.unregister_broker(harness.heartbeat(3))
    assert answer["error_code"] == 0 and 3 not in harness.image.brokers
    check(harness.image, 3)


@scenario
async def test_all_partitions_are_searched_twice_and_not_for_each_batch() -> None:
    harness = await cluster()
    looked, original = [], MetadataImage.all_partitions

    def counted(image: MetadataImage) -> Any:
        looked.append(True)
        return original(image)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetadataImage, "all_partitions", counted)
        patch.setattr(broker_departures, "leads_any", lambda *_: True)
        for _ in range(40):
            await asyncio.sleep(0.5)
            for broker_id in (1, 2):
                await harness.controller.broker_heartbeat(harness.heartbeat(broker_id))
    check(harness.image, 3)
    batches = [batch for batch in new_batches(harness) if batch.records]
    rebalances = 4
    assert harness.image.brokers[3].fenced and len(batches) >= COUNT // PER_BATCH > 2 + rebalances
    assert len(looked) <= 2 + rebalances


def test_remembered_partitions_are_checked_again_and_none_is_left_out() -> None:
    image, departures = MetadataImage(), broker_departures.Departures()
    topic_id = UUID(int=7)
    image.restore(TopicRecord("t", topic_id))
    for index in range(20):
        image.restore(PartitionRecord(topic_id, index, (1, 2), (1, 2), leader=1 + index % 2))
    is_affected = lambda partition: 2 in partition.isr  # noqa: E731
    first = [index for _, index, _ in islice(departures.candidates(image, 2, is_affected), PER_BATCH)]
    assert first == [1, 3, 5, 7], "what it leads comes first"
    partitions = image.topics_by_id[topic_id].partitions
    for index in (1, 3, 5, 9):  # 7 stays as it is, 9 goes by another's decision
        partitions[index] = partitions[index]._replace(isr=(1,), leader=1)
    rest = [index for _, index, _ in departures.candidates(image, 2, is_affected)]
    assert rest[:2] == [11, 13] and sorted(rest) == sorted({*range(20)} - {1, 3, 5, 9})
