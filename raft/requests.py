"""The requests that a node's quorum sends, and what may be wrong with those it gets. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from ..wire.errors import ErrorCode
from .config import RaftConfig
from .log_port import RaftLog
from .messages import BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, Vote
from .roles.follower import Download
from .types import ReplicaKey


def own_key(config: RaftConfig) -> ReplicaKey:
    """This node as a replica."""
    return ReplicaKey(config.node_id, config.directory_id)


def vote(config: RaftConfig, log: RaftLog, voter: int, epoch: int, *, pre_vote: bool) -> Vote:
    """Ask `voter` for its vote in `epoch`."""
    return Vote(
        cluster_id=config.cluster_id,
        voter_id=voter,
        candidate=own_key(config),
        epoch=epoch,
        last_epoch=log.last_epoch,
        last_offset=log.end_offset,
        pre_vote=pre_vote,
    )


def begin_quorum_epoch(config: RaftConfig, voter: int, epoch: int) -> BeginQuorumEpoch:
    """Tell `voter` that this node leads `epoch`."""
    return BeginQuorumEpoch(cluster_id=config.cluster_id, voter_id=voter, leader_id=config.node_id, epoch=epoch)


def end_quorum_epoch(config: RaftConfig, epoch: int, successors: Sequence[int]) -> EndQuorumEpoch:
    """Tell that this node leads `epoch` no more."""
    return EndQuorumEpoch(
        cluster_id=config.cluster_id, leader_id=config.node_id, epoch=epoch, preferred_successors=tuple(successors)
    )


def fetch(config: RaftConfig, log: RaftLog, epoch: int, max_wait_ms: int, high_watermark: int | None) -> Fetch:
    """Ask for what follows the end of `log`."""
    return Fetch(
        cluster_id=config.cluster_id,
        replica=own_key(config),
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
        replica=own_key(config),
        epoch=epoch,
        snapshot_id=download.snapshot_id,
        position=download.position,
        max_bytes=config.fetch_max_bytes,
    )


def cluster_error(config: RaftConfig, cluster_id: str | None) -> ErrorCode:
    """A request of another cluster; a sender need not say which its is."""
    return ErrorCode.NONE if cluster_id in (None, config.cluster_id) else ErrorCode.INCONSISTENT_CLUSTER_ID


def sender_error(config: RaftConfig, cluster_id: str | None, receiver_id: int, sender_id: int) -> ErrorCode:
    """What is wrong with the parties of a request that only voters exchange."""
    if receiver_id >= 0 and receiver_id != config.node_id:
        mistaken = ErrorCode.INVALID_VOTER_KEY
    elif not config.is_voter or sender_id not in config.peers:
        mistaken = ErrorCode.INCONSISTENT_VOTER_SET
    else:
        mistaken = ErrorCode.NONE
    error = cluster_error(config, cluster_id)
    return mistaken if error is ErrorCode.NONE else error
