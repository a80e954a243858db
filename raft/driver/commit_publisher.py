"""Hands committed batches, snapshots and changes of leader to the listener, outside of the quorum's events."""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.invariants import sometimes
from ...wire.types import SnapshotId
from ..quorum.quorum_state import QuorumState
from ..replication.partition_raft_log import PartitionRaftLog
from ..types import LeaderAndEpoch, RaftListener

_CHUNK_BYTES = 4 * 1024


class CommitPublisher:
    """Keeps account of what the listener knows: all below `delivered_offset`, and the last leader."""

    def __init__(self, quorum: QuorumState, log: PartitionRaftLog, listener: RaftListener) -> None:
        self._quorum = quorum
        self._log = log
        self._listener = listener
        self._published_leader = LeaderAndEpoch(None, -1)
        self._published_current = False
        self._loading: tuple[SnapshotId, Iterator[list[bytes]]] | None = None
        self.delivered_offset = 0

    @property
    def has_news(self) -> bool:
        """Whether `publish` has something for the listener."""
        return self._has_commits or self._became_current() or self._new_leader() is not None

    @property
    def _has_commits(self) -> bool:
        return self.delivered_offset < (self._quorum.high_watermark.offset or 0)

    def publish(self) -> None:
        """Hand the next part to the listener; call again while `has_news`."""
        high_watermark = self._quorum.high_watermark.offset or 0
        snapshot_id = self._log.latest_snapshot
        if snapshot_id is not None and self._needs_snapshot(snapshot_id):
            self._publish_snapshot(snapshot_id)
            return
        if self.delivered_offset < high_watermark:
            batches = self._log.read_batches(self.delivered_offset, high_watermark, _CHUNK_BYTES)
            self.delivered_offset = batches[-1].last_offset + 1
            self._listener.on_commit(batches)
        elif self._became_current():
            self._published_current = True
            self._listener.on_commit([])
        leader = self._new_leader()
        if leader is not None:
            self._published_leader = leader
            self._listener.on_leader_change(leader)

    def _publish_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Hand over the next part of a snapshot; begin again when a later snapshot has replaced it."""
        if self._loading is None or self._loading[0] != snapshot_id:
            sometimes(self._loading is not None, "a later metadata snapshot replaced the one that was being loaded")
            self._loading = snapshot_id, self._log.snapshots.batches(snapshot_id)
        batch = next(self._loading[1], None)
        if batch is None:
            self._loading = None
            self.delivered_offset = snapshot_id.end_offset
        self._listener.on_snapshot(snapshot_id, batch)

    def _became_current(self) -> bool:
        """Whether the high watermark became current without new commits, which the listener does not know yet."""
        return self._quorum.high_watermark.is_current and not self._published_current

    def _needs_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """Whether the listener knows nothing yet, or the log begins after what it knows."""
        is_fresh = self.delivered_offset == 0 < snapshot_id.end_offset
        return is_fresh or self.delivered_offset < self._log.start.end_offset

    def publish_no_leader(self) -> None:
        """Tell the listener that it has no leader, as this node has left the quorum."""
        leader = LeaderAndEpoch(None, self._quorum.epoch)
        if self._published_leader != leader:
            self._published_leader = leader
            self._listener.on_leader_change(leader)

    def _new_leader(self) -> LeaderAndEpoch | None:
        current, leader = self._quorum.leader_and_epoch, self._quorum.role.as_leader()
        if current == self._published_leader:
            return None
        if leader is not None and self.delivered_offset <= leader.epoch_start_offset:
            # This node leads, and the listener does not have all records of former epochs yet.
            unknown = LeaderAndEpoch(None, leader.epoch)
            return None if unknown == self._published_leader else unknown
        return current
