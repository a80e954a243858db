"""Where a log would end if it were opened, found without a change of its files."""

from __future__ import annotations

from ...runtime.ports import Disk
from ..segment.batch_scan import ValidatingScan
from ..segment.segment import LOG_SUFFIX, base_offsets, segment_path


def sound_end(disk: Disk, directory: str) -> int:
    """The end of what recovery keeps of a log in which no offsets may be missing; 0 without a segment. `OSError`.

    Recovery cuts off what follows the first damaged batch, and what does not continue the segment before it.
    """
    end: int | None = None
    epoch = -1
    for base in base_offsets(disk.listdir(directory)) if disk.exists(directory) else ():
        if end is not None and base != end:
            break
        file = disk.open(segment_path(directory, base, LOG_SUFFIX))
        try:
            scan = ValidatingScan(file, base, epoch, has_gaps=False)
            for _, header in scan:
                epoch = header.partition_leader_epoch
        finally:
            file.close()
        end = scan.next_offset
        if scan.damage is not None:
            break
    return end or 0
