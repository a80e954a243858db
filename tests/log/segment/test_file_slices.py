"""Slices of a log that are sent some time after they were read, while their files change."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.log.logs import NOW_MS, batch, make_runtime, open_files, open_log

from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.files.file_slice import FileSlice, in_memory
from raftwerk.runtime.loop import real_runtime

CONFIG = LogConfig(segment_bytes=5_000, index_interval_bytes=300)


def filled(log: PartitionLog, batches: int = 100) -> PartitionLog:
    for number in range(batches):
        log.append_as_leader(batch(2, value=b"%d " % number + b"v" * 50), 0, NOW_MS)
    return log


def slice_of(log: PartitionLog, offset: int, max_bytes: int = 2_000) -> FileSlice:
    end = log.log_end_offset
    found = log.read_or_slice(
        offset, max_bytes, end_offset=end, min_one_batch=True, allow_blocking_io=True, slice_bytes_min=1_000
    )
    assert isinstance(found, FileSlice)
    return found


def test_a_slice_is_whole_batches_wherever_it_begins() -> None:
    log = filled(open_log(make_runtime()[0], CONFIG))
    for offset in range(0, 150, 7):
        for max_bytes in range(1_000, 3_000, 250):
            data = log.read(offset, max_bytes, end_offset=180)
            found = log.read_or_slice(
                offset, max_bytes, end_offset=180, min_one_batch=True, allow_blocking_io=True, slice_bytes_min=1_000
            )
            assert in_memory([found]) == data
            assert isinstance(found, FileSlice) == (len(data) >= 1_000)


def test_a_slice_outlives_its_segment_its_log_and_both_their_names(tmp_path: Path) -> None:
    directory = str(tmp_path / "t-0")
    Path(directory).mkdir()
    log = filled(PartitionLog.open(real_runtime(), directory, CONFIG))
    first, last = slice_of(log, 0), slice_of(log, log.log_end_offset - 20, 10_000)
    expected = [in_memory([first]), in_memory([last])]
    log.flush()
    log.advance_start(log.segments[1].base_offset)
    log.roll()
    assert [in_memory([first]), in_memory([last])] == expected
    log.close()
    for path in Path(directory).iterdir():
        path.unlink()
    assert [in_memory([first]), in_memory([last])] == expected
    assert open_files(tmp_path) == 2
    del first, last
    assert not open_files(tmp_path), "nobody holds them any more"


def test_a_slice_of_truncated_records_is_not_sent_even_if_others_were_written() -> None:
    log = filled(open_log(make_runtime()[0], CONFIG))
    taken = slice_of(log, 150)
    log.truncate_to(log.log_end_offset + 5)
    assert taken.read(0, 10), "nothing was cut"
    log.truncate_to(155)
    filled(log)
    with pytest.raises(OSError, match="cut off") as refused:
        taken.read(0, 10)
    assert refused.value.errno == errno.ESTALE
