"""The state of a partition's idempotent and transactional producers: epoch, and the last five batches of each.

A batch that is in the log already is recognised here, and a gap in the sequence is refused. Followers keep the same
state from the batches that they copy, so it is there when one of them becomes leader. It is saved in snapshots
(`<offset>.snapshot`, when a segment rolls and at a clean shutdown); batches after a snapshot are replayed.
Source: KIP-98, KIP-360, ProducerStateManager of Apache Kafka.

A transaction is open from the producer's first transactional batch to its marker. The last stable offset is the first
offset of the first transaction that is open, or whose marker is not committed yet.

Apache Kafka's snapshots have only the last batch of a producer, so that the four before it are forgotten at a restart.
Ours have an entry for each of the five, oldest first; Apache Kafka's reader keeps the last one. Before them is an entry
for each transaction whose marker may not be committed yet, so that a replica that starts again and leads shows none of
its records before. Its last sequence number is -1, its last offset that of the marker, its timestamp the transaction's
first offset, and its offset delta, negative as no batch's is, says how it ended.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from crc32c import crc32c

from ...runtime.invariants import sometimes
from ...runtime.ports import Buffer
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.records import (
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    ControlRecordType,
    CorruptBatchError,
    control_record_type,
    iter_records,
)
from ..config import MAX_INT64
from .sequence_numbers import SEQUENCE_MASK, SEQUENCES_AHEAD_MAX
from .transaction_verification import PendingVerifications, VerificationGuard

REMEMBERED_BATCHES = 5
UNKNOWN_DELTA = -1
_COMMITTED_DELTA, _ABORTED_DELTA = -1, -2
"""The offset deltas of entries in a snapshot that stand for transactions whose marker may not be committed yet."""
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6
_NO_EPOCH = -1


class BatchMetadata(NamedTuple):
    """One batch of a producer in the log."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class EndTransactionMarker(NamedTuple):
    """The control record that ends a transaction."""

    is_abort: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStateEntry:
    """One producer: its epoch and its last batches, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "first_sequence",
        "last_timestamp",
        "silent_since_ms",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[BatchMetadata] = []
        self.first_sequence = NO_SEQUENCE
        """All batches of this epoch from this sequence number on are known to be in the log."""
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1
        self.silent_since_ms: int | None = None
        """When `ProducerStateManager.expire` first found no new batch since its previous call; None after a batch."""

    @property
    def last_sequence(self) -> int:
        """The last sequence number in the log, -1 when there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def take(self, batch: BatchMetadata) -> None:
        """Add a batch that is in the log after all others of the producer."""
        batches = self.batches
        if not batches or batch.first_sequence != (batches[-1].last_sequence + 1) & SEQUENCE_MASK:
            self.first_sequence = batch.first_sequence
        elif (batch.first_sequence - self.first_sequence) & SEQUENCE_MASK > SEQUENCES_AHEAD_MAX:
            self.first_sequence = (batch.first_sequence - SEQUENCES_AHEAD_MAX) & SEQUENCE_MASK
        batches.append(batch)
        if len(batches) > REMEMBERED_BATCHES:
            del batches[0]

    def is_long_written(self, first_sequence: int, last_sequence: int) -> bool:
        """Whether these sequence numbers were in the log before the oldest remembered batch was."""
        if not self.batches:
            return False
        length = (self.batches[0].first_sequence - self.first_sequence) & SEQUENCE_MASK
        if length > SEQUENCES_AHEAD_MAX:  # there is a gap among the remembered batches
            return False
        begin, end = (first_sequence - self.first_sequence) & SEQUENCE_MASK, last_sequence - first_sequence + 1
        return begin + (end & SEQUENCE_MASK) <= length


class CorruptSnapshotError(Exception):
    """A producer snapshot whose bytes do not match its CRC or format."""


_MARKER_VALUE = struct.Struct(">hi")


def read_marker(batch: Buffer) -> EndTransactionMarker | None:
    """The marker in a control batch; None for another control record, or one that does not parse."""
    try:
        record = next(iter_records(batch), None)
        if record is None or record.value is None or len(record.value) < _MARKER_VALUE.size:
            return None
        record_type = control_record_type(record.key)
    except CorruptBatchError:
        return None
    if record_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    return EndTransactionMarker(record_type == ControlRecordType.ABORT, _MARKER_VALUE.unpack_from(record.value)[1])


class ProducerStateManager:
    """Owns the state of one partition's producers, by producer id."""

    __slots__ = ("_completed", "_entries", "_open_transactions", "verifications")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerStateEntry] = {}
        self._open_transactions: dict[int, int] = {}
        """First offset by producer id, in order of the offsets."""
        self._completed: deque[CompletedTransaction] = deque()
        """Transactions whose marker may not be committed yet, by both first and last offset in ascending order.

        Left out are those that began after another one whose marker is later: that one is unstable for longer.
        """
        self.verifications = PendingVerifications()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        """The state of a producer, None when it is unknown; the caller must not change it."""
        return self._entries.get(producer_id)

    def items(self) -> list[tuple[int, ProducerStateEntry]]:
        """All producers in order of their first batch."""
        return list(self._entries.items())

    def check(
        self, header: BatchHeader, staged: dict[int, tuple[int, int]], guard: VerificationGuard | None = None
    ) -> BatchMetadata | None:
        """Check a data batch: None to append it, or the batch in the log that it repeats.

        If the repeated batch is so old that its offsets are forgotten, `offset_delta` is `UNKNOWN_DELTA`, and
        `last_offset` is the greatest that it may have. That happens when a client still waits for the response of a
        leader that is gone, while its later batches go to the next leader.
        `staged` has the epoch and last sequence of producers whose earlier batches of the same request are not applied
        yet; this batch is added to it. Batches of a coordinator have no sequence numbers. `guard` allows a batch to
        open a transaction. Raises `ProtocolError` with INVALID_PRODUCER_EPOCH for a fenced producer,
        OUT_OF_ORDER_SEQUENCE_NUMBER for a gap or a repetition that is no longer remembered, INVALID_TXN_STATE for a
        batch that may not open a transaction, or that is outside of the producer's open one.
        """
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        last = (first + header.last_offset_delta) & SEQUENCE_MASK if first >= 0 else NO_SEQUENCE
        entry = self._entries.get(producer_id)
        if entry is not None and entry.epoch == epoch and first >= 0:
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
            if producer_id not in staged and entry.is_long_written(first, last):
                oldest = entry.batches[0]
                return BatchMetadata(first, last, oldest.first_offset - 1, UNKNOWN_DELTA, header.max_timestamp)
        is_transactional = header.attributes & TRANSACTIONAL_FLAG
        if is_transactional and producer_id not in staged:
            self._check_verified(header, entry, guard)
        known = staged.get(producer_id) or ((entry.epoch, entry.last_sequence) if entry is not None else None)
        if known is not None:
            _check_sequence(header, *known)
        if entry is not None and entry.transaction_first_offset >= 0 and not is_transactional:
            raise ProtocolError(
                ErrorCode.INVALID_TXN_STATE, f"Producer {producer_id} has a transaction open; the batch is not in it"
            )
        staged[producer_id] = (epoch, last)
        return None

    def _check_verified(
        self, header: BatchHeader, entry: ProducerStateEntry | None, guard: VerificationGuard | None
    ) -> None:
        if not self.has_open_transaction(header.producer_id, header.producer_epoch):
            self.verifications.check(header, guard)
        if entry is not None and header.producer_epoch < entry.epoch:
            return  # is refused for its epoch
        if header.base_sequence >= 0 and (entry is None or not entry.batches):
            self.verifications.check_sequence(header)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open, and no newer epoch."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == producer_epoch

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """The guard for a producer's batch, whose transaction is to be verified; None if it is open already."""
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        return self.verifications.begin(
            producer_id, producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump
        )

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int) -> None:
        """Check a marker of a transaction coordinator that works by `transaction_version`.

        From version 2 on each end of a transaction raises the producer's epoch before its markers are written
        (KIP-890), so that a marker of the same epoch is late. It is taken again if no transaction is open, since its
        coordinator may not know that it was written (KAFKA-19999). Raises `ProtocolError`: INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(header.producer_id)
        epoch = header.producer_epoch
        known_epoch, known_coordinator, is_open = 0, -1, False
        if entry is not None:
            known_epoch, known_coordinator = entry.epoch, entry.coordinator_epoch
            is_open = entry.transaction_first_offset >= 0
        if epoch < known_epoch or (epoch == known_epoch and transaction_version >= 2 and is_open):
            sometimes(True, "a partition refused a marker of a former producer epoch")
            raise ProtocolError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {known_epoch}, the marker has {epoch} "
                f"(transaction.version {transaction_version})",
            )
        if marker.coordinator_epoch < known_coordinator:
            sometimes(True, "a partition refused a marker of a former transaction coordinator")
            raise ProtocolError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The marker for producer {header.producer_id} has coordinator epoch {marker.coordinator_epoch}, "
                f"{known_coordinator} is known",
            )

    def update(self, header: BatchHeader) -> None:
        """Apply a data batch that is in the log (on a leader or a follower, or in recovery)."""
        entry = self._touch(header)
        if header.attributes & TRANSACTIONAL_FLAG:
            self.verifications.end(header.producer_id)
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = header.base_offset
                self._open_transactions[header.producer_id] = header.base_offset
        delta = header.last_offset_delta
        first = header.base_sequence
        last = (first + delta) & SEQUENCE_MASK if first >= 0 else NO_SEQUENCE
        entry.take(BatchMetadata(first, last, header.base_offset + delta, delta, header.max_timestamp))

    def end_transaction(self, header: BatchHeader, marker: EndTransactionMarker) -> CompletedTransaction | None:
        """Apply a marker that is in the log; returns the transaction that it ended, if one was open."""
        entry = self._touch(header)
        self.verifications.end_by_marker(header.producer_id, header.producer_epoch)
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        first_offset = entry.transaction_first_offset
        if first_offset < 0:
            return None
        entry.transaction_first_offset = -1
        self._open_transactions.pop(header.producer_id, None)
        completed = CompletedTransaction(header.producer_id, first_offset, header.last_offset, marker.is_abort)
        self._add_completed(completed)
        return completed

    def _add_completed(self, completed: CompletedTransaction) -> None:
        unstable = self._completed
        while unstable and unstable[-1].first_offset >= completed.first_offset:
            unstable.pop()
        unstable.append(completed)

    def _touch(self, header: BatchHeader) -> ProducerStateEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerStateEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches = []
        entry.last_timestamp = header.max_timestamp
        entry.silent_since_ms = None
        return entry

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """First offset of each open transaction by producer id, in order of the offsets."""
        return self._open_transactions

    def first_open_offset(self) -> int | None:
        """The first offset of the first open transaction, None when there is none."""
        return next(iter(self._open_transactions.values()), None)

    def has_late_transaction(self, before_ms: int) -> bool:
        """Whether the producer of the first open transaction wrote nothing at or after `before_ms`, by its timestamps.

        Source: ProducerStateManager.hasLateTransaction of Apache Kafka.
        """
        producer_id = next(iter(self._open_transactions), None)
        return producer_id is not None and 0 < self._entries[producer_id].last_timestamp < before_ms

    @property
    def is_stable(self) -> bool:
        """Whether no transaction is open, and none had ended above the high watermark when that was last looked at."""
        return not (self._open_transactions or self._completed)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the first transaction that is open, or whose marker is not below `high_watermark`.

        `high_watermark` must not be lower than in the call before.
        """
        completed = self._completed
        while completed and completed[0].last_offset < high_watermark:
            completed.popleft()
        open_offset = self.first_open_offset()
        if not completed:
            return open_offset
        first_offset = completed[0].first_offset
        return first_offset if open_offset is None else min(first_offset, open_offset)

    @property
    def unstable_transactions(self) -> tuple[CompletedTransaction, ...]:
        """Transactions whose marker may not be committed yet: all that count for the last stable offset."""
        return tuple(self._completed)

    def keep_unstable(self, completed: Iterable[CompletedTransaction], end_offset: int = MAX_INT64) -> None:
        """Remember those below `end_offset`: this state was made again, maybe from a snapshot that has none of them.

        Apache Kafka's have none. Otherwise, records of a transaction would be shown whose marker is not committed yet.
        """
        known = {one.last_offset: one for one in completed if one.last_offset < end_offset}
        known |= {one.last_offset: one for one in self._completed}
        self._completed.clear()
        for _, one in sorted(known.items()):
            self._add_completed(one)

    def take_over(self, former: ProducerStateManager) -> None:
        """This is the state of a copy of the log, which takes its place."""
        self.keep_unstable(former.unstable_transactions)
        self.verifications = former.verifications

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that have no open transaction and wrote nothing for so long; returns how many.

        `now_ms` is monotonic time. Apache Kafka uses the timestamps of the records. It therefore forgets a producer of
        old records at once, and appends its next retry twice.
        """
        self.verifications.expire(now_ms, expiration_ms)
        expired = []
        for producer_id, entry in self._entries.items():
            if entry.silent_since_ms is None:
                entry.silent_since_ms = now_ms
            if entry.transaction_first_offset < 0 and now_ms - entry.silent_since_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            sometimes(True, "a partition forgot a producer that had been silent for long")
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget all producers."""
        self._entries.clear()
        self._open_transactions.clear()
        self._completed.clear()
        self.verifications.clear()

    def encode_snapshot(self) -> bytes:
        """The bytes of a snapshot file, version 1."""
        rows = []
        unstable: dict[int, list[CompletedTransaction]] = {}
        for one in self._completed:
            unstable.setdefault(one.producer_id, []).append(one)
        for producer_id, entry in self._entries.items():
            for one in unstable.get(producer_id, ()):
                delta = _ABORTED_DELTA if one.is_aborted else _COMMITTED_DELTA
                row = (NO_SEQUENCE, one.last_offset, delta, one.first_offset)
                rows.append(_SNAPSHOT_ENTRY.pack(producer_id, entry.epoch, *row, entry.coordinator_epoch, -1))
            tail = (entry.coordinator_epoch, entry.transaction_first_offset)
            for batch in entry.batches[:-1]:
                row = (batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp)
                rows.append(_SNAPSHOT_ENTRY.pack(producer_id, entry.epoch, *row, *tail))
            row = (NO_SEQUENCE, -1, 0, entry.last_timestamp)
            if entry.batches:
                batch = entry.batches[-1]
                row = (batch.last_sequence, batch.last_offset, batch.offset_delta, entry.last_timestamp)
            rows.append(_SNAPSHOT_ENTRY.pack(producer_id, entry.epoch, *row, *tail))
        body = struct.pack(">i", len(rows)) + b"".join(rows)
        return struct.pack(">hI", _SNAPSHOT_VERSION, crc32c(body)) + body

    def load_snapshot(self, data: bytes) -> None:
        """Replace all state by that of a snapshot; on `CorruptSnapshotError` nothing changes."""
        entries: dict[int, ProducerStateEntry] = {}
        unstable: list[CompletedTransaction] = []
        for row in _decode_snapshot(data):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_offset = row
            if delta in (_COMMITTED_DELTA, _ABORTED_DELTA):
                unstable.append(CompletedTransaction(producer_id, timestamp, offset, delta == _ABORTED_DELTA))
                continue
            entry = entries.get(producer_id)
            if entry is None or entry.epoch != epoch:
                entry = entries[producer_id] = ProducerStateEntry(epoch)
            entry.last_timestamp = timestamp
            entry.coordinator_epoch = coordinator_epoch
            entry.transaction_first_offset = transaction_offset
            if offset >= 0:
                first = (sequence - delta) & SEQUENCE_MASK if sequence >= 0 else NO_SEQUENCE
                entry.take(BatchMetadata(first, sequence, offset, delta, timestamp))
        self.clear()
        self._entries = entries
        open_offsets = [(e.transaction_first_offset, p) for p, e in entries.items() if e.transaction_first_offset >= 0]
        self._open_transactions.update((producer_id, offset) for offset, producer_id in sorted(open_offsets))
        self.keep_unstable(unstable)


def _check_sequence(header: BatchHeader, known_epoch: int, known_last_sequence: int) -> None:
    if header.producer_epoch < known_epoch:
        sometimes(True, "a partition refused a batch of a fenced producer")
        raise ProtocolError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {header.producer_id} is {known_epoch}, the batch has {header.producer_epoch}",
        )
    if known_epoch == _NO_EPOCH or header.base_sequence < 0:
        return
    expected = 0 if header.producer_epoch != known_epoch else (known_last_sequence + 1) & SEQUENCE_MASK
    if header.base_sequence != expected:
        sometimes(True, "a partition refused a batch because one before it was missing")
        raise ProtocolError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence {header.base_sequence}, "
            f"expected {expected}",
        )


def _decode_snapshot(data: bytes) -> list[tuple[int, ...]]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version} is unknown")
    if crc != crc32c(memoryview(data)[_CRC_END:]):
        raise CorruptSnapshotError("CRC does not match")
    rows = memoryview(data)[_SNAPSHOT_HEAD.size :]
    if len(rows) != count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries in {len(rows)} bytes")
    return list(_SNAPSHOT_ENTRY.iter_unpack(rows))
