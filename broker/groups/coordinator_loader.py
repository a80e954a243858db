"""Replays a partition of `__consumer_offsets` in pieces, so that the node serves other requests meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...isr.replica import Replica
from ...wire.errors import ProtocolError
from ...wire.records import BatchHeader, ControlRecordType, Record, control_record_type, iter_all_records
from .group_coordinator_shard import GroupCoordinatorShard
from .records.record_fields import BadRecord

logger = logging.getLogger("raftwerk.groups")

_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
PIECE_BYTES = 32 * 1024


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
        self._is_cancelled = False

    def cancel(self) -> None:
        """Stop: another broker leads the partition."""
        self._is_cancelled = True

    def step(self) -> None:
        """Replay one piece."""
        if self._is_cancelled:
            return
        try:
            is_done = self._read_piece()
        except (OSError, ProtocolError) as error:
            logger.error("cannot load group partition %d: %s", self._shard.partition, error)
            self._finished(self._shard, False)
            return
        if is_done:
            self._finished(self._shard, True)
        else:
            self._call_again(self.step)

    def _read_piece(self) -> bool:
        if self._at >= self._end:
            return True
        piece = self._replica.log.read(self._at, PIECE_BYTES, end_offset=self._end)
        if not piece:
            return True
        for header, record in iter_all_records(piece):
            self._at = max(self._at, header.next_offset)
            try:
                self._replay(header, record)
            except (BadRecord, ProtocolError) as error:
                logger.warning(
                    "group partition %d, offset %d is passed over: %s", self._shard.partition, record.offset, error
                )
        return self._at >= self._end

    def _replay(self, header: BatchHeader, record: Record) -> None:
        if not header.is_control:
            producer_id = header.producer_id if header.is_transactional else -1
            self._shard.replay(record.key, record.value, at=record.offset, transaction_of=producer_id)
        elif control_record_type(record.key) in _MARKERS:
            is_committed = control_record_type(record.key) == ControlRecordType.COMMIT
            self._shard.end_transaction(header.producer_id, is_committed=is_committed)
