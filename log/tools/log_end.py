"""Where a log would end if it were opened, found without a change of its files."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import zip_longest

from ...runtime.ports import Disk
from ..segment.batch_scan import ValidatingScan
from ..segment.segment import Segment, base_offsets


def sound_end(disk: Disk, directory: str) -> int:
    """The end of what recovery keeps of a log in which no offsets may be missing; 0 without a segment. `OSError`.

    Recovery cuts off what follows the first damaged batch, and what does not continue the segment before it.
    """
    bases = base_offsets(disk.listdir(directory)) if disk.exists(directory) else []
    end, epoch = bases[0] if bases else 0, -1
    with ExitStack() as opened:
        segments = []
        for base in bases:
            segments.append(Segment.open(disk, directory, base))
            opened.callback(segments[-1].close)
        for segment, following in zip_longest(segments, segments[1:]):
            if segment.base_offset != end:
                break
            after = None if following is None else (following.base_offset, following.first_header())
            scan = ValidatingScan(segment.file, end, epoch, has_gaps=False, following=after)
            for _, header in scan:
                epoch = header.partition_leader_epoch
            end = scan.next_offset
            if scan.damage is not None:
                break
    return end
