"""Replays a partition of `__consumer_offsets` in steps, so that the node serves other requests meanwhile.

Clients may write to the topic, if only with the client id of administrators' tools, and a record of theirs may be
anything. A record that cannot be read or applied is passed over: it is counted, and the first one of a load is
described in the log. Apache Kafka gives up the partition instead. Bytes that are no batch come from a failing disk and
not from a client. They end the load, as an error of the disk does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ...isr.replica import Replica
from ...wire.errors import ProtocolError
from ...wire.records import (
    BatchHeader,
    ControlRecordType,
    Record,
    control_record_type,
    iter_headers,
    iter_records,
)
from .group_coordinator_shard import GroupCoordinatorShard

logger = logging.getLogger("raftwerk.groups")

_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
PIECE_BYTES = 32 * 1024
RECORDS_PER_STEP = 500
"""A compressed batch may hold any number of records: after so many, the step is over."""


class CoordinatorLoader:
    """Reads up to the end that the log had when this broker became its leader; nothing below that changes.

    `step` replays one piece. `call_again` schedules the next step; `finished(shard, is_complete)` is called at the end.
    """

    def __init__(
        self,
        shard: GroupCoordinatorShard,
        replica: Replica,
        call_again: Callable[[Callable[[], None]], object],
        finished: Callable[[GroupCoordinatorShard, bool], None],
    ) -> None:
        self._shard = shard
        self._replica = replica
        self._call_again = call_again
        self._finished = finished
        self._at = replica.log.log_start_offset
        self._end = replica.log.log_end_offset
        self._steps = self._replay_log()
        self._is_cancelled = False
        self.passed_over = 0
        """How many records, rests of batches and groups could not be read or applied."""

    def cancel(self) -> None:
        """Stop: another broker leads the partition."""
        self._is_cancelled = True

    def step(self) -> None:
        """Replay one piece."""
        if self._is_cancelled:
            return
        try:
            next(self._steps)
        except StopIteration:
            self._finished(self._shard, True)
        except (OSError, ProtocolError) as error:
            logger.error("cannot load group partition %d: %s", self._shard.partition, error)
            self._finished(self._shard, False)
        else:
            self._call_again(self.step)

    def _replay_log(self) -> Iterator[None]:
        """Replay all batches; each `yield` ends a step. Raises `OSError` and `ProtocolError` where the disk fails."""
        while self._at < self._end:
            piece = memoryview(self._replica.log.read(self._at, PIECE_BYTES, end_offset=self._end))
            if not piece:
                return
            for position, header in iter_headers(piece, allow_partial_tail=True):
                self._at = max(self._at, header.next_offset)
                yield from self._replay_batch(header, piece[position : position + header.size_bytes])
            if self._at < self._end:
                yield

    def _replay_batch(self, header: BatchHeader, batch: memoryview) -> Iterator[None]:
        records = iter_records(batch)
        count = 0
        while True:
            try:
                record = next(records, None)
            except Exception as error:  # the bytes are a client's, and so is what is wrong with them
                self.pass_over(f"the batch at offset {header.base_offset}, from record {count} on,", error)
                return
            if record is None:
                return
            self._replay(header, record)
            count += 1
            if count % RECORDS_PER_STEP == 0:
                yield

    def _replay(self, header: BatchHeader, record: Record) -> None:
        try:
            if not header.is_control:
                producer_id = header.producer_id if header.is_transactional else -1
                self._shard.replay(record.key, record.value, transaction_of=producer_id)
            elif control_record_type(record.key) in _MARKERS:
                is_committed = control_record_type(record.key) == ControlRecordType.COMMIT
                self._shard.end_transaction(header.producer_id, is_committed=is_committed)
        except Exception as error:  # as above
            self.pass_over(f"the record at offset {record.offset}", error)

    def pass_over(self, what: str, error: Exception) -> None:
        """Count what cannot be read or applied; the first is logged."""
        self.passed_over += 1
        if self.passed_over == 1:
            reason = f"{type(error).__name__}: {error}"[:200]
            logger.warning("group partition %d: %s is passed over: %s", self._shard.partition, what, reason)
