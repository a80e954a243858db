"""DescribeQuorum, for tools: the leader, the voters and the observers, and how far each one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...wire.codec import Rows
from ...wire.errors import ErrorCode
from ..quorum.quorum_state import QuorumState
from ..replication.replica_progress import ReplicaProgress
from ..roles import Leader
from ..types import METADATA_PARTITION, METADATA_TOPIC, ReplicaKey

_UNKNOWN = -1


def describe_quorum_fields(quorum: QuorumState, request: Any, now_ms: int, wall_ms: int) -> dict[str, Any]:
    """The response's schema fields; only the leader knows the replicas' positions (KIP-595, KIP-836).

    Another node refuses the request, as in Apache Kafka, and adds which voters it knows, and whether it is one.

    The leader keeps times of the monotonic clock, which reads `now_ms`; the response has times of the wall clock, which
    reads `wall_ms`.
    """
    leader, current = quorum.role.as_leader(), quorum.leader_and_epoch
    topics: Sequence[Any] | Rows[Any] = Rows(_refused_topic, request.topics)
    if _names_the_quorum(request.topics):
        if leader is not None:
            described = _described(quorum, leader, now_ms, wall_ms)
        else:
            described = _refused(METADATA_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER) | _voting(quorum)
            described["leader_id"] = _UNKNOWN if current.leader_id is None else current.leader_id
            described["leader_epoch"] = current.epoch
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [described]}]
    nodes = [
        {"node_id": voter.key.id, "listeners": [listener._asdict() for listener in voter.listeners]}
        for voter in quorum.voters.voters
    ]
    return {"error_code": 0, "topics": topics, "nodes": nodes}


def _names_the_quorum(topics: Sequence[Any]) -> bool:
    """Whether the request is about the metadata partition and nothing else, as Apache Kafka wants it."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return False
    named = topics[0].topic_name, topics[0].partitions[0].partition_index
    return named == (METADATA_TOPIC, METADATA_PARTITION)


def _refused_topic(topic: Any) -> dict[str, Any]:
    def refused(partition: Any) -> dict[str, Any]:
        return _refused(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return {"topic_name": topic.topic_name, "partitions": Rows(refused, topic.partitions)}


def _described(quorum: QuorumState, leader: Leader, now_ms: int, wall_ms: int) -> dict[str, Any]:
    shift_ms = wall_ms - now_ms
    own = _replica(quorum.config.own_key, quorum.log.end_offset) | {
        "last_fetch_timestamp": wall_ms,
        "last_caught_up_timestamp": wall_ms,
    }
    voters = [_follower(progress, shift_ms) for progress in leader.replicas.peers.values()]
    observers = [_follower(progress, shift_ms) for progress in leader.replicas.observers.values()]
    (voters if leader.replicas.leader_is_voter else observers).append(own)
    return {
        "partition_index": METADATA_PARTITION,
        "error_code": 0,
        "leader_id": leader.leader_id,
        "leader_epoch": leader.epoch,
        "high_watermark": _UNKNOWN if quorum.high_watermark.offset is None else quorum.high_watermark.offset,
        "current_voters": sorted(voters, key=lambda voter: int(voter["replica_id"])),
        "observers": observers,
    }


def _voting(quorum: QuorumState) -> dict[str, Any]:
    """What a node knows that does not lead: the voters, and that it is none itself; their positions are unknown.

    Where no node leads, that tells a voter from a node that is back with another metadata directory.
    """
    own = quorum.config.own_key
    return {
        "current_voters": [_unknown(key) for key in quorum.voters.keys],
        "observers": [] if quorum.voters.is_voter(own) else [_unknown(own)],
    }


def _unknown(key: ReplicaKey) -> dict[str, Any]:
    return _replica(key, _UNKNOWN) | {"last_fetch_timestamp": _UNKNOWN, "last_caught_up_timestamp": _UNKNOWN}


def _follower(progress: ReplicaProgress, shift_ms: int) -> dict[str, Any]:
    fetched_ms, caught_up_ms = progress.last_fetch_ms, progress.last_caught_up_ms
    return _replica(progress.key, progress.end_offset) | {
        "last_fetch_timestamp": _UNKNOWN if fetched_ms is None else fetched_ms + shift_ms,
        "last_caught_up_timestamp": _UNKNOWN if caught_up_ms is None else caught_up_ms + shift_ms,
    }


def _replica(key: ReplicaKey, end_offset: int) -> dict[str, Any]:
    return {"replica_id": key.id, "replica_directory_id": key.directory_id, "log_end_offset": end_offset}


def _refused(partition_index: int, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": partition_index,
        "error_code": int(error),
        "leader_id": _UNKNOWN,
        "leader_epoch": _UNKNOWN,
        "high_watermark": _UNKNOWN,
        "current_voters": [],
        "observers": [],
    }
