"""Verification of a partition's directory: batches, index entries, epochs and snapshots must agree."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ...runtime.ports import Disk
from ...wire.records import BatchHeader
from ..errors import CorruptFileError
from ..manager.meta_properties import read_meta_properties
from ..segment.batch_scan import ValidatingScan
from ..segment.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MENDED_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offsets,
    segment_path,
)
from ..segment.transaction_index import CorruptTransactionIndexError, decode_transaction_index
from ..state.checkpoints import META_PROPERTIES_FILE, read_epochs, read_offsets, read_topic_id
from ..state.producer_state import CorruptSnapshotError, ProducerStateManager
from .inspection import OFFSET_CHECKPOINTS

_INDEX_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")
_UNFINISHED = (CLEANED_SUFFIX, MENDED_SUFFIX, SWAP_SUFFIX, ".tmp")
_LOOKS = 5
"""How often an open partition is looked at in which files are replaced meanwhile."""


class Finding(NamedTuple):
    """A fault. `is_fatal`: records are lost or in danger; otherwise opening the log repairs it."""

    file: str
    what: str
    is_fatal: bool


class SegmentSummary(NamedTuple):
    """A segment by its batches."""

    base_offset: int
    next_offset: int
    size_bytes: int
    batches: dict[int, BatchHeader]
    """By position."""


def verify_dir(disk: Disk, path: str) -> Iterator[Finding]:
    """Verify the files directly in a log directory. `OSError`."""
    for name in disk.listdir(path):
        try:
            if name in OFFSET_CHECKPOINTS:
                read_offsets(disk, f"{path}/{name}")
            elif name == META_PROPERTIES_FILE:
                read_meta_properties(disk, path)
        except CorruptFileError as error:
            yield Finding(f"{path}/{name}", str(error), name == META_PROPERTIES_FILE)


def verify_open_partition(disk: Disk, path: str) -> list[Finding]:
    """Verify the directory of a partition that a running node has open. `OSError`.

    The node has the indexes of the last segment in memory, so that these are not judged. It writes, replaces and
    deletes files meanwhile: what is found counts if a second look finds it, too.
    """
    found = _look_at_open(disk, path)
    again = _look_at_open(disk, path) if found else []
    return [one for one in found if one in again]


def _look_at_open(disk: Disk, path: str) -> list[Finding]:
    for _ in range(_LOOKS - 1):
        try:
            return list(verify_partition(disk, path, is_open=True))
        except FileNotFoundError:
            if not disk.is_dir(path):
                return []  # the partition was deleted, or moved away
    return list(verify_partition(disk, path, is_open=True))


def verify_partition(disk: Disk, path: str, *, is_open: bool = False) -> Iterator[Finding]:
    """Verify one partition's directory. `OSError`.

    Where it `is_open` in a node, the indexes of the last segment and files that are being written are left out.
    """
    names = disk.listdir(path)
    bases = base_offsets(names)
    if not bases:
        yield Finding(path, "there is no segment", False)
        return
    previous: SegmentSummary | None = None
    epochs: dict[int, int] = {}
    for base in bases:
        summary, damage = _read_segment(disk, path, base, epochs)
        file = segment_path(path, base, LOG_SUFFIX)
        if damage is not None:
            yield Finding(file, damage, True)
        if previous is not None and previous.next_offset != base:
            overlaps = previous.next_offset > base  # a gap may be left by Apache Kafka's compaction
            yield Finding(file, f"begins at {base}, the segment before it ends at {previous.next_offset}", overlaps)
        if not is_open or base != bases[-1]:
            yield from _verify_indexes(disk, path, summary)
        yield from _verify_transaction_index(disk, path, base)
        previous = summary
    if is_open:
        names = [name for name in names if not name.endswith(_UNFINISHED)]
    if previous is not None:
        yield from _verify_small_files(disk, path, names, epochs, previous.next_offset)


def _read_segment(disk: Disk, path: str, base: int, epochs: dict[int, int]) -> tuple[SegmentSummary, str | None]:
    file = disk.open(segment_path(path, base, LOG_SUFFIX))
    try:
        scan = ValidatingScan(file, base, max(epochs, default=-1))
        batches = dict(scan)
        for header in batches.values():
            epochs.setdefault(header.partition_leader_epoch, header.base_offset)
        return SegmentSummary(base, scan.next_offset, scan.end_position, batches), scan.damage
    finally:
        file.close()


def _verify_indexes(disk: Disk, path: str, segment: SegmentSummary) -> Iterator[Finding]:
    base = segment.base_offset
    file = segment_path(path, base, INDEX_SUFFIX)
    data = disk.read_bytes(file) if disk.exists(file) else None
    if data is None and segment.batches:
        yield Finding(file, "is missing", False)
    for relative, position in _INDEX_ENTRY.iter_unpack(_used(data or b"", 8)):
        header = segment.batches.get(position)
        if header is None or not header.base_offset <= base + relative <= header.last_offset:
            yield Finding(file, f"offset {base + relative} is not at position {position}", False)
            break
    file = segment_path(path, base, TIME_INDEX_SUFFIX)
    data = disk.read_bytes(file) if disk.exists(file) else None
    if data is None and segment.batches:
        yield Finding(file, "is missing", False)
    ends = {header.last_offset: header.max_timestamp for header in segment.batches.values()}
    for timestamp, relative in _TIME_ENTRY.iter_unpack(_used(data or b"", 12)):
        if ends.get(base + relative, timestamp) != timestamp:
            yield Finding(file, f"offset {base + relative} has not timestamp {timestamp}", False)
            break


def _verify_transaction_index(disk: Disk, path: str, base: int) -> Iterator[Finding]:
    file = segment_path(path, base, TRANSACTION_INDEX_SUFFIX)
    if disk.exists(file):
        try:
            decode_transaction_index(disk.read_bytes(file))
        except CorruptTransactionIndexError as error:
            yield Finding(file, str(error), True)


def _used(data: bytes, entry_size: int) -> bytes:
    """The complete entries, without the zeros that Apache Kafka preallocates."""
    size = len(data) // entry_size * entry_size
    while size and not any(data[size - entry_size : size]):
        size -= entry_size
    return data[:size]


def _verify_small_files(
    disk: Disk, path: str, names: list[str], epochs: dict[int, int], end_offset: int
) -> Iterator[Finding]:
    try:
        read_topic_id(disk, path)
        for number, (epoch, start) in enumerate(read_epochs(disk, path)):
            is_late = number > 0 and start > epochs.get(epoch, start)  # the first starts where the log does
            if is_late or start > end_offset:
                yield Finding(path, f"leader epoch {epoch} is said to start at {start}", False)
    except CorruptFileError as error:
        yield Finding(path, str(error), "partition.metadata" in str(error))
    for name in names:
        if name.endswith(_UNFINISHED):
            yield Finding(f"{path}/{name}", "is left over from an interrupted compaction or write", False)
        elif name.endswith(SNAPSHOT_SUFFIX):
            try:
                ProducerStateManager().load_snapshot(disk.read_bytes(f"{path}/{name}"))
            except CorruptSnapshotError as error:
                yield Finding(f"{path}/{name}", str(error), False)
