"""The log of state changes: one line for each change, one for all partitions of a commit that creates many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

import pytest
from support.broker.broker_harness import make_image

from raftwerk.cluster.node.state_change_log import NEW_ONES_LISTED_MAX, StateChangeLog
from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from raftwerk.runtime.loggers import STATE_CHANGE

MANY = NEW_ONES_LISTED_MAX + 1


class Node:
    """Node 1, its metadata and its log of state changes."""

    def __init__(self) -> None:
        self.image = make_image()
        self.log = StateChangeLog(1)
        self._offset = self.image.offset

    def commit(self, *records: Record) -> None:
        delta = MetadataDelta()
        for record in records:
            self._offset += 1
            self.image.replay(record, self._offset, delta)
        self.log.on_metadata(self.image, delta)


def creation(number: int) -> list[Record]:
    topic_id = UUID(int=number + 1)
    leader = 1 + number % 2
    return [TopicRecord(f"t{number}", topic_id), PartitionRecord(topic_id, 0, (leader,), (leader,), leader)]


def lines(caplog: pytest.LogCaptureFixture, act: Callable[[Node], object]) -> list[str]:
    async def main() -> None:
        act(Node())
        assert not caplog.messages, "the change is carried out first"
        for _ in range(1_000):
            await asyncio.sleep(0)

    with caplog.at_level(logging.INFO, STATE_CHANGE):
        asyncio.run(main())
    return caplog.messages


def test_each_of_few_new_partitions_has_a_line_where_its_replicas_are(caplog: pytest.LogCaptureFixture) -> None:
    written = lines(caplog, lambda node: node.commit(*creation(0), *creation(1), *creation(2)))
    assert [line.split(" isr")[0] for line in written] == [
        "partition-change topic=t0 partition=0 role=leader leader=1 leader_epoch=0 partition_epoch=0",
        "partition-change topic=t2 partition=0 role=leader leader=1 leader_epoch=0 partition_epoch=0",
    ]


def test_many_new_partitions_and_deleted_topics_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def act(node: Node) -> None:
        node.commit(*(record for number in range(MANY) for record in creation(number)))
        node.commit(*(RemoveTopicRecord(UUID(int=number + 1)) for number in range(MANY)))

    here = (MANY + 1) // 2
    assert lines(caplog, act) == [
        f"partitions-created topics={MANY} partitions={MANY} led_here={here} replicas_here={here}",
        f"topics-deleted topics={MANY} partitions={MANY}",
    ]


def test_every_change_of_a_partition_that_was_there_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    def act(node: Node) -> None:
        node.commit(*(record for number in range(0, 2 * MANY, 2) for record in creation(number)))
        node.commit(*(PartitionChangeRecord(UUID(int=number + 1), 0, leader=-1) for number in range(0, 2 * MANY, 2)))

    written = lines(caplog, act)
    assert len(written) == 1 + MANY
    assert all("leader_before=1" in line for line in written[1:])
