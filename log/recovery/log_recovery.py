"""Opening a partition's directory, and recovery after an unclean shutdown.

After a clean shutdown the files are trusted. After any other one, everything below the recovery point was fsynced, and
what comes after it may be anything: blocks that never reached the disk, half a batch, a segment whose predecessor lost
its tail, a producer snapshot of records that were truncated. So every batch is checked from the newest producer
snapshot at or below the recovery point (`segment_recovery`), but not from before the start of that segment. The log
ends before the first damaged batch, and indexes, leader epochs and producers are rebuilt.

After a clean shutdown indexes are trusted too, compared with the batches when they are used, and rebuilt where they
disagree. No CRC covers a batch's offset and epoch, so recovery compares them with the neighbouring batches
(`ValidatingScan`); a log that may have gaps by compaction has an entry in `cleaner-offset-checkpoint` before the first.

An interrupted compaction shows in the names. Files ending in `.cleaned` or `.mended` were not complete, and are
removed. A `.log.swap` was complete and durable; it replaces the segments whose offsets it covers, some of which may be
gone already. Of a replaced segment's files the `.log` changes its name last, and is removed last. So while there is the
old `.log`, the indexes beside it are old too; after that they are those of the new segment. Of an expired segment the
`.log` goes first: what is left of it are indexes, which are removed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from ...runtime.incremental_work import PLAIN_STEP, Work
from ...runtime.invariants import sometimes
from ...runtime.ports import Buffer, Disk
from ...wire.records import BatchHeader, CorruptBatchError
from ..config import LogConfig
from ..errors import CorruptFileError, is_no_space
from ..segment.batch_scan import find_sound_batch, scan_headers
from ..segment.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    MENDED_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    segment_path,
)
from ..segment.transaction_index import AbortedTransaction, CorruptTransactionIndexError
from ..state.checkpoints import PARTITION_METADATA_FILE, PARTITION_METADATA_SIZE, read_epochs, read_topic_id
from ..state.leader_epoch_cache import EpochEntry
from ..state.producer_snapshots import ProducerSnapshots
from ..state.producer_state import ProducerStateManager, read_marker
from .segment_recovery import STEP_BATCHES, check, resume, start_over

_logger = logging.getLogger(__name__)
_OFFSET_DIGITS = 20
_LEFTOVERS = (".tmp", CLEANED_SUFFIX, MENDED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)


@dataclass(slots=True)
class LoadedLog:
    """What `load` found.

    Everything below `durable_offset` is fsynced. `is_settled`: no file was made or rebuilt, so none needs an fsync.
    """

    segments: list[Segment]
    epochs: list[EpochEntry]
    snapshots: ProducerSnapshots
    durable_offset: int
    is_settled: bool
    topic_id: UUID | None


def load(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int,
    start_offset: int,
    clean_shutdown: bool,
    has_gaps: bool = True,
    keeps_gaps: bool = False,
) -> Work[LoadedLog]:
    """Open the segments of `directory`; if there are none, an empty one is made at `start_offset`.

    `has_gaps`: offsets may be missing within segments, as after compaction. `keeps_gaps`: offsets may be missing
    between two valid segments too, as after Apache Kafka's compaction. `OSError` when the disk refuses; damage never
    raises.
    """
    if not disk.exists(directory):
        disk.makedirs(directory)
        fresh = Segment.create(disk, directory, start_offset)
        return LoadedLog([fresh], [], ProducerSnapshots(disk, directory, ()), start_offset, False, None)
    complete_swaps(disk, directory)
    files = _sort_out(disk, directory)
    if files.log_bases:
        segments = _open_segments(disk, directory, files.log_bases)
    else:
        segments = [Segment.create(disk, directory, start_offset)]
    epochs = _read_epochs(disk, directory, segments)
    snapshots = ProducerSnapshots(disk, directory, files.snapshots)
    is_settled = clean_shutdown and segments[-1].become_active()
    if not is_settled:
        sometimes(clean_shutdown, "a log that was closed cleanly was checked all the same")
        sometimes(not clean_shutdown, "a log was recovered after an unclean stop")
        first = len(segments) - 1 if clean_shutdown else max(bisect_right(files.log_bases, recovery_point) - 1, 0)
        trusted = -1 if clean_shutdown else snapshots.latest_at_or_below(recovery_point)
        epochs = yield from _recover(segments, first, trusted, epochs, config, has_gaps, keeps_gaps)
        durable_offset = min(recovery_point, segments[-1].next_offset)
        # What it says of deleted batches is written nowhere else; those were committed when they were deleted.
        snapshot_max = max(durable_offset, segments[0].base_offset)
    else:
        snapshot_max = durable_offset = segments[-1].next_offset
    end = segments[-1].next_offset
    # Without a record there is no epoch: the checkpoint is then that of a log that was replaced by this one.
    epochs = [entry for entry in epochs if entry.start_offset < end] if end > segments[0].base_offset else []
    snapshots.remove_after(snapshot_max)
    snapshots.remove_stray(segment.base_offset for segment in segments)
    wrong = next((at for at, one in enumerate(segments) if not _is_transaction_index_right(one, segments)), None)
    if wrong is not None:
        sometimes(True, "a transaction index was rebuilt")
        _logger.warning("the transaction index of %s does not agree with it; it is rebuilt", segments[wrong].file.path)
        snapshots.remove_after(segments[wrong].base_offset)
        for segment in segments[wrong:]:
            segment.transaction_index.cut(0)
    has_removed = len(segments) < len(files.log_bases) or len(snapshots.offsets) < len(files.snapshots)
    if has_removed or files.has_removed:
        disk.fsync_dir(directory)  # a removed file that comes back would look like a later part of the log
    is_settled = is_settled and segments[-1].next_offset > 0  # else the names of its files may not be durable
    return LoadedLog(segments, epochs, snapshots, durable_offset, is_settled, _read_topic_id(disk, directory))


def was_never_durable(disk: Disk, directory: str) -> bool:
    """Whether `partition.metadata` is missing, incomplete or zeros, as a loss of power leaves a file without an fsync.

    A complete but damaged file is not such a sign. `OSError`.
    """
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    content = disk.read_bytes(path) if disk.exists(path) else b""
    return len(content) < PARTITION_METADATA_SIZE or content.endswith(b"\0")


def discard_never_durable(disk: Disk, directory: str) -> None:
    """Remove a log that `was_never_durable`. `OSError`."""
    if disk.is_dir(directory):
        if disk.listdir(directory):
            sometimes(True, "a log that was never durable was discarded")
            _logger.warning("%s was never made durable, not even its topic id: it starts empty", directory)
        disk.remove_tree(directory)


def load_producers(
    producers: ProducerStateManager, snapshots: ProducerSnapshots, segments: list[Segment], end: int
) -> Work[None]:
    """Rebuild `producers` from the log below `end`: the newest snapshot, then the batches after it.

    The transaction indexes from there on are rebuilt too. Each segment that is read from its first batch on gets its
    snapshot again, if recovery has removed that: when the segments before it are deleted, nothing else says who wrote
    in them, and with an older snapshot their producers would be out of order for ever.
    """
    start = max(snapshots.load_latest(end, producers), segments[0].base_offset)
    for segment in segments:
        if segment.next_offset < start:
            continue
        if start < segment.base_offset and segment.base_offset not in snapshots.offsets:
            _write_again(snapshots, segment.base_offset, producers)
        segment.transaction_index.cut(start)  # also where no batch follows: it may have been truncated
        try:
            position = segment.locate(start)
        except CorruptBatchError:
            position = 0
        yield from _load_producers_of(producers, segment, position, start, end)


def _write_again(snapshots: ProducerSnapshots, offset: int, producers: ProducerStateManager) -> None:
    try:
        snapshots.write(offset, producers.encode_snapshot())
    except OSError as error:
        if not is_no_space(error):
            raise
    else:
        sometimes(True, "a producer snapshot that recovery had removed was written again")


def _load_producers_of(
    producers: ProducerStateManager, segment: Segment, position: int, start: int, end: int
) -> Work[None]:
    """Apply the batches of a segment with offsets from `start` to below `end`, and pass over what is damaged."""
    file, size, number = segment.file, segment.size_bytes, 0
    while position < size:
        for at, header in scan_headers(file, position, size):
            position = at + header.size_bytes
            number += 1
            if number % STEP_BATCHES == 0:
                yield PLAIN_STEP
            if header.producer_id >= 0 and start <= header.base_offset < end:
                if header.is_control:
                    apply_marker(producers, segment, header, file.pread(at, header.size_bytes))
                else:
                    producers.update(header)
        if position < size:  # after a clean shutdown, which does not check the batches
            offsets = range(segment.base_offset, segment.next_offset)
            sometimes(True, "a log was damaged where its producers were read from it")
            _logger.error("%s is damaged at position %d; who wrote there is not known", file.path, position)
            found = yield from find_sound_batch(file, position, size, offsets)
            position = size if found is None else found[0]


def _is_transaction_index_right(segment: Segment, segments: list[Segment]) -> bool:
    """Whether each entry has its marker in the segment, and its first batch, if the log still has that."""
    try:
        return all(_has_marker(segment, one) and _has_first(segments, one) for one in segment.transaction_index.load())
    except CorruptTransactionIndexError:
        return False
    except CorruptBatchError:
        return True  # the log is damaged, not its index


def _has_marker(segment: Segment, aborted: AbortedTransaction) -> bool:
    for at, header in scan_headers(segment.file, segment.locate(aborted.last_offset), segment.size_bytes, 1024):
        if not header.is_control or (header.base_offset, header.producer_id) != (
            aborted.last_offset,
            aborted.producer_id,
        ):
            return False
        marker = read_marker(segment.file.pread(at, header.size_bytes))
        return marker is not None and marker.is_abort
    return False


def _has_first(segments: list[Segment], aborted: AbortedTransaction) -> bool:
    offset = aborted.first_offset
    for segment in segments:
        if segment.base_offset <= offset < segment.next_offset:
            for _, header in scan_headers(segment.file, segment.locate(offset), segment.size_bytes, 1024):
                if header.base_offset > offset or (header.producer_id < 0 and not header.record_count):
                    break  # compaction has removed it, or put an empty batch in its place
                is_first = header.is_transactional and not header.is_control and header.base_offset == offset
                return is_first and header.producer_id == aborted.producer_id
    return True


def apply_marker(producers: ProducerStateManager, segment: Segment, header: BatchHeader, batch: Buffer) -> None:
    """Apply a control batch of `segment`, which ends a transaction; an aborted one goes to the transaction index.

    `OSError` when the index cannot be written; then the state of the producer does not change.
    """
    marker = read_marker(batch)
    entry = producers.get(header.producer_id)
    if marker is None:
        return
    if marker.is_abort and entry is not None and entry.transaction_first_offset >= 0:
        others = (
            offset for producer_id, offset in producers.open_transactions.items() if producer_id != header.producer_id
        )
        stable = next(others, header.last_offset + 1)  # they are in order of the offsets
        segment.transaction_index.add(
            AbortedTransaction(header.producer_id, entry.transaction_first_offset, header.last_offset, stable)
        )
    producers.end_transaction(header, marker)


def complete_swaps(disk: Disk, directory: str) -> None:
    """Finish the replacements by compaction that were interrupted after the new segment was durable. `OSError`."""
    for name in disk.listdir(directory):
        stem, _, suffix = name.partition(".")
        if "." + suffix == LOG_SUFFIX + SWAP_SUFFIX and len(stem) == _OFFSET_DIGITS and stem.isdecimal():
            _complete_swap(disk, directory, int(stem))


def _complete_swap(disk: Disk, directory: str, base: int) -> None:
    sometimes(True, "a replacement of segments by compaction was completed after a crash")
    segment = Segment(
        disk, directory, base, disk.open(segment_path(directory, base, LOG_SUFFIX) + SWAP_SUFFIX), SWAP_SUFFIX
    )
    end = base
    for _, header in scan_headers(segment.file, 0, segment.size_bytes):
        end = header.next_offset
    first = base if disk.exists(segment_path(directory, base, LOG_SUFFIX)) else base + 1
    replaced = []
    for name in disk.listdir(directory):
        stem, _, suffix = name.partition(".")
        if "." + suffix in SEGMENT_SUFFIXES and stem.isdecimal() and first <= int(stem) < max(end, base + 1):
            replaced.append(name)
    for name in sorted(replaced, key=lambda one: one.endswith(LOG_SUFFIX)):
        disk.remove(f"{directory}/{name}")
    disk.fsync_dir(directory)
    segment.rename("")
    disk.fsync_dir(directory)


@dataclass(slots=True)
class _Files:
    log_bases: list[int]
    snapshots: list[int]
    has_removed: bool


def _sort_out(disk: Disk, directory: str) -> _Files:
    """The files by kind; temporary ones and indexes without a log are removed."""
    by_suffix: dict[str, list[int]] = {suffix: [] for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)}
    has_removed = False
    for name in disk.listdir(directory):
        stem, dot, suffix = name.partition(".")
        if name.endswith(_LEFTOVERS):
            sometimes(name.endswith(CLEANED_SUFFIX), "an unfinished compaction was removed after a crash")
            disk.remove(f"{directory}/{name}")
            has_removed = True
        elif len(stem) == _OFFSET_DIGITS and stem.isdecimal() and dot + suffix in by_suffix:
            by_suffix[dot + suffix].append(int(stem))
    logs = dict.fromkeys(sorted(by_suffix[LOG_SUFFIX]))
    for suffix in SEGMENT_SUFFIXES[1:]:
        for base in by_suffix[suffix]:
            if base not in logs:
                disk.remove(f"{directory}/{base:020d}{suffix}")
                has_removed = True
    return _Files(list(logs), by_suffix[SNAPSHOT_SUFFIX], has_removed)


def _open_segments(disk: Disk, directory: str, bases: list[int]) -> list[Segment]:
    segments = [Segment.open(disk, directory, base) for base in bases]
    for segment, following in pairwise(segments):
        segment.next_offset = following.base_offset
    return segments


def _read_epochs(disk: Disk, directory: str, segments: list[Segment]) -> list[EpochEntry]:
    """The leader epochs of the checkpoint, or of all batches if it is missing or unreadable."""
    try:
        entries = read_epochs(disk, directory)
    except CorruptFileError as error:
        sometimes(True, "damaged leader epochs of a log were made again from its batches")
        _logger.warning("%s It is made again from the batches.", error)
        entries = []
    if entries:
        return entries
    latest, next_offset = -1, 0
    for segment in segments:
        for _, header in scan_headers(segment.file, 0, segment.size_bytes):
            if header.base_offset < next_offset:
                break  # not checked yet
            next_offset = header.next_offset
            if header.partition_leader_epoch > latest:
                latest = header.partition_leader_epoch
                entries.append(EpochEntry(latest, header.base_offset))
    return entries


def _read_topic_id(disk: Disk, directory: str) -> UUID | None:
    """The topic id; None where it cannot be read, and the metadata gives it."""
    try:
        return read_topic_id(disk, directory)
    except CorruptFileError as error:
        _logger.error("%s", error)
        return None


def _recover(
    segments: list[Segment],
    first: int,
    trusted: int,
    epochs: list[EpochEntry],
    config: LogConfig,
    has_gaps: bool,
    keeps_gaps: bool,
) -> Work[list[EpochEntry]]:
    """Check the segments from index `first` on, remove what is not valid, and return the leader epochs.

    In that segment everything below the offset `trusted` is durable, its indexes too.
    """
    known = [entry for entry in epochs if entry.start_offset < trusted]
    if resume(segments[first], trusted, known[-1].epoch if known else -1):
        sometimes(True, "recovery began at a producer snapshot within a segment")
        epochs = known
    else:
        start_over(segments[first])
        epochs = [entry for entry in epochs if entry.start_offset < segments[first].base_offset]
    epoch = epochs[-1].epoch if epochs else -1
    for at in range(first, len(segments)):
        segment = segments[at]
        before = segment.file.size()
        following = segments[at + 1] if at + 1 < len(segments) else None
        if at > first:
            start_over(segment)
        epoch_starts, damage = yield from check(
            segment, config.index_interval_bytes, epoch, has_gaps=has_gaps, following=following
        )
        for header in epoch_starts:
            epoch = header.partition_leader_epoch
            epochs.append(EpochEntry(epoch, header.base_offset))
        if damage:
            sometimes(True, "recovery cut a damaged end off a log")
            _logger.warning(
                "%s: %s; cut from %d to %d bytes, the log ends at offset %d",
                *(segment.file.path, damage, before, segment.size_bytes, segment.next_offset),
            )
        if following is None:
            break
        if keeps_gaps and not damage:
            segment.next_offset = max(segment.next_offset, following.base_offset)
        if damage or following.base_offset != segment.next_offset:
            _drop(segments, at + 1)
            break
        segment.finish()
    return epochs


def _drop(segments: list[Segment], first: int) -> None:
    for segment in segments[first:]:
        sometimes(True, "recovery removed a segment after a damaged one")
        _logger.warning("%s does not continue what is left before it and is removed", segment.file.path)
        segment.remove()
    del segments[first:]
