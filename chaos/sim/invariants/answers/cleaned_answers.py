"""What brokers answer to fetches from compacted logs, by all that was ever committed to them.

Compaction may leave out records that are superseded, tombstones, and all of an aborted transaction. Whatever else it
has done by then, and however often, an answer has the newest record of each key, as far as that was committed, in its
range: no record of a transaction that was not committed has taken its place. At read_committed a reader leaves out
just the records of aborted transactions, by what the answer names: `a fetch names the aborted transactions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .....wire.fetch import FetchPartition, FetchPartitionResponse
from .....wire.records import BatchHeader, iter_headers, iter_records
from ....specification.transactions.log_replay import EndedTransaction, LogReplay, marker_in
from ..invariant_broken import InvariantBroken
from ..partition_invariants import CommittedLog, PartitionChecker, PartitionKey
from ..transactions.cleaned_logs import HiddenBatches, Span


@dataclass(slots=True)
class _Newest:
    """The newest committed record of each key below `end_offset`, where all transactions have ended."""

    offsets: dict[bytes, tuple[int, bool]] = field(default_factory=dict)
    """And whether it has a value."""
    end_offset: int = 0
    ended: dict[int, list[EndedTransaction]] = field(default_factory=dict)
    """The transactions by producer id, as far as they were counted."""
    counted: int = 0
    passed_spans: int = 0

    def follow(self, committed: CommittedLog, replay: LogReplay, spans: Sequence[Span]) -> None:
        """Go on to the first transaction that is open."""
        for one in replay.ended[self.counted :]:
            self.ended.setdefault(one.producer_id, []).append(one)
        self.counted = len(replay.ended)
        stable = min((offset for offset, _ in replay.open.values()), default=committed.end_offset)
        records = committed.records or {}
        for offset in range(self.end_offset, min(stable, committed.end_offset)):
            while self.passed_spans < len(spans) and spans[self.passed_spans].last_offset < offset:
                self.passed_spans += 1
            key, value = records.get(offset, (b"", b""))
            if key and self._takes_effect(offset, spans):
                self.offsets[key] = offset, bool(value)
            self.end_offset = offset + 1

    def _takes_effect(self, offset: int, spans: Sequence[Span]) -> bool:
        span = spans[self.passed_spans] if self.passed_spans < len(spans) else None
        if span is None or offset < span.first_offset:
            return True
        ended = None if span.is_control else self.transaction(span.producer_id, span.first_offset)
        return ended is not None and ended.is_commit

    def transaction(self, producer_id: int, offset: int) -> EndedTransaction | None:
        """The transaction of a producer that has this offset, if it has ended."""
        known = self.ended.get(producer_id, ())
        return next((one for one in reversed(known) if one.first_offset <= offset < one.marker_offset), None)


class CleanedAnswers:
    """Judges answers to fetches from compacted logs."""

    def __init__(self, partitions: PartitionChecker) -> None:
        self._partitions = partitions
        self._newest: dict[PartitionKey, _Newest] = {}

    def check(
        self, key: PartitionKey, wanted: FetchPartition, row: FetchPartitionResponse, where: str, *, is_stable: bool
    ) -> None:
        """`is_stable`: the fetch is at read_committed. Raises `InvariantBroken`."""
        committed = self._partitions.committed.get(key)
        if committed is None or committed.records is None:
            return
        newest = self._newest.setdefault(key, _Newest())
        newest.follow(committed, *self._partitions.transactions.committed_of(key))
        hidden = HiddenBatches(row.aborted_transactions or ()) if is_stable else None
        present: dict[int, None] = {}
        data, end_offset = memoryview(row.records_in_memory()), wanted.fetch_offset
        for position, header in iter_headers(data, allow_partial_tail=True):
            if header.next_offset > min(committed.end_offset, newest.end_offset if is_stable else row.high_watermark):
                break  # of that not all is known here
            _check_is_readable(header, row, where, is_stable=is_stable)
            if end_offset == wanted.fetch_offset >= header.next_offset:
                detail = f"{where}: {header.base_offset} to {header.last_offset}"
                raise InvariantBroken("a fetch begins where it was asked to, and leaves nothing out", detail)
            batch = bytes(data[position : position + header.size_bytes])
            self._partitions.on_consumed(key, header.base_offset, batch)
            if hidden is not None:
                _check_hidden(newest, header, batch, hidden, where)
            present.update((record.offset, None) for record in iter_records(batch))
            end_offset = header.next_offset
        for name, (offset, has_value) in newest.offsets.items():
            if has_value and wanted.fetch_offset <= offset < end_offset and offset not in present:
                detail = f"{where}: {name!r} at {offset} is not in the answer up to {end_offset}"
                raise InvariantBroken("a fetch begins where it was asked to, and leaves nothing out", detail)
        for producer_id, first_offset in (row.aborted_transactions or ()) if is_stable else ():
            ended = newest.transaction(producer_id, first_offset)
            if ended is None or ended.is_commit:
                detail = f"{where}: {producer_id} at {first_offset} is not aborted"
                raise InvariantBroken("a fetch names the aborted transactions", detail)


def _check_is_readable(header: BatchHeader, row: FetchPartitionResponse, where: str, *, is_stable: bool) -> None:
    if header.next_offset > row.high_watermark:
        raise InvariantBroken("a fetch shows nothing above the high watermark", f"{where}: {header}, {row}")
    if is_stable and header.next_offset > row.last_stable_offset:
        raise InvariantBroken("a fetch shows nothing above the last stable offset", f"{where}: {header}")


def _check_hidden(newest: _Newest, header: BatchHeader, batch: bytes, hidden: HiddenBatches, where: str) -> None:
    if header.is_control:
        hidden.on_control(header.producer_id, header.last_offset, marker_in(batch))
        return
    is_hidden = hidden.hides(header.producer_id, header.last_offset)
    if not header.is_transactional or not header.record_count:
        return
    ended = newest.transaction(header.producer_id, header.base_offset)
    if ended is None or is_hidden == ended.is_commit:
        detail = f"{where}: {'not ' if is_hidden else ''}shown is {header.base_offset} of {header.producer_id}, {ended}"
        raise InvariantBroken("a fetch names the aborted transactions", detail)
