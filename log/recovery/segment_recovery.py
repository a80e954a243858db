"""Checking one segment after an unclean shutdown: invalid batches are cut off, the indexes are rebuilt.

If the recovery point is inside the segment, only the part after it is checked. The batches below it are durable. Below
a producer snapshot the indexes are durable too, because it is written after their fsync. So checking begins at the
newest snapshot at or below the recovery point. If the indexes do not lead exactly there, or the epoch is not that of
the batch before, the whole segment is checked, as it is when there is no such snapshot.
"""

from __future__ import annotations

from itertools import islice

from ...runtime.incremental_work import FileRange, Step, Work
from ...wire.records import LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader
from ..config import MAX_INT32
from ..segment.batch_scan import ValidatingScan, scan_headers
from ..segment.segment import Segment

STEP_BATCHES = 1000
STEP_BYTES = 4 * 1024 * 1024
"""A step of a check ends after so many batches or bytes."""


def resume(segment: Segment, offset: int, epoch: int) -> bool:
    """Accept everything below `offset` without a check, as it is durable; False if the whole segment must be checked.

    `epoch` is that of the batch before, by the leader epoch checkpoint; -1 if the log starts later. `OSError`.
    """
    if not segment.base_offset < offset <= segment.base_offset + MAX_INT32 or not segment.keep_indexes_below(offset):
        return False
    segment.max_timestamp, segment.max_timestamp_offset = segment.time_index.last()
    last_indexed, base_max = segment.offset_index.last_entry()
    end, next_offset, last_epoch = last_indexed, segment.base_offset, -1
    batches = scan_headers(segment.file, last_indexed, segment.size_bytes)
    for position, header in islice(batches, STEP_BATCHES):
        if not next_offset <= header.base_offset <= base_max:
            return False
        end, next_offset, base_max = position + header.size_bytes, header.next_offset, offset
        last_epoch = header.partition_leader_epoch
        if header.max_timestamp > segment.max_timestamp and header.record_count:
            segment.max_timestamp, segment.max_timestamp_offset = header.max_timestamp, header.last_offset
        if next_offset == offset:
            break
    if next_offset != offset or -1 != epoch != last_epoch:
        return False
    segment.size_bytes, segment.next_offset = end, next_offset
    segment.uncounted_bytes = end - last_indexed
    return True


def start_over(segment: Segment) -> None:
    """Forget the batches and index entries of a segment that was just opened, to check all of it. `OSError`."""
    segment.reset_indexes()
    segment.next_offset = segment.base_offset
    segment.size_bytes = segment.uncounted_bytes = 0
    segment.max_timestamp, segment.max_timestamp_offset = NO_TIMESTAMP, segment.base_offset


def check(
    segment: Segment, index_interval_bytes: int, epoch: int, *, has_gaps: bool, following: Segment | None
) -> Work[tuple[list[BatchHeader], str | None]]:
    """Check every byte after the accepted batches, accept what is valid, and cut off the rest.

    Returns the headers that start a leader epoch, where `epoch` is the one before, and what was wrong, if anything.
    `has_gaps`: offsets may be missing between its batches. `following` is the segment after this one. `OSError`.
    """
    file = segment.file
    size, counted, batches = file.size(), segment.size_bytes, 0
    after = None if following is None else (following.base_offset, following.first_header())
    scan = ValidatingScan(file, segment.next_offset, epoch, has_gaps=has_gaps, following=after, position=counted)
    epoch_starts: list[BatchHeader] = []
    offset_index, time_index = segment.offset_index, segment.time_index
    last_offset_max = segment.base_offset + MAX_INT32
    yield Step(reads=FileRange(file, counted, min(STEP_BYTES, size - counted)))
    uncounted, greatest = segment.uncounted_bytes, segment.max_timestamp
    for position, header in scan:
        last_offset = header[0] + header[6]
        if last_offset > last_offset_max:
            scan.damage = f"offset {last_offset} is too far from the segment's first"
            break
        if header[8] > greatest and header[12]:
            greatest = segment.max_timestamp = header[8]
            segment.max_timestamp_offset = last_offset
        if uncounted > index_interval_bytes:
            offset_index.add(last_offset, position)
            time_index.add(greatest, segment.max_timestamp_offset)
            uncounted = 0
        length = header[1] + LOG_OVERHEAD
        uncounted += length
        segment.size_bytes = position + length
        segment.next_offset = last_offset + 1
        if header[2] != epoch:
            epoch = header[2]
            epoch_starts.append(header)
        batches += 1
        if batches >= STEP_BATCHES or position - counted >= STEP_BYTES:
            done, counted, batches = segment.size_bytes - counted, segment.size_bytes, 0
            yield Step(done, reads=FileRange(file, counted, min(STEP_BYTES, size - counted)))
    yield Step(segment.size_bytes - counted)
    segment.uncounted_bytes = uncounted
    segment.earliest_timestamp()
    if segment.size_bytes < file.size():
        file.truncate(segment.size_bytes)
        file.fsync()
    return epoch_starts, scan.damage
