"""The invariant "compaction leaves the transactions as they were": a cleaned log says the same of what is left in it.

Each batch that remains, and be it empty, belongs to a transaction that ends as it did, at the same marker. A marker
may go only when no batch of its transaction is left before it: else a replica that reads the log again has the
transaction open for ever, or takes the next marker of the producer for its own. The time at which it goes (KIP-534)
is not judged: a follower fetches that with the marker, and may still have batches that its leader has removed. A
reader of committed records is shown the records that are left of a transaction if it was committed, and only then.
And the last epoch of each producer that the log knows is still in it, so that no earlier one can write.

In the end "compaction keeps the newest committed record of each key": records of aborted transactions take the place of
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .....log.partition_log import PartitionLog
from .....wire.records import iter_records
from ....specification.transactions.log_replay import EndedTransaction, LogReplay, Marker
from ..invariant_broken import InvariantBroken
from .leader_log import batches_of


class Span(NamedTuple):
    """The offsets of a batch that belongs to a transaction, or of a control batch."""

    first_offset: int
    last_offset: int
    producer_id: int
    is_control: bool


def check_cleaned(log: PartitionLog, committed: LogReplay, where: str) -> None:
    """Compare a log with the replay of all that was ever committed to it. Raises `InvariantBroken`."""
    found = LogReplay()
    found.end_offset = log.log_start_offset
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    hidden = HiddenBatches((one.producer_id, one.first_offset) for one in aborted)
    kept: dict[int, list[tuple[int, bool, bool]]] = {}
    for header, batch in batches_of(log, log.log_start_offset, min(log.log_end_offset, committed.end_offset)):
        marker = found.follow(header, batch)
        if header.is_control:
            hidden.on_control(header.producer_id, header.last_offset, marker)
        elif header.is_transactional:
            is_hidden = hidden.hides(header.producer_id, header.last_offset)
            kept.setdefault(header.producer_id, []).append((header.base_offset, is_hidden, header.record_count > 0))
    _check_epochs(log, found, committed, where)
    after, before = _by_producer(found.ended), _by_producer(committed.ended)
    for producer_id, batches in kept.items():
        was, now = before.get(producer_id, []), after.get(producer_id, [])
        for offset, is_hidden, has_records in batches:
            true, said = _covering(was, offset), _covering(now, offset)
            told = f"{where}: the batch at {offset} of producer {producer_id}"
            if true is None or true.marker_offset >= log.log_end_offset:
                continue  # it is open, also in a follower that does not have the marker yet
            if said is None:
                raise InvariantBroken(
                    "compaction leaves the transactions as they were",
                    f"{told} is open, it ended at {true.marker_offset}",
                )
            if (said.marker_offset, said.is_commit) != (true.marker_offset, true.is_commit):
                raise InvariantBroken(
                    "compaction leaves the transactions as they were",
                    f"{told} ends at {said.marker_offset}, it was {true.marker_offset}",
                )
            if has_records and is_hidden == true.is_commit:
                is_shown = "not shown" if is_hidden else "shown"
                raise InvariantBroken(
                    "compaction leaves the transactions as they were",
                    f"{told} is {is_shown}, its transaction ended at {true.marker_offset}",
                )


def check_newest(
    log: PartitionLog,
    committed: LogReplay,
    spans: Sequence[Span],
    records: Mapping[int, tuple[bytes, bytes]],
    where: str,
) -> None:
    """`records` are all that were ever committed: keys and values by offset. Raises `InvariantBroken`."""
    if log.log_start_offset > 0 or log.log_end_offset < committed.end_offset:
        return
    ended, passed = _by_producer(committed.ended), set[int]()
    for span in spans:
        true = None if span.is_control else _covering(ended.get(span.producer_id, []), span.first_offset)
        if true is None or not true.is_commit:
            passed.update(range(span.first_offset, span.last_offset + 1))
    newest = {key: (offset, value) for offset, (key, value) in sorted(records.items()) if offset not in passed}
    present = {record.offset for _, batch in batches_of(log, 0, log.log_end_offset) for record in iter_records(batch)}
    for key, (offset, value) in newest.items():
        if key and value and offset not in present:
            detail = f"{where}: {key!r} at {offset} is gone"
            raise InvariantBroken("compaction keeps the newest committed record of each key", detail)


def _check_epochs(log: PartitionLog, found: LogReplay, committed: LogReplay, where: str) -> None:
    if found.end_offset < committed.end_offset:
        return
    for producer_id, true in committed.producers.items():
        said = found.producers.get(producer_id)
        if log.producers.get(producer_id) is not None and (said is None or said.epoch != true.epoch):
            detail = f"{where}: epoch {true.epoch} of producer {producer_id} is gone"
            raise InvariantBroken("compaction leaves the transactions as they were", detail)


def _by_producer(ended: list[EndedTransaction]) -> dict[int, list[EndedTransaction]]:
    found: dict[int, list[EndedTransaction]] = {}
    for one in ended:
        found.setdefault(one.producer_id, []).append(one)
    return found


def _covering(ended: list[EndedTransaction], offset: int) -> EndedTransaction | None:
    return next((one for one in ended if one.first_offset <= offset < one.marker_offset), None)


class HiddenBatches:
    """What a consumer at read_committed leaves out: from the first offset of an aborted transaction to its marker."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted` has the producer id and the first offset of each."""
        self._to_come = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
        self._aborted: dict[int, None] = {}

    def hides(self, producer_id: int, last_offset: int) -> bool:
        """Whether a batch of the producer is left out."""
        while self._to_come and self._to_come[-1][0] <= last_offset:
            self._aborted[self._to_come.pop()[1]] = None
        return producer_id in self._aborted

    def on_control(self, producer_id: int, last_offset: int, marker: Marker | None) -> None:
        """A control batch: an abort marker ends what is left out."""
        self.hides(producer_id, last_offset)
        if marker is not None and not marker.is_commit:
            self._aborted.pop(producer_id, None)
