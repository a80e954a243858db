"""A replica: the state of its partition together with its log. All reads and writes of the log go through here.

An `OSError` of the log is passed on; the caller takes the replica offline (`storage_errors.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TypeAlias
from uuid import UUID

from ..log.append_info import AppendInfo
from ..log.config import LogConfig
from ..log.errors import NoSpaceError
from ..log.log_divergence import is_diverging, truncation_offset
from ..log.partition_log import PartitionLog
from ..log.record_validation import LoopBudget
from ..log.state.transaction_verification import VerificationGuard
from ..runtime.files.file_slice import FileSlice
from ..runtime.invariants import invariant, sometimes
from ..runtime.log_lines import log_event
from ..runtime.loggers import STATE_CHANGE
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.fetch import AbortedTransaction, FetchPartition, FetchPartitionResponse
from ..wire.records import end_of_batches
from ..wire.types import UNKNOWN_EPOCH_END, EpochEndOffset, LeaderIdAndEpoch, TopicPartition
from .leader.leader_state import IsrProposal
from .leader.refused_batches import RefusedBatches
from .partition import Partition, Registration
from .results import READ_COMMITTED, FetchParams

_logger = logging.getLogger(__name__)
ACKS_ALL = -1
_state_changes = logging.getLogger(STATE_CHANGE)
_FIRST_OFFSET = attrgetter("first_offset")
_COUNTED_APPENDS_MAX = 4_096
"""If more appends than these wait above the high watermark or the last stable offset, the newest are counted as one."""
_Appends: TypeAlias = deque[tuple[int, int]]
"""(next offset, bytes) of appends, in the order of their offsets."""


class Replica:
    """One replica of a partition. Methods raise `ProtocolError` for requests that must be refused."""

    __slots__ = (
        "_loaded_above",
        "_loaded_end",
        "_refused_batches",
        "_stable_offset",
        "_uncommitted",
        "_unstable",
        "has_space",
        "log",
        "offline",
        "partition",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_id: UUID,
        partition: Partition,
        log: PartitionLog,
        on_high_watermark: Callable[[Replica], None],
        refused_batches: RefusedBatches | None = None,
    ) -> None:
        self.topic_partition: TopicPartition = partition.topic_partition
        self.topic_id = topic_id
        self.partition = partition
        self.log = log
        self.offline = False
        self.has_space = True
        """Whether its log directory has space for more records."""
        self._uncommitted: _Appends = deque()
        """The appends above the high watermark since the node started."""
        self._loaded_above, self._loaded_end = self.high_watermark, log.log_end_offset
        """The records between were there when the node started; the high watermark has not passed them yet."""
        self._unstable: _Appends = deque()
        """The appends between the last stable offset and the high watermark."""
        self._stable_offset = self.last_stable_offset
        """The last stable offset when readable bytes were last counted."""
        self._refused_batches = refused_batches or RefusedBatches(None)
        partition.watermark.on_advanced = partial(on_high_watermark, self)

    # ---------------------------------------------------------------- views

    @property
    def high_watermark(self) -> int:
        """The offset below which this replica knows all records to be committed."""
        return self.partition.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed consumers get: committed records before the first transaction that is open.

        A transaction counts as open until its marker is committed.
        """
        high_watermark = self.partition.high_watermark
        log = self.log
        if log.producers.is_stable:
            return high_watermark
        unstable = log.producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, log.log_start_offset), high_watermark)

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.log_end_offset

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.partition.leader is not None

    def current_leader(self) -> LeaderIdAndEpoch:
        """The leader that this replica knows (KIP-951)."""
        return LeaderIdAndEpoch(self.partition.leader_id, self.partition.leader_epoch)

    def check_space(self) -> None:
        """Raise `NoSpaceError` while the disk is full: the log is served, but records are refused."""
        if not self.has_space:
            raise NoSpaceError(f"the log directory of {self.topic_partition} is full: it takes no records for now")

    def check_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR when the replica is offline."""
        if self.offline:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is offline")

    # ---------------------------------------------------------------- roles

    def make_leader(self, registration: Registration, now_ms: int) -> bool:
        """See `Partition.make_leader`.

        A batch with an epoch above the leader's was damaged on the disk, since no CRC covers the epoch: the log is cut
        there.
        """
        for epoch, start_offset in self.log.epoch_cache.entries:
            if epoch > registration.leader_epoch:
                sometimes(True, "a new leader cut a damaged leader epoch off its log")
                _logger.error(
                    "%s is cut at offset %d: epoch %d there, the leader's is %d",
                    *(self.log.directory, start_offset, epoch, registration.leader_epoch),
                )
                self.truncate_to(start_offset)
                break
        led = self.partition.leader
        next_epoch = 0 if led is None else led.leader_epoch + 1
        if registration.leader_epoch > next_epoch:
            # Where this node has missed an epoch, another one may have led in it.
            self._refused_batches = RefusedBatches(now_ms)
        became_leader = self.partition.make_leader(registration, self.log.log_end_offset, now_ms)
        self.check_high_watermark()
        return became_leader

    def make_follower(self, registration: Registration) -> bool:
        """See `Partition.make_follower`."""
        return self.partition.make_follower(registration)

    # ---------------------------------------------------------------- leader

    def append_as_leader(
        self,
        records: memoryview,
        acks: int,
        times: tuple[int, int],
        budget: LoopBudget | None = None,
        validated_by: LogConfig | None = None,
        guard: VerificationGuard | None = None,
        internal: bool = False,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append a producer's batches; the high watermark advances at once when there is no follower to wait for.

        `times` are monotonic and wall-clock milliseconds; the other parameters are as in
        `PartitionLog.append_as_leader`. Raises `ProtocolError`, `NeedsThreadError` and `OSError`.
        """
        now_ms, wall_ms = times
        log, leader = self.log, self.partition.leader
        if self.offline or leader is None:
            self.check_online()
            leader = self.partition.require_leader()
        try:
            if acks == ACKS_ALL and leader.is_under_min_isr:
                sometimes(True, "a produce request met an ISR below min.insync.replicas")
                raise ProtocolError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(leader.isr_state.isr)} in sync, {leader.effective_min_isr} required",
                )
            if not self.has_space:
                sometimes(True, "a leader refused records because its disk was full")
                self.check_space()
        except (ProtocolError, NoSpaceError):
            if not internal:
                self._refused_batches.note(records, log.producers, now_ms)
            raise
        if not internal:
            self._refused_batches.check_gap(records, log.producers, now_ms)
            if self._refused_batches.producers:
                self._refused_batches.check(records, now_ms)
        info = log.append_as_leader(
            records,
            leader.leader_epoch,
            wall_ms,
            internal=internal,
            validated_by=validated_by,
            budget=budget,
            guard=guard,
            transaction_version=transaction_version,
        )
        if not info.duplicate:
            _count(self._uncommitted, info.last_offset + 1, info.size_bytes)
        sometimes(info.duplicate, "a producer sent a batch again that was there")
        leader.maybe_advance_high_watermark(log.log_end_offset, now_ms)
        return info

    def note_refused(self, records: memoryview, now_ms: int) -> None:
        """These batches are refused without `append_as_leader`; those before them may still be on the way there."""
        self._refused_batches.note(records, self.log.producers, now_ms, behind_others=True)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """The guard with which the producer's batch may open a transaction, when the coordinator has confirmed it.

        None: the producer's transaction is open here already. `supports_epoch_bump`: the client knows KIP-890.
        Raises `ProtocolError`.
        """
        self.check_online()
        self.partition.require_leader()
        return self.log.producers.begin_verification(
            producer_id, producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump
        )

    def committed_bytes(self) -> tuple[int, int]:
        """How many bytes the high watermark has passed since the last call, and how many the last stable offset.

        Records that were there when the node started count as one byte: there is something new to read.
        """
        uncommitted = self._uncommitted
        high_watermark = self.partition.high_watermark
        size_bytes = self._loaded_bytes(high_watermark) if self._loaded_above < self._loaded_end else 0
        if self._unstable or not self.log.producers.is_stable:
            committed_bytes, stable_bytes = self._committed_and_stable_bytes(high_watermark)
            return size_bytes + committed_bytes, stable_bytes
        while uncommitted and uncommitted[0][0] <= high_watermark:
            size_bytes += uncommitted.popleft()[1]
        self._stable_offset = high_watermark
        return size_bytes, size_bytes

    def _loaded_bytes(self, high_watermark: int) -> int:
        is_advanced = high_watermark > self._loaded_above
        self._loaded_above = high_watermark
        return int(is_advanced)

    def _committed_and_stable_bytes(self, high_watermark: int) -> tuple[int, int]:
        """Appends that are stable in part count as one byte: there is something new to read."""
        uncommitted, unstable = self._uncommitted, self._unstable
        committed_bytes = stable_bytes = 0
        while uncommitted and uncommitted[0][0] <= high_watermark:
            committed_bytes += uncommitted[0][1]
            _count(unstable, *uncommitted.popleft())
        stable_offset = self.last_stable_offset
        while unstable and unstable[0][0] <= stable_offset:
            stable_bytes += unstable.popleft()[1]
        is_advanced = stable_offset > self._stable_offset
        self._stable_offset = stable_offset
        return committed_bytes, stable_bytes or int(is_advanced)

    def check_high_watermark(self) -> None:
        """Hold the invariant that the high watermark is within the log."""
        invariant(
            self.partition.high_watermark <= self.log.log_end_offset, "a high watermark is within its replica's log"
        )

    def on_fetch(self, params: FetchParams, request: FetchPartition, now_ms: int) -> IsrProposal | None:
        """A fetch has come: refuse a wrong epoch, incarnation or broker; record the position of a follower.

        The high watermark may advance. Returns the ISR expansion to propose, if any. A fetch that diverges is not
        recorded (KAFKA-13141), nor one that is out of range. Raises `ProtocolError`.
        """
        self.check_online()
        partition = self.partition
        partition.check_leader_epoch(request.current_leader_epoch)
        if params.replica_id < 0:
            if not params.from_follower_allowed:
                partition.require_leader()
            return None
        leader = partition.require_leader()
        follower = leader.check_follower(params.replica_id, params.replica_epoch)
        if self._divergence(request) is not None:
            return None
        offsets = (request.fetch_offset, request.log_start_offset)
        return leader.on_follower_fetch(follower, params.replica_epoch, offsets, self.log.log_end_offset, now_ms)

    def is_clean_for(self, replica_id: int, fetch_offset: int, *, is_counted: bool) -> bool:
        """Whether the follower has all records and nothing happens by its next fetch (see `dirty_partitions.py`).

        Each fetch of a follower outside the ISR may lead to a proposal to add it. If this fetch was just recorded
        (`is_counted`), the next one leads to nothing new unless the partition changes.
        """
        leader = self.partition.leader
        if leader is None or self.offline or fetch_offset != self.log.log_end_offset:
            return False
        return is_counted or replica_id in leader.isr_state.maximal_isr

    def has_later_segment_for(self, params: FetchParams, fetch_offset: int) -> bool:
        """Whether there are records for the fetch that its answer cannot hold: those are all of one segment."""
        return self.log.has_later_segment(fetch_offset, self._end_offset_for(params))

    def _end_offset_for(self, params: FetchParams) -> int:
        if params.replica_id >= 0:
            return self.log.log_end_offset
        return self.last_stable_offset if params.isolation_level == READ_COMMITTED else self.high_watermark

    def read(
        self,
        params: FetchParams,
        request: FetchPartition,
        max_bytes: int,
        *,
        min_one_batch: bool,
        allow_blocking_io: bool = True,
    ) -> FetchPartitionResponse:
        """What a fetch gets now: records, the point of divergence, or nothing new. `on_fetch` comes first.

        What may have changed while the fetch waited is checked again. Raises `ProtocolError`, `OSError`, and
        `ColdReadError` as `PartitionLog.read` does.
        """
        self.check_online()
        partition = self.partition
        partition.check_leader_epoch(request.current_leader_epoch)
        if partition.leader is None and not params.from_follower_allowed:
            partition.require_leader()
        diverging = self._divergence(request)
        high_watermark = partition.high_watermark
        log = self.log
        stable_offset = high_watermark if log.producers.is_stable else self.last_stable_offset
        records: bytes | FileSlice = b""
        aborted: list[AbortedTransaction] | None = None
        if diverging is None:
            end_offset = self._end_offset_for(params)
            if params.isolation_level == READ_COMMITTED and params.replica_id < 0:
                aborted = []
            if request.fetch_offset < end_offset and (min_one_batch or max_bytes > 0):
                slice_bytes_min = params.slice_bytes_min
                may_have_aborted = aborted is not None and log.has_aborted_transactions_after(request.fetch_offset)
                if may_have_aborted:
                    slice_bytes_min = None  # what is in the records decides which transactions are named
                records = self._records(
                    slice_bytes_min, request.fetch_offset, end_offset, max_bytes, min_one_batch, allow_blocking_io
                )
                if may_have_aborted:
                    aborted = self._aborted_in(request.fetch_offset, records)
        return FetchPartitionResponse(
            request.partition,
            0,
            high_watermark,
            stable_offset,
            log.log_start_offset,
            diverging,
            aborted_transactions=aborted,
            records=records,
        )

    def _aborted_in(self, offset: int, records: bytes | FileSlice) -> list[AbortedTransaction]:
        """The aborted transactions among the records that were read from `offset` on, in order of their beginning."""
        if not isinstance(records, bytes) or not records:
            return []
        found = self.log.aborted_transactions(offset, end_of_batches(records))
        return sorted((AbortedTransaction(one.producer_id, one.first_offset) for one in found), key=_FIRST_OFFSET)

    def _records(
        self,
        slice_bytes_min: int | None,
        offset: int,
        end_offset: int,
        max_bytes: int,
        min_one_batch: bool,
        allow_blocking_io: bool,
    ) -> bytes | FileSlice:
        """Committed records may stay in their file until they are sent; what is above may still be truncated."""
        log, high_watermark = self.log, self.partition.high_watermark
        if slice_bytes_min is None or max_bytes < slice_bytes_min or offset >= high_watermark:
            return log.read(
                offset,
                max_bytes,
                end_offset=end_offset,
                min_one_batch=min_one_batch,
                allow_blocking_io=allow_blocking_io,
            )
        return log.read_or_slice(
            offset,
            max_bytes,
            end_offset=min(end_offset, high_watermark),
            min_one_batch=min_one_batch,
            allow_blocking_io=allow_blocking_io,
            slice_bytes_min=slice_bytes_min,
        )

    def _divergence(self, request: FetchPartition) -> EpochEndOffset | None:
        """Where the fetcher's log and this one diverge; None when its offset can be read from.

        Raises OFFSET_OUT_OF_RANGE when the offset, or the epoch before it, is not in this log.
        """
        log = self.log
        offset, epoch = request.fetch_offset, request.last_fetched_epoch
        in_range = log.log_start_offset <= offset <= log.log_end_offset
        if epoch >= 0 and (epoch != log.epoch_cache.latest or not in_range):
            end = self.end_offset_for_epoch(epoch)
            if end.end_offset < 0 or offset < log.log_start_offset:
                sometimes(end.end_offset < 0, "a fetch named a last epoch that the leader's log does not have")
                raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {epoch} or offset {offset} is not known")
            if is_diverging(end, offset, epoch):
                sometimes(True, "a leader answered a fetch with where the two logs part")
                return end
        if not in_range:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not in {log.log_start_offset} to {log.log_end_offset}"
            )
        return None

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The largest epoch of this log not above `epoch`, and its end; (-1, -1) when the epoch is not known here.

        The leader's own epoch begins at its election, though its first record may come later. So an epoch between the
        last one in the log and the leader's ends where the leader's begins.
        """
        log = self.log
        leader = self.partition.leader
        latest = log.epoch_cache.latest_epoch()
        if leader is not None:
            if epoch > leader.leader_epoch:
                return UNKNOWN_EPOCH_END
            if epoch == leader.leader_epoch:
                return EpochEndOffset(epoch, log.log_end_offset)
            if latest is None:
                return EpochEndOffset(epoch, leader.leader_epoch_start_offset)
        if latest is None or epoch < 0:
            return UNKNOWN_EPOCH_END
        if epoch == latest:
            return EpochEndOffset(epoch, log.log_end_offset)
        if epoch > latest:
            return EpochEndOffset(latest, log.log_end_offset) if leader is not None else UNKNOWN_EPOCH_END
        return log.epoch_cache.end_offset_for(epoch)

    # ---------------------------------------------------------------- follower

    def last_fetched_epoch(self) -> int:
        """The epoch of the last record, -1 for an empty log."""
        latest = self.log.epoch_cache.latest_epoch()
        return -1 if latest is None else latest

    def truncate_to_divergence(self, diverging: EpochEndOffset) -> None:
        """Truncate what the leader does not have, before anything is appended (KAFKA-14704)."""
        log = self.log
        latest = log.epoch_cache.latest_epoch()
        if latest is not None and latest <= diverging.epoch:
            local = EpochEndOffset(latest, log.log_end_offset)
        else:
            local = log.epoch_cache.end_offset_for(diverging.epoch)
        sometimes(local.epoch != diverging.epoch, "a follower had to ask again where its log parts from its leader's")
        self.truncate_to(truncation_offset(diverging, local, log.log_start_offset, log.log_end_offset))

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to end at `offset`."""
        log = self.log
        if offset < log.log_end_offset:
            topic, partition = self.topic_partition
            log_event(_state_changes, "truncated", topic=topic, partition=partition, to=offset, end=log.log_end_offset)
            sometimes(self.partition.leader is None, "a follower cut its log")
            log.truncate_to(max(offset, log.log_start_offset))
        while self._uncommitted and self._uncommitted[-1][0] > log.log_end_offset:
            self._uncommitted.pop()
        while self._unstable and self._unstable[-1][0] > log.log_end_offset:
            self._unstable.pop()
        self.partition.on_truncated(log.log_end_offset)
        self._loaded_above = min(self._loaded_above, self.high_watermark)
        self._loaded_end = min(self._loaded_end, log.log_end_offset)

    def restart_at(self, offset: int) -> None:
        """Delete all records and start again at `offset`: the leader's log starts above the end of this one."""
        self.log.truncate_fully_and_start_at(offset)
        self._uncommitted.clear()
        self._unstable.clear()
        self.partition.watermark.reset(offset)
        self._loaded_end = 0

    def append_as_follower(self, records: memoryview, leader_high_watermark: int) -> None:
        """Append what the leader sent, byte for byte, and learn its high watermark."""
        log = self.log
        if len(records):
            self.check_space()
            info = log.append_as_follower(records, self.partition.leader_epoch, may_skip=True)
            _count(self._uncommitted, info.last_offset + 1, info.size_bytes)
        self.partition.learn_high_watermark(leader_high_watermark, log.log_end_offset)


def _count(appends: _Appends, next_offset: int, size_bytes: int) -> None:
    if len(appends) >= _COUNTED_APPENDS_MAX:
        size_bytes += appends.pop()[1]
    appends.append((next_offset, size_bytes))
