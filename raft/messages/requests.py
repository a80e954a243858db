"""The requests that a node sends to the others of the quorum. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from ...wire.types import SnapshotId
from ..quorum.config import RaftConfig
from ..replication.raft_log import RaftLog
from ..types import ReplicaKey
from .messages import BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, Vote


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
    """Make known to `voter` that this node leads `epoch`."""
    return BeginQuorumEpoch(
        cluster_id=config.cluster_id,
        voter=voter,
        leader_id=config.node_id,
        epoch=epoch,
        leader_endpoint=config.own_endpoint,
    )


def end_quorum_epoch(config: RaftConfig, epoch: int, successors: Sequence[ReplicaKey]) -> EndQuorumEpoch:
    """Make known that this node resigned as the leader of `epoch`."""
    return EndQuorumEpoch(
        cluster_id=config.cluster_id,
        leader_id=config.node_id,
        epoch=epoch,
        preferred_successors=tuple(successors),
        leader_endpoint=config.own_endpoint,
    )


def fetch(config: RaftConfig, log: RaftLog, epoch: int, max_wait_ms: int, high_watermark: int | None) -> Fetch:
    """Ask for the records from the end of `log` on."""
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


def fetch_snapshot(config: RaftConfig, epoch: int, snapshot_id: SnapshotId, position: int) -> FetchSnapshot:
    """Ask for the next part of a snapshot."""
    return FetchSnapshot(
        cluster_id=config.cluster_id,
        replica=config.own_key,
        epoch=epoch,
        snapshot_id=snapshot_id,
        position=position,
        max_bytes=config.snapshot_fetch_max_bytes,
    )
