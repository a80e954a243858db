"""Hands committed batches and changes of leadership to the listener, outside of the quorum's events."""

from __future__ import annotations

from collections.abc import Iterator

from ...wire.types import SnapshotId
from ..quorum.quorum_state import QuorumState
from ..replication.partition_raft_log import PartitionRaftLog
from ..types import LeaderAndEpoch, RaftListener

_CHUNK_BYTES = 64 * 1024


class CommitPublisher:
    """Knows what the listener has been told: `delivered_offset`, and the last leader."""

    def __init__(self, quorum: QuorumState, log: PartitionRaftLog, listener: RaftListener) -> None:
        self._quorum = quorum
        self._log = log
        self._listener = listener
        self._told_leader = LeaderAndEpoch(None, -1)
        self._told_current = False
        self._loading: tuple[SnapshotId, Iterator[list[bytes]]] | None = None
        self.delivered_offset = 0

    @property
    def is_behind(self) -> bool:
        """Whether `publish` has something to tell."""
        return self._has_commits or self._is_current_news() or self._leader_to_tell() is not None

    @property
    def _has_commits(self) -> bool:
        return self.delivered_offset < (self._quorum.high_watermark.offset or 0)

    def publish(self) -> None:
        """Tell the listener the next part; call again while `is_behind`."""
        high_watermark = self._quorum.high_watermark.offset or 0
        snapshot_id = self._log.latest_snapshot
        if snapshot_id is not None and self._needs(snapshot_id):
            self._publish_snapshot(snapshot_id)
            return
        if self.delivered_offset < high_watermark:
            batches = self._log.read_batches(self.delivered_offset, high_watermark, _CHUNK_BYTES)
            self.delivered_offset = batches[-1].last_offset + 1
            self._listener.on_commit(batches)
        elif self._is_current_news():
            self._told_current = True
            self._listener.on_commit([])
        leader = self._leader_to_tell()
        if leader is not None:
            self._told_leader = leader
            self._listener.on_leader_change(leader)

    def _publish_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Tell of the next part; from the beginning where a later snapshot has taken the place of the one before."""
        if self._loading is None or self._loading[0] != snapshot_id:
            self._loading = snapshot_id, self._log.snapshots.batches(snapshot_id)
        batch = next(self._loading[1], None)
        if batch is None:
            self._loading = None
            self.delivered_offset = snapshot_id.end_offset
        self._listener.on_snapshot(snapshot_id, batch)

    def _is_current_news(self) -> bool:
        """Whether the listener shall look anew: what it took from a snapshot has turned out to be all there is."""
        return self._quorum.high_watermark.is_current and not self._told_current

    def _needs(self, snapshot_id: SnapshotId) -> bool:
        """Whether the listener shall take a snapshot: it knows nothing yet, or the log does not reach back to it."""
        is_fresh = self.delivered_offset == 0 < snapshot_id.end_offset
        return is_fresh or self.delivered_offset < self._log.start.end_offset

    def tell_none_leads(self) -> None:
        """This node is out of the quorum for good."""
        leader = LeaderAndEpoch(None, self._quorum.epoch)
        if self._told_leader != leader:
            self._told_leader = leader
            self._listener.on_leader_change(leader)

    def _leader_to_tell(self) -> LeaderAndEpoch | None:
        current, leader = self._quorum.leader_and_epoch, self._quorum.role.as_leader()
        if current == self._told_leader:
            return None
        if leader is not None and self.delivered_offset <= leader.epoch_start_offset:
            return self._unless_told(LeaderAndEpoch(None, leader.epoch))
        return current

    def _unless_told(self, leader: LeaderAndEpoch) -> LeaderAndEpoch | None:
        return None if leader == self._told_leader else leader
