"""Repair of a damaged partition's directory, offline.

The log is cut before the first invalid batch, later segments are removed, and all other files are rebuilt from the
batches. The records that are cut off are lost here. If other replicas have them, it is better to remove the partition's
directory: then the node fetches all of it from them.
"""

from __future__ import annotations

from typing import NamedTuple

from ...runtime.incremental_work import run_at_once
from ...runtime.ports import Disk
from ..config import LogConfig
from ..recovery import log_recovery
from ..segment.batch_scan import ValidatingScan
from ..segment.segment import LOG_SUFFIX, base_offsets, segment_path
from ..state.checkpoints import write_epochs
from ..state.producer_state import ProducerStateManager


class RepairResult(NamedTuple):
    """The end of the log after the repair, and how many bytes of batches are kept and cut off."""

    log_end_offset: int
    kept_bytes: int
    lost_bytes: int


def plan_repair(disk: Disk, path: str) -> RepairResult:
    """The result that `repair_partition` would have; nothing is changed. `OSError`."""
    kept = total = end = 0
    is_damaged = False
    epoch = -1
    for base in _bases(disk, path):
        file = disk.open(segment_path(path, base, LOG_SUFFIX))
        try:
            total += file.size()
            if is_damaged or base < end:
                is_damaged = True
                continue
            scan = ValidatingScan(file, base, epoch)
            for _, header in scan:
                epoch = header.partition_leader_epoch
            kept += scan.end_position
            end = scan.next_offset
            is_damaged = scan.damage is not None
        finally:
            file.close()
    return RepairResult(end, kept, total - kept)


def repair_partition(disk: Disk, path: str) -> RepairResult:
    """Repair one partition's directory, which no node may be using. `OSError`."""
    before = sum(_size(disk, path, base) for base in _bases(disk, path))
    loaded = run_at_once(
        log_recovery.load(
            disk, path, LogConfig(), recovery_point=0, start_offset=0, clean_shutdown=False, keeps_gaps=True
        )
    )
    end = loaded.segments[-1].next_offset
    producers = ProducerStateManager()
    run_at_once(log_recovery.load_producers(producers, loaded.snapshots, loaded.segments, end))
    if end > loaded.segments[0].base_offset:
        loaded.snapshots.write(end, producers.encode_snapshot())
    loaded.snapshots.sync()
    for segment in loaded.segments:
        segment.finish()
        for file in (segment.file, *segment.unsynced_index_files()):
            file.fsync()
        segment.close()
    write_epochs(disk, path, loaded.epochs)
    disk.fsync_dir(path)
    kept = sum(segment.size_bytes for segment in loaded.segments)
    return RepairResult(end, kept, before - kept)


def _bases(disk: Disk, path: str) -> list[int]:
    return base_offsets(disk.listdir(path))


def _size(disk: Disk, path: str, base: int) -> int:
    file = disk.open(segment_path(path, base, LOG_SUFFIX))
    try:
        return file.size()
    finally:
        file.close()
