"""Every byte of a small data directory flipped, and every file cut at every length, one at a time.

The log opens each time, serves only what is valid, and says what it found. After a stop that was not clean every batch
is checked, so that the log is exactly what stands before the damage, and all that can be made from the batches equals
the original. After a clean stop the files are trusted, but what they lead to is checked when it is used.
"""

from __future__ import annotations

import contextlib
import random

import pytest
from support.log.damaged_files import NODE, PARTITION, Files, damages, load, look, original
from support.log.logs import headers_of

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.errors import LogDirError
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE
from raftwerk.log.tools.verification import verify_dir, verify_partition
from raftwerk.wire.errors import ProtocolError
from raftwerk.wire.records import verify_crc

LENGTH_BYTES, EPOCH_BYTES, MAGIC_BYTE = range(8, 12), range(12, 16), 16
PLACE_BYTES = (*range(8), *range(23, 27))
"""Base offset and last offset delta in a batch."""


def unclean(files: Files) -> Files:
    """The files after a loss of power before any checkpoint."""
    gone = (f"{NODE}/{CLEAN_SHUTDOWN_FILE}", f"{NODE}/{RECOVERY_POINT_FILE}")
    return {path: content for path, content in files.items() if path not in gone}


def files_ending(*endings: str) -> list[str]:
    return [path for path in original()[0] if path.endswith(endings)]


LOGS = files_ending(".log")
INDEXES = files_ending("index")
SIDE_FILES = [path for path in original()[0] if path not in LOGS]


@pytest.mark.parametrize("path", LOGS)
def test_a_damaged_batch_ends_the_log_exactly_there(path: str, caplog: pytest.LogCaptureFixture) -> None:
    files, whole = original()
    base = int(path[-24:-4])
    before = [one for one in whole.batches if headers_of(one)[0].next_offset <= base]
    mine = headers_of(files[path])
    starts = [sum(header.size_bytes for header in mine[:at]) for at in range(len(mine) + 1)]
    for what, at, damaged in damages(files[path]):
        caplog.clear()
        manager, log = load(unclean({**files, path: damaged}))
        found = look(log)
        number = max(n for n, start in enumerate(starts) if start <= at)
        expected = whole.batches[: len(before) + number]
        if is_epoch_ambiguous(whole.batches, len(expected), at - starts[number]):
            expected = found.batches if found.batches == expected[:-1] else expected
        if found.batches == expected:
            assert found.end == (headers_of(expected[-1])[0].next_offset if expected else 0)
            is_boundary = at in starts and what.startswith("cut")
            assert is_boundary or "position" in caplog.text, what
            assert log.is_failed is False
        else:
            check_only_an_epoch_differs(found.batches, whole.batches, what, at - starts[number])
        manager.shutdown()


def is_epoch_ambiguous(whole: list[bytes], number: int, within: int) -> bool:
    """Whether two neighbours contradict each other and both begin an epoch: then neither is served."""
    epochs = [headers_of(one)[0].partition_leader_epoch for one in whole]
    return within in EPOCH_BYTES and 2 <= number < len(epochs) and epochs[number - 2] < epochs[number - 1]


def check_only_an_epoch_differs(found: list[bytes], whole: list[bytes], what: str, within: int) -> None:
    """No CRC covers the epoch: a wrong one that fits its neighbours is not detected. The records are right."""
    assert within in EPOCH_BYTES, what
    assert len(found) == len(whole), what
    assert [one[:12] + one[16:] for one in found] == [one[:12] + one[16:] for one in whole], what
    epochs = [headers_of(one)[0].partition_leader_epoch for one in found]
    assert epochs == sorted(epochs), what


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("path", [path for path in SIDE_FILES if path.startswith(PARTITION)])
def test_files_that_are_rebuilt_from_the_batches_equal_the_original(path: str) -> None:
    files, whole = original()
    for what, _, damaged in damages(files[path]):
        manager, log = load(unclean({**files, path: damaged}))
        if path.endswith("partition.metadata") and what.startswith("cut"):
            assert log.log_end_offset == log.log_start_offset, what  # it was never durable, and so was nothing else
        else:
            assert look(log) == whole, what
        manager.shutdown()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("path", INDEXES)
def test_a_damaged_index_does_not_change_what_is_read(path: str) -> None:
    """Indexes are trusted after a clean shutdown, and compared with the batches when they are used.

    Only the loss of whole entries at the end of a transaction index is not detected.
    """
    files, whole = original()
    for what, at, damaged in damages(files[path]):
        if path.endswith(".txnindex") and what.startswith("cut") and at % 34 == 0:
            continue
        manager, log = load({**files, path: damaged})
        assert look(log) == whole, what
        manager.shutdown()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("path", files_ending(".snapshot", "leader-epoch-checkpoint", "partition.metadata"))
def test_damaged_small_files_after_a_clean_shutdown(path: str) -> None:
    """A checkpoint has no checksum: a changed digit is not detected if the number is possible."""
    files, whole = original()
    for what, _, damaged in damages(files[path]):
        manager, log = load({**files, path: damaged})
        found = look(log)
        assert found._replace(epochs=[]) == whole._replace(epochs=[]), what
        assert found.epochs == whole.epochs or path.endswith("leader-epoch-checkpoint"), what
        assert all(0 <= start < found.end for _, start in found.epochs), what
        manager.shutdown()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("path", LOGS)
def test_a_batch_damaged_after_a_clean_stop_is_refused_or_seen_by_its_reader(path: str) -> None:
    """Nothing is scanned then. All valid batches are served unchanged, if they can be found.

    A batch is found by the lengths and offsets of those before it, so damage of these can hide valid batches that come
    after it in the same file. Damage elsewhere shows to a reader, who checks the CRC, and harms no other batch.
    """
    files, whole = original()
    headers = headers_of(files[path])
    starts = [sum(header.size_bytes for header in headers[:number]) for number in range(len(headers))]
    start_of = dict(zip((header.base_offset for header in headers), starts, strict=True))
    for what, at, damaged in damages(files[path]):
        manager, log = load({**files, path: damaged})
        hit = max(start for start in starts if start <= at)
        within = at - hit
        damaged_batch = damaged[hit : hit + headers[starts.index(hit)].size_bytes]
        for one in whole.batches:
            offset = headers_of(one)[0].base_offset
            start = start_of.get(offset)
            answer = serve(log, offset)
            is_later = answer in whole.batches and headers_of(answer)[0].base_offset > offset
            if start is None or start < hit:
                assert answer == one, what
            elif what.startswith("cut"):
                assert answer is None or (is_later and at in starts), what
            elif within in PLACE_BYTES:
                assert is_later or answer in ((None, damaged_batch) if start == hit else (one, damaged_batch)), what
            elif within in LENGTH_BYTES:
                assert answer is None or answer == one or (start == hit and damaged.find(answer) == hit), what
            elif start > hit:
                assert answer == one or (within == MAGIC_BYTE and answer is None), what
            else:
                assert answer is None or (answer == damaged_batch and within != MAGIC_BYTE), what
                assert answer is None or within in EPOCH_BYTES or not verify_crc(answer, 0, headers_of(answer)[0]), what
        for time in range(995, 1085, 3):
            with contextlib.suppress(ProtocolError):
                log.offset_for_timestamp(time)
        manager.shutdown()


def serve(log: PartitionLog, offset: int) -> bytes | None:
    """The batch that a fetch of this offset gets, None when it is refused or the log ends before it."""
    try:
        return log.read(max(offset, log.log_start_offset), 1, end_offset=log.log_end_offset) or None
    except ProtocolError:
        return None


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("path", [path for path in SIDE_FILES if not path.startswith(PARTITION)])
@pytest.mark.parametrize("is_clean", [True, False])
def test_damage_in_the_directory_s_own_files(path: str, is_clean: bool) -> None:
    files, whole = original()
    for what, _, damaged in damages(files[path]):
        present = {**files, path: damaged}
        if not is_clean:
            present.pop(f"{NODE}/{CLEAN_SHUTDOWN_FILE}")
        try:
            manager, log = load(present)
        except LogDirError as error:
            assert path.endswith("meta.properties"), what
            assert NODE in str(error)
            continue
        found = look(log)
        assert found.batches == [one for one in whole.batches if headers_of(one)[0].last_offset >= found.start], what
        assert found.end == whole.end, what
        manager.shutdown()


def test_verify_finds_nothing_in_the_original() -> None:
    files, _ = original()
    disk = SimDisk(random.Random(1))
    disk.makedirs(PARTITION)
    for path, content in files.items():
        disk.open(path, create=True).append((content,))
    assert [*verify_dir(disk, NODE), *verify_partition(disk, PARTITION)] == []
