"""Two logs come to agree by the rounds of divergence, and are cut between batches only."""

from __future__ import annotations

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages import requests
from raftwerk.raft.messages.messages import Fetch
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.replication.divergence import diverging_epoch, needs_snapshot, truncation_offset
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import LeaderChange, VoterEndpoint
from raftwerk.wire.types import EpochEndOffset, SnapshotId

CONFIG = RaftConfig(node_id=2, cluster_id="c", voters={1: VoterEndpoint("n1", 9093)})


def log_of(*batches: tuple[int, int]) -> MemoryLog:
    """A log with a batch for each epoch and number of records."""
    log = MemoryLog()
    for epoch, count in batches:
        log.append_records([b"x"] * count, epoch)
    return log


def cuts(follower: MemoryLog, leader: MemoryLog) -> list[int]:
    """Where the follower's log ends after each round."""
    ends = []
    while (diverging := diverging_epoch(leader, requests.fetch(CONFIG, follower, 4, 0, None))) is not None:
        offset = truncation_offset(follower, diverging)
        follower.truncate_to(offset)
        assert follower.end_offset == offset, "between two batches"
        ends.append(offset)
        assert len(ends) < 10, "each round takes something away"
    return ends


def test_a_follower_keeps_a_batch_that_the_end_of_another_epoch_lies_within() -> None:
    """It is asked about next: Kafka, too, looks at the leader's end only where both name the same epoch.

    Node 2 wrote four records in epoch 1 that reached nobody, and node 1 two of epoch 2. Node 2 then began epoch 3,
    which reached nobody either, and node 1 leads epoch 4.
    """
    follower, leader = log_of((1, 2), (1, 4), (3, 1)), log_of((1, 2), (2, 1), (2, 1))
    leader.append_controls([LeaderChange(1, (), ())], 4)
    assert cuts(follower, leader) == [6, 2]


def test_a_follower_cuts_at_the_end_of_the_same_epoch() -> None:
    assert cuts(log_of((1, 2), (1, 2), (1, 1)), log_of((1, 2), (2, 3))) == [2]
    assert cuts(log_of((1, 1), (3, 2)), log_of((1, 1), (2, 3), (4, 1))) == [1]


def fetch_at(offset: int, last_epoch: int) -> Fetch:
    return Fetch(
        cluster_id="c",
        replica=ReplicaKey(2),
        epoch=9,
        fetch_offset=offset,
        last_epoch=last_epoch,
        max_wait_ms=0,
        max_bytes=1,
    )


@pytest.mark.parametrize(
    ("offset", "last_epoch", "is_needed"),
    [
        (0, 0, True),
        (2, 5, True),
        (3, 5, False),
        (3, 4, True),
        (3, 6, True),
        (4, 4, True),
        (4, 5, False),
        (4, 6, False),
    ],
)
def test_a_snapshot_is_needed_before_the_logs_start_and_where_the_logs_may_part_below_it(
    offset: int, last_epoch: int, is_needed: bool
) -> None:
    log = log_of((4, 1), (5, 2), (6, 2))
    assert not needs_snapshot(log, fetch_at(offset, last_epoch)), "the log has all from its first record on"
    log.take_snapshot(SnapshotId(3, 5), kept=1)
    log.start = SnapshotId(3, 5)
    assert needs_snapshot(log, fetch_at(offset, last_epoch)) is is_needed


def test_who_has_nothing_parts_from_nobody_and_who_shares_no_epoch_begins_anew() -> None:
    leader = log_of((4, 2))
    assert diverging_epoch(leader, fetch_at(0, 9)) is None
    assert diverging_epoch(leader, fetch_at(1, 3)) == EpochEndOffset(0, 0)
    assert truncation_offset(log_of((3, 1)), EpochEndOffset(0, 0)) == 0
