"""The quorum's log on disk: the partition log `__cluster_metadata-0` and its snapshots (Kafka's KafkaRaftLog)."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...log.errors import NoSpaceError, StorageError
from ...log.partition_log import PartitionLog
from ...runtime.invariants import sometimes
from ...runtime.ports import Buffer, File, Runtime
from ...wire.errors import ProtocolError
from ...wire.records import NewRecord, encode_batch, iter_headers, iter_records
from ...wire.types import UNKNOWN_EPOCH_END, EpochEndOffset, SnapshotId
from ..messages.control_records import encode_control, voter_records
from ..snapshots.snapshot_store import SnapshotRetention, SnapshotStore, snapshot_batches
from ..types import LOG_BEGIN, CommittedBatch
from ..voters.voter_set import ControlRecord, VoterHistory
from .spare_space import SpareSpace

_READ_BYTES = 1024 * 1024

T = TypeVar("T")

_logger = logging.getLogger(__name__)


def _once(write: Callable[[], T]) -> T:
    return write()


class PartitionRaftLog:
    """A `RaftLog` that also flushes, one fsync at a time, and deletes old snapshots with the log before them.

    It keeps its own `durable_offset`, because a flush that began before a truncation does not cover what was written
    after it at the same offsets.
    """

    def __init__(self, log: PartitionLog, runtime: Runtime, spare: SpareSpace | None = None) -> None:
        """`spare` is used when the disk is full."""
        self._log = log
        self._retried = _once if spare is None else spare.retried
        self._clock = runtime.clock
        self.snapshots = SnapshotStore(runtime.disk, log.directory)
        self._partial: tuple[SnapshotId, File] | None = None
        """The snapshot that is being fetched."""
        self.voters = VoterHistory()
        self._start = self._reconcile()
        self._read_voters()
        self._flush_is_running = False
        self._truncations = 0
        self._last_warning = ""
        # Records that were in the log when it was opened may still be in the page cache only.
        log.flush()
        self._durable_offset = log.log_end_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    @property
    def durable_offset(self) -> int:
        """All below survives a loss of power."""
        return self._durable_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the snapshot if the log is empty."""
        latest = self._log.epoch_cache.latest_epoch()
        return self._start.epoch if latest is None else latest

    def end_offset_for(self, epoch: int) -> EpochEndOffset:
        """The largest epoch of the log that is <= `epoch`, with its end offset."""
        latest = self._log.epoch_cache.latest_epoch()
        if latest is not None and epoch >= latest:
            return EpochEndOffset(latest, self.end_offset)
        # The records below the log's start count as one epoch, that of the last of them.
        starts: list[tuple[int, int]] = [] if self._start == LOG_BEGIN else [(self._start.epoch, 0)]
        starts.extend(entry for entry in self._log.epoch_cache.entries if entry.epoch > self._start.epoch)
        at = bisect_right(starts, epoch, key=lambda entry: entry[0])
        if not at:
            return UNKNOWN_EPOCH_END
        return EpochEndOffset(starts[at - 1][0], starts[at][1] if at < len(starts) else self.end_offset)

    @property
    def start(self) -> SnapshotId:
        """The offset of the first record and the epoch of the record before it."""
        return self._start

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest durable snapshot."""
        return self.snapshots.latest

    def append_records(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch of data records; returns the last offset."""
        now_ms = self._clock.wall_ms()
        batch = encode_batch([NewRecord(None, record, (), now_ms) for record in records])
        self._append_as_leader(batch, epoch, now_ms)
        return self.end_offset - 1

    def _append_as_leader(self, batch: bytes | bytearray, epoch: int, now_ms: int) -> None:
        self._retried(lambda: self._log.append_as_leader(memoryview(batch), epoch, now_ms, internal=True))

    def append_controls(self, records: Sequence[ControlRecord], epoch: int) -> int:
        """Append one batch of control records; returns the last offset."""
        now_ms, base_offset = self._clock.wall_ms(), self.end_offset
        batch = encode_batch([encode_control(record, now_ms) for record in records], is_control=True)
        self._append_as_leader(batch, epoch, now_ms)
        for index, record in enumerate(records):
            self.voters.add(base_offset + index, record)
        return self.end_offset - 1

    def append_fetched(self, records: Buffer, leader_epoch: int) -> None:
        """As `RaftLog.append_fetched`; what is refused is logged once."""
        try:
            found = list(voter_records(records, allow_partial_tail=True))
            self._retried(lambda: self._log.append_as_follower(memoryview(records), leader_epoch))
        except StorageError:
            raise
        except ProtocolError as error:
            self._warn_once(f"this node does not take what the quorum's leader sent: {error.message}")
            raise
        self._last_warning = ""
        self._discard_partial()  # the download of a snapshot was given up
        for offset, record in found:
            if offset < self.end_offset:
                self.voters.add(offset, record)

    def truncate_to(self, offset: int) -> None:
        """Remove all records at and above `offset`."""
        self._truncations += 1
        self._retried(lambda: self._log.truncate_to(offset))
        self._durable_offset = min(self._durable_offset, self.end_offset)
        sometimes(self.voters.last_offset >= self.end_offset, "a change of the voters was cut off a metadata log")
        self.voters.truncate_to(self.end_offset)

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """As `RaftLog.read`; what is damaged is logged once."""
        try:
            return self._log.read(offset, max_bytes, end_offset=self.end_offset)
        except StorageError:
            raise
        except ProtocolError as error:
            self._warn_once(f"this node cannot read its metadata log for others: {error.message}")
            raise

    def _warn_once(self, text: str) -> None:
        """Log what is retried again and again, unless it is what was logged last."""
        if text != self._last_warning:
            self._last_warning = text
            _logger.warning("%s", text)

    def read_batches(self, offset: int, end_offset: int, max_bytes: int) -> list[CommittedBatch]:
        """Decoded batches of [`offset`, `end_offset`), at least one while there are any."""
        data = memoryview(self._log.read(offset, max_bytes, end_offset=end_offset))
        return [
            CommittedBatch(
                header.base_offset,
                header.last_offset,
                header.partition_leader_epoch,
                header.max_timestamp,
                []
                if header.is_control
                else [r.value or b"" for r in iter_records(data[position : position + header.size_bytes])],
                header.size_bytes,
            )
            for position, header in iter_headers(data)
        ]

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def _reconcile(self) -> SnapshotId:
        """Where the log starts, after finishing what a crash interrupted between a snapshot and the log."""
        log, store = self._log, self.snapshots
        base = log.log_start_offset
        self._remove_damaged_snapshots()
        latest = store.latest
        if latest is None or latest.end_offset < base:
            if base > 0:
                raise StorageError(
                    f"{log.directory} starts at offset {base}, and the snapshot of what was before is not there. "
                    f"Restore it. Or let the node fetch all from the controllers: empty {log.directory}; or, if this "
                    "node is a controller and a majority of the others runs, empty its log directory and format it "
                    "again."
                )
            return LOG_BEGIN
        if not self._reaches(latest):
            sometimes(True, "a metadata log began anew at its snapshot when it was opened")
            log.truncate_fully_and_start_at(latest.end_offset)
            base = latest.end_offset
        store.delete_before(base)
        if base:
            log.advance_start(store.ids[0].end_offset)
        return store.ids[0] if base else LOG_BEGIN

    def _remove_damaged_snapshots(self) -> None:
        """Remove the latest snapshots that are damaged, as far as the log still has what was in them.

        Raises `StorageError` where it has not.
        """
        log, store = self._log, self.snapshots
        while (latest := store.latest) is not None and latest.end_offset > log.log_start_offset:
            try:
                store.check(latest)
                return
            except StorageError:
                if not self._reaches(latest):
                    raise
            _logger.error("%s is damaged and is removed; the log has what was in it", store.path(latest))
            sometimes(True, "a damaged metadata snapshot was removed, as the log had what was in it")
            store.remove(latest)

    def _read_voters(self) -> None:
        """Read the voters from the snapshot that the log starts with, and then from the log."""
        if self._start in self.snapshots.ids:
            self.voters.start_from(self._start.end_offset, self.snapshots.controls(self._start))
        offset = self._start.end_offset
        while offset < self.end_offset:
            data = self._log.read(offset, _READ_BYTES, end_offset=self.end_offset)
            for at, record in voter_records(data):
                self.voters.add(at, record)
            offset = max(header.last_offset for _, header in iter_headers(data)) + 1

    def _reaches(self, snapshot_id: SnapshotId) -> bool:
        """Whether the log has the snapshot's last record, or starts at the snapshot's end."""
        end_offset, epoch = snapshot_id
        if end_offset == self._log.log_start_offset:
            return True
        return end_offset <= self.end_offset and self._log.epoch_cache.epoch_for_offset(end_offset - 1) == epoch

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, Buffer] | None:
        """As `RaftLog.read_snapshot`."""
        return self.snapshots.read(snapshot_id, position, max_bytes)

    def receive_snapshot(self, snapshot_id: SnapshotId, position: int, data: Buffer) -> None:
        """Write a part of the leader's snapshot; position 0 begins it anew."""
        if position == 0 or self._partial is None:
            sometimes(self._partial is not None, "a follower began to fetch a metadata snapshot anew")
            self._discard_partial()
            self._partial = snapshot_id, self._retried(lambda: self.snapshots.begin(snapshot_id))
        file, end = self._partial[1], self._partial[1].size()

        def write() -> None:
            if file.size() != end:
                file.truncate(end)  # the disk was full before the end of the part
            file.append([data])

        self._retried(write)

    def install_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """Make a complete snapshot durable and begin an empty log at its end; False when it is damaged."""
        if self._partial is None:
            return False
        (_, file), self._partial = self._partial, None
        try:
            snapshot_batches(file.pread(0, file.size()))
            file.fsync()
        except ProtocolError:
            sometimes(True, "a metadata snapshot that was fetched turned out to be damaged")
            self.snapshots.discard(snapshot_id)
            return False
        finally:
            file.close()
        self.snapshots.publish(snapshot_id)
        self._truncations += 1
        self._log.truncate_fully_and_start_at(snapshot_id.end_offset)
        self._start = snapshot_id
        self._durable_offset = snapshot_id.end_offset
        self.voters.start_from(snapshot_id.end_offset, self.snapshots.controls(snapshot_id))
        self.snapshots.delete_before(snapshot_id.end_offset)
        return True

    def add_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Publish this node's own snapshot, which is written and synced, and roll the log, so that it can be deleted.

        Raises `StorageError` and `OSError`.
        """
        latest = self.snapshots.latest
        if latest is not None and latest.end_offset >= snapshot_id.end_offset:
            sometimes(True, "a node's own metadata snapshot was older than one that it had fetched meanwhile")
            self.snapshots.discard(snapshot_id)
            return
        self.snapshots.publish(snapshot_id)
        try:
            self._log.roll()
        except NoSpaceError as error:
            # It can wait for the next snapshot, and the spare space is for records.
            sometimes(True, "a full disk kept the metadata log from rolling after a snapshot")
            _logger.error("the metadata log is not rolled after a snapshot, as the disk is full: %s", error)

    def clean(self, retention: SnapshotRetention, now_ms: int) -> int | None:
        """Delete old snapshots and the log before them; returns when the next one is too old, by the wall clock.

        The log and its snapshots are held within the retention's size, and the oldest snapshot within its age. The
        newest snapshot and all after it stay. The log starts where its oldest snapshot ends. Raises `StorageError` and
        `OSError`.
        """
        ids = list(self.snapshots.ids)
        while len(ids) >= 2:
            kept_bytes = self._log.size_bytes + sum(self.snapshots.size_bytes(each) for each in ids)
            expires_ms = retention.expiry_ms(self.snapshots.timestamp_ms(ids[0]))
            if not retention.exceeds_size(kept_bytes) and (expires_ms is None or now_ms < expires_ms):
                return expires_ms
            sometimes(True, "old metadata was deleted, and its log began with a later snapshot")
            oldest = ids.pop(0)
            self._log.advance_start(ids[0].end_offset)
            self._start = ids[0]
            self.snapshots.delete_before(oldest.end_offset + 1)
        return None

    def _discard_partial(self) -> None:
        if self._partial is not None:
            (snapshot_id, file), self._partial = self._partial, None
            file.close()
            self.snapshots.discard(snapshot_id)

    # ---- durability --------------------------------------------------------------------------------------------------

    def flush_if_behind(self, on_flushed: Callable[[BaseException | None], None]) -> None:
        """Start an fsync unless one runs or all is durable; its end calls `on_flushed` with None or an error.

        What is appended while it runs needs another call.
        """
        if self._flush_is_running or self._durable_offset >= self.end_offset:
            return
        self._flush_is_running = True
        began_at = self._truncations
        future = self._log.flush_soon()

        def done(flushed: asyncio.Future[int]) -> None:
            self._flush_is_running = False
            error = flushed.exception()
            sometimes(began_at != self._truncations, "a metadata log was cut while it was being synced")
            if error is None and began_at == self._truncations:
                self._durable_offset = max(self._durable_offset, min(flushed.result(), self.end_offset))
            on_flushed(error)

        future.add_done_callback(done)

    def close(self, *, clean: bool) -> None:
        """Close the files. Unless `clean`, records that were not flushed are left to recovery."""
        if self._partial is not None:
            self._partial[1].close()
        self._log.close(clean=clean)
