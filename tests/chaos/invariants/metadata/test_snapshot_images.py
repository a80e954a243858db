"""What the simulator makes of the metadata snapshots on a node's disk."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from support.log.logs import make_runtime

from raftwerk.chaos.sim.invariants.derived.metadata_images import ImageChecker
from raftwerk.chaos.sim.invariants.derived.snapshot_images import SnapshotChecker
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.kernel.drawn_constants import small_snapshot_batches
from raftwerk.controller.metadata import metadata_snapshot
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.controller.metadata.metadata_records import PLAIN_RECORDS, TopicRecord, encode_record
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.raft.replication.partition_raft_log import PartitionRaftLog
from raftwerk.raft.snapshots.snapshot_store import encode_snapshot
from raftwerk.wire.types import SnapshotId

DIRECTORY = "/data/__cluster_metadata-0"


class Node:
    """A node with a metadata log and a loader."""

    def __init__(self) -> None:
        runtime, self.disk = make_runtime()
        self.disk.makedirs(DIRECTORY)
        self.log = PartitionRaftLog(PartitionLog.open(runtime, DIRECTORY, LogConfig(), has_gaps=False), runtime)
        self.loader = MetadataLoader("c")
        self.raft: Any = SimpleNamespace(quorum_state=SimpleNamespace(log=self.log))

    def snapshot(self, end_offset: int, *topics: str) -> None:
        """A snapshot with these topics, each in a batch."""
        snapshot_id = SnapshotId(end_offset, 1)
        file = self.log.snapshots.begin(snapshot_id)
        for batch in encode_snapshot(snapshot_id, 1, iter([[topic(name)] for name in topics])):
            file.append([batch])
        file.fsync()
        self.log.snapshots.publish(snapshot_id)

    def load(self, end_offset: int, batches: Sequence[Sequence[bytes]]) -> None:
        """Load these batches as the snapshot at that offset."""
        for batch in batches:
            self.loader.on_snapshot(SnapshotId(end_offset, 1), batch)
        self.loader.on_snapshot(SnapshotId(end_offset, 1), None)


def topic(name: str) -> bytes:
    return encode_record(TopicRecord(name, UUID(int=ord(name))), PLAIN_RECORDS)


def test_a_node_has_what_is_in_the_snapshot_that_it_has_loaded() -> None:
    node, checker = Node(), SnapshotChecker(ImageChecker())
    node.snapshot(5, "a", "b", "c")
    checker.after_event(1, node.loader, node.raft, node.disk)
    node.load(5, [[topic("a")], [topic("b")], [topic("c")]])
    checker.after_event(1, node.loader, node.raft, node.disk)
    node.snapshot(9, "a", "c", "d")
    node.load(9, [[topic("a")], [topic("b")], [topic("d")]])
    with pytest.raises(
        InvariantBroken, match="a node that has loaded a snapshot has what is in it: node 1, snapshot 9"
    ):
        checker.after_event(1, node.loader, node.raft, node.disk)


def test_a_snapshot_has_what_a_node_had_at_its_end() -> None:
    node, images = Node(), ImageChecker()
    checker = SnapshotChecker(images)
    node.load(5, [[topic("a"), topic("b")]])
    images.after_event(1, node.loader)
    node.snapshot(5, "a", "b")
    node.load(7, [[topic("a")]])
    checker.after_event(2, node.loader, node.raft, node.disk)
    other = Node()
    other.snapshot(5, "a")
    with pytest.raises(
        InvariantBroken, match="a snapshot holds the metadata up to its end: node 3, snapshot 5 differs"
    ):
        checker.after_event(3, other.loader, other.raft, other.disk)


def test_a_damaged_snapshot_says_nothing() -> None:
    node, images = Node(), ImageChecker()
    node.load(5, [[topic("a")]])
    images.after_event(1, node.loader)
    node.snapshot(5, "b")
    node.disk.flip_bit(node.log.snapshots.path(SnapshotId(5, 1)), 70, 1)
    SnapshotChecker(images).after_event(1, node.loader, node.raft, node.disk)


def test_batches_of_snapshots_are_as_small_as_drawn_until_the_run_ends() -> None:
    usual = metadata_snapshot.RECORDS_A_BATCH
    drawn = []
    for seed in range(8):
        with small_snapshot_batches(random.Random(seed)):
            drawn.append(metadata_snapshot.RECORDS_A_BATCH)
    assert sorted(dict.fromkeys(drawn)) == [1, usual]
    assert usual == metadata_snapshot.RECORDS_A_BATCH
