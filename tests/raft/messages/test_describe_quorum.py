"""What DescribeQuorum says of the replicas."""

from __future__ import annotations

from raftwerk.raft.messages.describe_quorum import _follower
from raftwerk.raft.replication.replica_progress import ReplicaProgress
from raftwerk.raft.types import ReplicaKey


def test_times_of_the_monotonic_clock_are_told_by_the_wall_clock() -> None:
    progress = ReplicaProgress(ReplicaKey(3), 17, last_fetch_ms=900, last_caught_up_ms=700)
    told = _follower(progress, 1_000_000)
    assert (told["last_fetch_timestamp"], told["last_caught_up_timestamp"]) == (1_000_900, 1_000_700)
    never = _follower(ReplicaProgress(ReplicaKey(3)), 1_000_000)
    assert (never["last_fetch_timestamp"], never["last_caught_up_timestamp"]) == (-1, -1)
