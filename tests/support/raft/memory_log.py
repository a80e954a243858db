"""A `RaftLog` in memory, which can lose what was not flushed. Its batches are read, cut and lost as a whole."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from raftwerk.raft.types import LOG_BEGIN, ReplicaKey
from raftwerk.raft.voters.voter_set import ControlRecord, KRaftVersion, LeaderChange, VoterHistory
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.types import UNKNOWN_EPOCH_END, EpochEndOffset, SnapshotId


class Entry(NamedTuple):
    offset: int
    epoch: int
    payload: bytes
    control: ControlRecord | None = None
    ends_batch: bool = True


def describe_control(record: ControlRecord) -> str:
    """A control record in a few words."""
    match record:
        case LeaderChange():
            return f"leader {record.leader_id} by {[key.id for key in record.granting]}"
        case KRaftVersion():
            return f"kraft.version {record.level}"
    return f"voters {','.join(voter_text(key) for key in record.keys)}"


def batch_start(entries: Sequence[Entry], offset: int) -> int:
    """The base offset of the batch that has `offset` within it; `offset` itself between two batches."""
    while 0 < offset < len(entries) and not entries[offset - 1].ends_batch:
        offset -= 1
    return offset


def voter_text(key: ReplicaKey) -> str:
    """A voter by id, with the number of its directory unless that is its first."""
    number = key.directory_id.int
    return f"{key.id}" if number in (0, key.id) else f"{key.id}/{number}"


class MemoryLog:
    """`read` returns a tuple of entries in place of bytes; the quorum only passes it on.

    `entries` keeps what was deleted before the log's start, as the state that the snapshot there replaces. A snapshot
    contains the entries below its end, and its size in bytes is their number.
    """

    def __init__(
        self,
        on_append: Callable[[Entry, int], None] = lambda entry, previous_epoch: None,
        formatted: Sequence[ControlRecord] = (),
    ) -> None:
        self.formatted = tuple(formatted)
        """The control records in the snapshot that formatting wrote."""
        self.voters = VoterHistory()
        self.voters.start_from(0, self.formatted)
        self.entries: list[Entry] = []
        self.durable: list[Entry] = []
        self.durable_offset = 0
        self._on_append = on_append
        self._truncations = 0
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.start = LOG_BEGIN
        self.snapshots: dict[SnapshotId, tuple[Entry, ...]] = {}
        self.installed: SnapshotId | None = None
        self._received: list[Entry] = []

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else self.start.epoch

    def end_offset_for(self, epoch: int) -> EpochEndOffset:
        at = bisect_right(self._epochs, epoch)
        if at == 0 and (self.start == LOG_BEGIN or epoch < self.start.epoch):
            return UNKNOWN_EPOCH_END
        end_offset = self._starts[at] if at < len(self._starts) else self.end_offset
        return EpochEndOffset(self._epochs[at - 1] if at else self.start.epoch, end_offset)

    # ---- snapshots ----

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def take_snapshot(self, snapshot_id: SnapshotId, *, kept: int) -> None:
        """Make a snapshot; the log then starts at the oldest of the `kept` newest ones."""
        self.snapshots[snapshot_id] = tuple(self.entries[: snapshot_id.end_offset])
        for old in sorted(self.snapshots)[:-kept]:
            del self.snapshots[old]
            self.start = min(self.snapshots)
            self._index()

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Any:
        contents = self.snapshots.get(snapshot_id)
        if contents is None:
            return None
        return len(contents), contents[position : position + max(1, max_bytes)] if position >= 0 else ()

    def receive_snapshot(self, snapshot_id: SnapshotId, position: int, data: Any) -> None:
        if position == 0:
            self._received = []
        assert position == len(self._received), "the parts of a snapshot come in order"
        self._received.extend(data)

    def install_snapshot(self, snapshot_id: SnapshotId) -> bool:
        self.entries = list(self._received)
        self.installed = self.start = snapshot_id
        self.snapshots = {snapshot_id: tuple(self.entries)}
        self._truncations += 1
        self._read_voters()
        self._index()
        self.durable = list(self.entries)
        self.durable_offset = len(self.entries)
        return True

    def append_records(self, records: Sequence[bytes], epoch: int) -> int:
        for number, record in enumerate(records, start=1):
            self._append(Entry(self.end_offset, epoch, record, ends_batch=number == len(records)))
        return self.end_offset - 1

    def append_controls(self, records: Sequence[ControlRecord], epoch: int) -> int:
        for number, record in enumerate(records, start=1):
            payload = describe_control(record).encode()
            self._append(Entry(self.end_offset, epoch, payload, record, ends_batch=number == len(records)))
        return self.end_offset - 1

    def append_fetched(self, records: Any, leader_epoch: int) -> None:
        if records and records[0].epoch > leader_epoch:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"epoch {records[0].epoch} above {leader_epoch}")
        for entry in takewhile(lambda entry: entry.epoch <= leader_epoch, records):
            assert entry.offset == self.end_offset, "fetched records continue the log"
            self._append(entry)

    def _append(self, entry: Entry) -> None:
        assert entry.epoch >= self.last_epoch, "epochs never go back in a log"
        self._on_append(entry, self.last_epoch)
        if entry.control is not None:
            self.voters.add(entry.offset, entry.control)
        if entry.epoch > self.last_epoch:
            self._epochs.append(entry.epoch)
            self._starts.append(entry.offset)
        self.entries.append(entry)

    def truncate_to(self, offset: int) -> None:
        offset = batch_start(self.entries, offset)
        self._truncations += 1
        del self.entries[offset:]
        self.durable_offset = min(self.durable_offset, offset)
        self.voters.truncate_to(offset)
        self._index()

    def read(self, offset: int, max_bytes: int) -> Any:
        assert offset >= self.start.end_offset, "nothing is read that was deleted"
        end = batch_start(self.entries, offset + max(1, max_bytes))
        if end <= offset:
            end = next(entry.offset + 1 for entry in self.entries[offset:] if entry.ends_batch)
        return tuple(self.entries[offset:end])

    def _read_voters(self) -> None:
        """Read the voters from the entries, those that the snapshot replaces included."""
        self.voters.start_from(0, self.formatted)
        for entry in self.entries:
            if entry.control is not None:
                self.voters.add(entry.offset, entry.control)

    def _index(self) -> None:
        self._epochs, self._starts = [], []
        for entry in self.entries[self.start.end_offset :]:
            if entry.epoch > self.last_epoch:
                self._epochs.append(entry.epoch)
                self._starts.append(entry.offset)

    # ---- the disk ----

    def begin_flush(self) -> tuple[int, int]:
        return self._truncations, self.end_offset

    def end_flush(self, begun: tuple[int, int]) -> None:
        truncations, end = begun
        if truncations == self._truncations:
            self.durable = self.entries[:end]
            self.durable_offset = end

    def flush(self) -> None:
        self.end_flush(self.begin_flush())

    def crash(self, rng: random.Random | None = None) -> None:
        """Lose what was not flushed; with `rng`, a part of it may have reached the disk."""
        if rng is not None and self.entries[: len(self.durable)] == self.durable:
            end = batch_start(self.entries, rng.randint(len(self.durable), len(self.entries)))
            self.durable = self.entries[:end]
        self.entries = list(self.durable)
        self.durable_offset = len(self.durable)
        self._truncations += 1
        self._read_voters()
        self._index()
