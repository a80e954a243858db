"""What DescribeQuorum says of the replicas."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages.describe_quorum import _follower, describe_quorum_fields
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.quorum_state import QuorumState
from raftwerk.raft.replication.replica_progress import ReplicaProgress
from raftwerk.raft.roles import Leader
from raftwerk.raft.types import METADATA_TOPIC, ElectionState, ReplicaKey
from raftwerk.raft.voters.voter_set import KRaftVersion, Voter, VoterEndpoint, VoterListener, VoterSet
from raftwerk.wire.errors import ErrorCode


def test_times_of_the_monotonic_clock_are_told_by_the_wall_clock() -> None:
    progress = ReplicaProgress(ReplicaKey(3), 17, last_fetch_ms=900, last_caught_up_ms=700)
    told = _follower(progress, 1_000_000)
    assert (told["last_fetch_timestamp"], told["last_caught_up_timestamp"]) == (1_000_900, 1_000_700)
    never = _follower(ReplicaProgress(ReplicaKey(3)), 1_000_000)
    assert (never["last_fetch_timestamp"], never["last_caught_up_timestamp"]) == (-1, -1)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=node_id))


def node(node_id: int, *voters: int) -> QuorumState:
    """A node that knows these voters by a record."""
    recorded = VoterSet.of(Voter(key(i), (VoterListener("CONTROLLER", f"n{i}", 9093),)) for i in voters)
    config = RaftConfig(
        node_id=node_id, cluster_id="c", bootstrap=(VoterEndpoint("n1", 9093),), directory_id=key(node_id).directory_id
    )
    log = MemoryLog(formatted=[KRaftVersion(1), recorded])
    return QuorumState(config, log, ElectionState(epoch=5), random.Random(0))


def lead(quorum: QuorumState) -> Leader:
    quorum.transition_to_prospective(100)
    quorum.transition_to_candidate(100)
    quorum.transition_to_leader([2], 100)
    leader = quorum.role.as_leader()
    assert leader is not None
    return leader


ROW = SimpleNamespace(partition_index=0)
QUORUM = SimpleNamespace(topics=[SimpleNamespace(topic_name=METADATA_TOPIC, partitions=[ROW])])


def described(quorum: QuorumState) -> dict[str, Any]:
    """At 1,000 ms of the monotonic clock, 51,000 ms of the wall clock."""
    fields = describe_quorum_fields(quorum, QUORUM, 1_000, 51_000)
    assert fields["error_code"] == 0
    assert [topic["topic_name"] for topic in fields["topics"]] == [METADATA_TOPIC]
    (partition,) = fields["topics"][0]["partitions"]
    assert isinstance(partition, dict)
    return partition


def row(node_id: int, end_offset: int, fetched_ms: int, caught_up_ms: int) -> dict[str, Any]:
    return {
        "replica_id": node_id,
        "replica_directory_id": UUID(int=node_id),
        "log_end_offset": end_offset,
        "last_fetch_timestamp": fetched_ms,
        "last_caught_up_timestamp": caught_up_ms,
    }


def test_a_leader_tells_how_far_each_replica_is_and_of_itself_that_it_is_up_to_date() -> None:
    quorum = node(2, 1, 2, 3)
    leader = lead(quorum)
    end = quorum.log.end_offset
    leader.replicas.progress_of(key(3)).on_fetch(end, end, 700)
    leader.replicas.progress_of(key(9)).on_fetch(1, end, 800)
    expected = {
        "partition_index": 0,
        "error_code": 0,
        "leader_id": 2,
        "leader_epoch": 6,
        "high_watermark": -1,
        "current_voters": [row(1, -1, -1, -1), row(2, end, 51_000, 51_000), row(3, end, 50_700, 50_700)],
        "observers": [row(9, 1, 50_800, -1)],
    }
    assert described(quorum) == expected
    quorum.high_watermark.offset = 0
    assert described(quorum) == expected | {"high_watermark": 0}


def test_a_leader_that_is_no_voter_any_more_is_among_the_observers() -> None:
    quorum = node(2, 1, 2)
    lead(quorum).set_voters(node(2, 1).voters)
    partition = described(quorum)
    assert [one["replica_id"] for one in partition["current_voters"]] == [1]
    assert [one["replica_id"] for one in partition["observers"]] == [2]


def test_who_does_not_lead_tells_the_leader_and_the_voters_and_whether_it_is_one() -> None:
    quorum = node(2, 1, 2)
    expected = {
        "partition_index": 0,
        "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "leader_id": -1,
        "leader_epoch": 5,
        "high_watermark": -1,
        "current_voters": [row(1, -1, -1, -1), row(2, -1, -1, -1)],
        "observers": [],
    }
    assert described(quorum) == expected
    quorum.maybe_transition(6, 1, VoterEndpoint("n1", 9093), 0)
    assert described(quorum) == expected | {"leader_id": 1, "leader_epoch": 6}
    assert described(node(9, 1, 2)) == expected | {"observers": [row(9, -1, -1, -1)]}


def test_where_the_voters_listen_is_told_by_every_node() -> None:
    fields = describe_quorum_fields(node(9, 1, 2), QUORUM, 0, 0)
    assert fields["nodes"] == [
        {"node_id": i, "listeners": [{"name": "CONTROLLER", "host": f"n{i}", "port": 9093}]} for i in (1, 2)
    ]


@pytest.mark.parametrize(
    ("topic_name", "partitions"), [("t", [0]), (METADATA_TOPIC, [1]), (METADATA_TOPIC, [0, 0]), (METADATA_TOPIC, [])]
)
def test_what_is_not_the_quorums_partition_is_unknown(topic_name: str, partitions: list[int]) -> None:
    rows = [SimpleNamespace(partition_index=one) for one in partitions]
    asked = SimpleNamespace(topics=[SimpleNamespace(topic_name=topic_name, partitions=rows)])
    (topic,) = describe_quorum_fields(node(2, 1, 2), asked, 0, 0)["topics"]
    assert topic["topic_name"] == topic_name
    refused = {
        "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "leader_id": -1,
        "leader_epoch": -1,
        "high_watermark": -1,
        "current_voters": [],
        "observers": [],
    }
    assert list(topic["partitions"]) == [{"partition_index": one} | refused for one in partitions]


def test_two_topics_are_both_unknown() -> None:
    asked = SimpleNamespace(topics=QUORUM.topics * 2)
    topics = list(describe_quorum_fields(node(2, 1, 2), asked, 0, 0)["topics"])
    codes = [row["error_code"] for topic in topics for row in topic["partitions"]]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert list(describe_quorum_fields(node(2, 1, 2), SimpleNamespace(topics=[]), 0, 0)["topics"]) == []
