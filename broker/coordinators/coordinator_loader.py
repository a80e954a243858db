"""Replays a partition of a coordinator's topic in steps, so that the node serves other requests meanwhile.

Clients may write to the topic, if only with the client id of administrators' tools, and a record of theirs may be
anything. A record that cannot be read or applied is passed over: it is counted, and the first one of a load is
described in the log. Apache Kafka gives up the partition instead. Batches that are damaged on the disk are mended from
another replica: the load ends, and begins again later or on another broker. If no replica can mend them, they are
passed over, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from ...isr.replica import Replica
from ...log.segment.batch_scan import Damage
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode
from ...wire.records import (
    BatchHeader,
    ControlRecordType,
    CorruptBatchError,
    Record,
    control_record_type,
    iter_headers,
    iter_records,
)

_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
RECORDS_PER_STEP = 500
"""A compressed batch may hold any number of records: after so many, the step is over."""


class Shard(Protocol):
    """The state of one partition, as its records say."""

    @property
    def partition(self) -> int:
        """The partition."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that the shard belongs to."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether records are still being replayed."""
        ...

    @property
    def name(self) -> str:
        """The shard in log lines."""
        ...

    def replay(self, key: bytes | None, value: bytes | None, *, transaction_of: int) -> None:
        """Replay one record. Raises `BadRecord`.

        `transaction_of` is the producer id of its transaction, -1 for none.
        """
        ...

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Replay the marker of a transaction."""
        ...


S = TypeVar("S", bound=Shard)


class CoordinatorLoader(Generic[S]):
    """Reads up to the end that the log had when this broker became its leader; nothing below that changes.

    `step` replays one piece. `call_again` schedules the next step; `finished(shard, is_complete)` is called at the end.
    `mend` is told of damage, and says whether that is being mended.
    """

    def __init__(
        self,
        shard: S,
        replica: Replica,
        call_again: Callable[[Callable[[], None]], object],
        finished: Callable[[S, bool], None],
        mend: Callable[[Damage], bool],
        logger: logging.Logger,
    ) -> None:
        self._shard = shard
        self._log = replica.log.replay()
        self.end_offset = replica.log.log_end_offset
        self._call_again = call_again
        self._finished = finished
        self._mend = mend
        self.is_being_mended = False
        """Whether the load has ended before damage that is being mended."""
        self._logger = logger
        self._steps = self._replay_log()
        self._is_cancelled = False
        self.passed_over = 0
        """How many records, rests of batches and objects made of records could not be read or applied."""

    def cancel(self) -> None:
        """Stop: another broker leads the partition."""
        self._is_cancelled = True

    def step(self) -> None:
        """Replay one piece."""
        if self._is_cancelled:
            sometimes(True, "a coordinator stopped loading because another one had taken over")
            return
        try:
            next(self._steps)
        except StopIteration:
            self._finished(self._shard, not self.is_being_mended)
        except OSError as error:
            self._logger.error("cannot load %s: %s", self._shard.name, error)
            self._finished(self._shard, False)
        else:
            self._call_again(self.step)

    def _replay_log(self) -> Iterator[None]:
        """Replay all batches; each `yield` ends a step. Raises `OSError` where the disk fails."""
        log = self._log
        while True:
            piece = log.read()
            for position, header in iter_headers(piece):
                yield from self._replay_batch(header, piece[position : position + header.size_bytes])
            if log.damage is not None:
                damage = log.damage
                if self._mend(damage):
                    self.is_being_mended = True
                    return
                for _ in log.passing_damage():
                    yield
                error = CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, damage.what)
                self.pass_over(f"all from offset {damage.offset} to {log.offset - 1}", error)
            elif not piece:
                return
            if not log.is_at_end:
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
            self._logger.warning("%s: %s is passed over: %s", self._shard.name, what, reason)
