"""Two logs come to agree by the rounds of divergence, and are cut between batches only."""

from __future__ import annotations

from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages import requests
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.replication.divergence import diverging_epoch, truncation_offset
from raftwerk.raft.voters.voter_set import LeaderChange, VoterEndpoint

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
