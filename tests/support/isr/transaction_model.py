"""A model of the transactions in a partition's log: a list of batches, and what follows from it by definition.

It shares nothing with the log: no producer state, no index, no snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raftwerk.wire.fetch import AbortedTransaction
from raftwerk.wire.records import ControlRecordType, control_record_type, iter_headers, iter_records


class ModelBatch(NamedTuple):
    """One batch; a marker has `is_commit`."""

    base: int
    last: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_commit: bool | None
    data: bytes

    @property
    def is_marker(self) -> bool:
        """Whether the batch ends a transaction."""
        return self.is_commit is not None


class ModelTransaction(NamedTuple):
    """A transaction: its batches, and its marker if there is one."""

    producer_id: int
    batches: tuple[ModelBatch, ...]
    marker: ModelBatch | None

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.batches[0].base


def transactions(batches: Sequence[ModelBatch]) -> list[ModelTransaction]:
    """All transactions with records, in order of their markers; those that are open come last."""
    found: list[ModelTransaction] = []
    current: dict[int, list[ModelBatch]] = {}
    for one in batches:
        if one.is_marker:
            mine = current.pop(one.producer_id, [])
            if mine:
                found.append(ModelTransaction(one.producer_id, tuple(mine), one))
        elif one.is_transactional:
            current.setdefault(one.producer_id, []).append(one)
    return found + [ModelTransaction(producer, tuple(mine), None) for producer, mine in current.items()]


def last_stable_offset(batches: Sequence[ModelBatch], start: int, high_watermark: int, settled: int = 0) -> int:
    """The end of what is stable. Markers below `settled` count as committed even above the high watermark."""
    undecided = [
        one.first_offset
        for one in transactions(batches)
        if one.marker is None or one.marker.base >= max(high_watermark, settled)
    ]
    return max(min([high_watermark, *undecided]), min(start, high_watermark))


def aborted(batches: Sequence[ModelBatch], start: int, end: int) -> list[tuple[int, int]]:
    """Producer and first offset of the aborted transactions that have to do with [start, end), by first offset."""
    return sorted(
        (
            (one.producer_id, one.first_offset)
            for one in transactions(batches)
            if one.marker is not None
            and not one.marker.is_commit
            and one.first_offset < end
            and one.marker.last >= start
        ),
        key=lambda one: one[1],
    )


def committed_offsets(batches: Sequence[ModelBatch]) -> dict[int, None]:
    """The offsets of all records that a read_committed consumer must see in the end."""
    lost = {
        batch.base
        for one in transactions(batches)
        if one.marker is None or not one.marker.is_commit
        for batch in one.batches
    }
    return {
        offset: None
        for one in batches
        if not one.is_marker and one.base not in lost
        for offset in range(one.base, one.last + 1)
    }


def delivered(data: bytes, offset: int, named: Sequence[AbortedTransaction]) -> list[int]:
    """The offsets that a consumer delivers of a Fetch response, by the rules of Apache Kafka's CompletedFetch."""
    to_come = sorted(named, key=lambda one: one.first_offset)
    aborting: dict[int, None] = {}
    found: list[int] = []
    for position, header in iter_headers(data):
        while to_come and to_come[0].first_offset <= header.last_offset:
            aborting[to_come.pop(0).producer_id] = None
        records = list(iter_records(data[position : position + header.size_bytes]))
        if header.is_control:
            if records and control_record_type(records[0].key) == ControlRecordType.ABORT:
                aborting.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in aborting):
            found += [record.offset for record in records if record.offset >= offset]
    return found
