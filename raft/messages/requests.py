"""The requests that a node's quorum sends, and what may be wrong with those it gets. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from ...wire.errors import ErrorCode
from ..quorum.config import RaftConfig
from ..replication.raft_log import RaftLog
from ..roles.follower import Download
from ..types import ReplicaKey
from .messages import BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, Vote

NOBODY = ReplicaKey(-1)
"""The addressee of a request that names none."""


def vote(config: RaftConfig, log: RaftLog, voter: ReplicaKey, epoch: int, *, pre_vote: bool) -> Vote:
    """Ask `voter` for its vote in `epoch`."""
    return Vote(
        cluster_id=config.cluster_id,
        voter=voter,
        candidate=config.own_key,
        epoch=epoch,
        last_epoch=log.last_epoch,
        last_offset=log.end_offset,
        pre_vote=pre_vote,
    )


def begin_quorum_epoch(config: RaftConfig, voter: ReplicaKey, epoch: int) -> BeginQuorumEpoch:
    """Tell `voter` that this node leads `epoch`."""
    return BeginQuorumEpoch(
        cluster_id=config.cluster_id,
        voter=voter,
        leader_id=config.node_id,
        epoch=epoch,
        leader_endpoint=config.own_endpoint,
    )


def end_quorum_epoch(config: RaftConfig, epoch: int, successors: Sequence[ReplicaKey]) -> EndQuorumEpoch:
    """Tell that this node leads `epoch` no more."""
    return EndQuorumEpoch(
        cluster_id=config.cluster_id,
        leader_id=config.node_id,
        epoch=epoch,
        preferred_successors=tuple(successors),
        leader_endpoint=config.own_endpoint,
    )


def fetch(config: RaftConfig, log: RaftLog, epoch: int, max_wait_ms: int, high_watermark: int | None) -> Fetch:
    """Ask for what follows the end of `log`."""
    return Fetch(
        cluster_id=config.cluster_id,
        replica=config.own_key,
        epoch=epoch,
        fetch_offset=log.end_offset,
        last_epoch=log.last_epoch,
        max_wait_ms=max_wait_ms,
        max_bytes=config.fetch_max_bytes,
        high_watermark=-1 if high_watermark is None else high_watermark,
    )


def fetch_snapshot(config: RaftConfig, epoch: int, download: Download) -> FetchSnapshot:
    """Ask for the next part of a snapshot."""
    return FetchSnapshot(
        cluster_id=config.cluster_id,
        replica=config.own_key,
        epoch=epoch,
        snapshot_id=download.snapshot_id,
        position=download.position,
        max_bytes=config.fetch_max_bytes,
    )


def cluster_error(config: RaftConfig, cluster_id: str | None) -> ErrorCode:
    """A request of another cluster; a sender need not say which its is."""
    return ErrorCode.NONE if cluster_id in (None, config.cluster_id) else ErrorCode.INCONSISTENT_CLUSTER_ID


def receiver_error(config: RaftConfig, cluster_id: str | None, receiver: ReplicaKey) -> ErrorCode:
    """What is wrong with the addressee of a request to a voter, as far as the sender named it (negative: it did not).

    Whether the two are voters is not asked: the receiver's log may be behind that of the sender, and a voter that has
    not learned yet that it is one must vote, or the change that made it one could never commit (KIP-853, "Vote").
    """
    error = cluster_error(config, cluster_id)
    is_mistaken = receiver.id >= 0 and not receiver.matches(config.own_key)
    return ErrorCode.INVALID_VOTER_KEY if error is ErrorCode.NONE and is_mistaken else error
