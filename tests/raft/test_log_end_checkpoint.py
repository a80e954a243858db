"""The note of how far a voter's metadata log reached."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.errors import StorageError
from raftwerk.raft.driver.log_end_checkpoint import LOG_END_FILE, LogEnd, LogEndCheckpoint, lost_log_end, parse_log_end
from raftwerk.raft.driver.quorum_state_store import format_quorum_state
from raftwerk.raft.types import ElectionState
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.wire.records import NewRecord, encode_batch, set_base_offset, set_partition_leader_epoch


def checkpoint(tmp_path: Path) -> LogEndCheckpoint:
    return LogEndCheckpoint(RealDisk(), f"{tmp_path}/__cluster_metadata-0")


def test_round_trip() -> None:
    end = LogEnd(3, 40, 50)
    assert end.encode() == b'{"version":0,"epoch":3,"committedOffset":40,"logEndOffset":50}'
    assert parse_log_end(end.encode()) == end
    assert LogEnd(3, 40).encode() == b'{"version":0,"epoch":3,"committedOffset":40,"logEndOffset":-1}'


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"epoch":"1","committedOffset":1,"logEndOffset":1}'])
def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path, data: bytes) -> None:
    (tmp_path / LOG_END_FILE).write_bytes(data)
    checkpoint(tmp_path).check(0, 0)


def test_after_a_clean_stop_the_end_counts(tmp_path: Path) -> None:
    checkpoint(tmp_path).note_stop(3, 40, 50)
    for epoch, end_offset in ((3, 49), (2, 50), (4, 39)):
        with pytest.raises(StorageError):
            checkpoint(tmp_path).check(epoch, end_offset)
    checkpoint(tmp_path).check(3, 50)


def test_older_software_may_have_truncated_the_log_in_a_later_epoch(tmp_path: Path) -> None:
    checkpoint(tmp_path).note_stop(3, 40, 50)
    checkpoint(tmp_path).check(4, 45)


def test_after_an_unclean_stop_only_committed_records_count(tmp_path: Path) -> None:
    checkpoint(tmp_path).note_stop(3, 40, 50)
    started = checkpoint(tmp_path)
    started.check(3, 50)
    assert started.noted == LogEnd(3, 40, -1), "it is not the end any more"
    checkpoint(tmp_path).check(3, 45)
    with pytest.raises(StorageError, match=r"ends at offset 39, and it held committed records up to 40\."):
        checkpoint(tmp_path).check(3, 39)


def test_what_is_committed_is_noted_from_time_to_time() -> None:
    disk = SimDisk(random.Random(0))
    disk.makedirs("/data")

    def noted() -> LogEnd:
        return parse_log_end(disk.read_bytes(f"/data/{LOG_END_FILE}"))

    async def notes() -> None:
        checkpoint = LogEndCheckpoint(disk, "/data/__cluster_metadata-0")
        checkpoint.note_committed(1, 0)
        await asyncio.sleep(1)
        assert not disk.exists(f"/data/{LOG_END_FILE}"), "nothing is committed yet"
        checkpoint.note_committed(1, 10)
        await asyncio.sleep(8)
        checkpoint.note_committed(1, 20)
        await asyncio.sleep(1)
        assert noted() == LogEnd(1, 10), "not at each commit"
        await asyncio.sleep(1)
        checkpoint.note_committed(2, 10)
        await asyncio.sleep(1)
        assert noted() == LogEnd(1, 10), "nothing more is committed"
        checkpoint.note_committed(2, 21)
        await asyncio.sleep(1)
        assert noted() == LogEnd(2, 21)
        checkpoint.note_stop(2, 15, 40)
        assert noted() == LogEnd(2, 21, 40), "what was committed stays committed"

    ProcessLoop(Scheduler(), "test").run_until_complete(notes())


def test_a_note_that_cannot_be_written_is_logged_and_the_voter_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk(random.Random(0))
    disk.makedirs("/data")

    async def notes() -> None:
        checkpoint = LogEndCheckpoint(disk, "/data/__cluster_metadata-0")
        disk.fail_dir("/data")
        checkpoint.note_committed(1, 10)
        await asyncio.sleep(1)
        (line,) = caplog.messages
        assert line.startswith("the end of the metadata log was not noted, and is noted later: ")
        disk.repair_dirs()
        await asyncio.sleep(9)
        checkpoint.note_committed(1, 20)
        await asyncio.sleep(1)
        assert parse_log_end(disk.read_bytes(f"/data/{LOG_END_FILE}")) == LogEnd(1, 20)
        assert caplog.messages == [line]

    ProcessLoop(Scheduler(), "test").run_until_complete(notes())


def segment(directory: Path, base: int, *epochs: int) -> None:
    """A file with a batch of one record in each of these epochs."""
    batches = b""
    for offset, epoch in enumerate(epochs, base):
        batch = bytearray(encode_batch([NewRecord(None, b"r", (), 0)]))
        set_base_offset(batch, 0, offset)
        set_partition_leader_epoch(batch, 0, epoch)
        batches += batch
    (directory / f"{base:020}.log").write_bytes(batches)


def test_a_log_is_compared_with_the_note_before_the_voter_starts(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"

    def lost() -> str:
        return str(lost_log_end(RealDisk(is_read_only=True), str(directory)) or "")

    assert lost() == "", "nothing is there"
    checkpoint(tmp_path).note_stop(2, 3, 4)
    assert "quorum-state is of epoch 0, and this voter was in epoch 2. Restore the directory, or" in lost()
    directory.mkdir()
    (directory / "quorum-state").write_bytes(format_quorum_state(ElectionState(2, None, None)))
    assert "the log ends at offset 0, and at its clean stop it ended at 4" in lost()
    segment(directory, 0, 1, 1)
    segment(directory, 2, 1, 2)
    assert lost() == ""
    whole = (directory / f"{2:020}.log").read_bytes()
    (directory / f"{2:020}.log").write_bytes(whole[:-1])
    assert "the log ends at offset 3, and at its clean stop it ended at 4" in lost()
    segment(directory, 0, 1)
    (directory / f"{2:020}.log").write_bytes(whole)
    assert "the log ends at offset 1," in lost(), "what follows a gap is removed"
    (directory / f"{4:020}-{2:010}.checkpoint").touch()
    (directory / f"{9:020}-{2:010}.checkpoint.part").touch()
    assert lost() == "", "the log begins anew at the snapshot"
    assert (directory / f"{9:020}-{2:010}.checkpoint.part").exists(), "the node may run"
