"""Where a log would end is where recovery cuts it off, also where two segments contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.tools.log_end import sound_end
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.loop import real_runtime
from raftwerk.wire.records import NewRecord, encode_batch, set_base_offset, set_partition_leader_epoch


def write_segment(directory: Path, base: int, batches: list[tuple[int, int]]) -> None:
    """A file with a batch of two records for each offset and epoch."""
    data = b""
    for offset, epoch in batches:
        batch = bytearray(encode_batch([NewRecord(None, b"r", (), 0)] * 2))
        set_base_offset(batch, 0, offset)
        set_partition_leader_epoch(batch, 0, epoch)
        data += batch
    (directory / f"{base:020}.log").write_bytes(data)


@pytest.mark.parametrize(
    ("first", "second", "end"),
    [
        ([(0, 1), (2, 1)], [(4, 1), (6, 2)], 8),
        ([(0, 1), (2, 1)], [(4, 1), (7, 1)], 6),
        ([(0, 1), (2, 2)], [(4, 1)], 2),  # the epoch of the second batch was changed: the next one has not that
        ([(0, 1), (2, 1), (4, 1)], [(4, 1)], 4),  # the third batch reaches into the next segment
        ([(0, 1)], [(4, 1)], 2),
        ([(0, 1), (2, 1)], [], 4),
        ([], [(4, 1)], 0),
    ],
)
def test_a_log_would_end_where_recovery_lets_it_end(
    tmp_path: Path, first: list[tuple[int, int]], second: list[tuple[int, int]], end: int
) -> None:
    write_segment(tmp_path, 0, first)
    write_segment(tmp_path, 4, second)
    assert sound_end(RealDisk(is_read_only=True), str(tmp_path)) == end
    log = PartitionLog.open(real_runtime(), str(tmp_path), LogConfig(), has_gaps=False)
    assert log.log_end_offset == end
    log.close()
