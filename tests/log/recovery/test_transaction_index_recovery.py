"""The index of aborted transactions after truncations and losses of power: no entry of what is not there any more."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from support.log.compacted_logs import COMPACT, drive, plan_of
from support.log.crashes import CONFIG, Kill, KilledError, transactional_log
from support.log.damaged_files import marker
from support.log.logs import DIRECTORY, NOW_MS, append, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.cleaner.compaction import clean
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.segment.transaction_index import AbortedTransaction
from raftwerk.log.state.producer_state import CompletedTransaction
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import ControlRecordType


def add(log: PartitionLog, sequence: int, producer_id: int = 8) -> None:
    """A batch of two records of a transaction."""
    data = batch(2, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    log.append_as_leader(data, 0, NOW_MS, guard=VERIFICATION_OFF)


def abort(log: PartitionLog, sequence: int) -> None:
    """An aborted transaction of producer 8 of two records, and its marker."""
    add(log, sequence)
    log.append_as_leader(marker(8, 1000), 0, NOW_MS, internal=True)


def aborted(log: PartitionLog) -> list[tuple[int, int]]:
    return [(one.first_offset, one.last_offset) for one in log.aborted_transactions(0, log.log_end_offset + 100)]


def test_truncation_to_the_start_of_a_segment_takes_its_aborted_transactions_away() -> None:
    log = open_log(make_runtime()[0])
    abort(log, 0)
    log.roll()
    abort(log, 2)
    log.truncate_to(3)
    assert aborted(log) == [(0, 2)]
    log.append_as_leader(batch(5), 0, NOW_MS)
    assert aborted(log) == [(0, 2)]


def test_truncation_to_a_snapshot_takes_the_aborted_transactions_after_it_away() -> None:
    runtime = make_runtime()[0]
    log = open_log(runtime)
    abort(log, 0)
    log.close()
    log = open_log(runtime, recovery_point=3, clean_shutdown=True)
    abort(log, 2)
    log.truncate_to(3)
    assert aborted(log) == [(0, 2)]


@pytest.mark.parametrize("recovery_point", [0, 5])
def test_an_entry_of_zeros_is_none(recovery_point: int) -> None:
    """A power cut may leave zeros where the last entry was to be, also where the producers need not be read again."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    abort(log, 0)
    log.roll()
    log.append_as_leader(batch(2), 0, NOW_MS)
    log.flush()
    log.close()
    index = disk.open(f"{DIRECTORY}/{3:020d}.txnindex", create=True)
    index.append((struct.pack(">hqqqq", 0, 0, 0, 0, 0),))
    index.close()
    log = open_log(runtime, recovery_point=recovery_point)
    assert aborted(log) == [(0, 2)]


def test_markers_above_the_high_watermark_count_after_a_truncation() -> None:
    log = open_log(make_runtime()[0])
    abort(log, 0)
    log.roll()
    log.append_as_leader(batch(2), 0, NOW_MS)
    log.truncate_to(4)
    assert log.log_end_offset == 3
    assert log.producers.first_unstable_offset(2) == 0
    assert log.producers.first_unstable_offset(3) is None


@pytest.mark.parametrize("is_clean", [True, False])
def test_markers_above_the_high_watermark_count_after_a_restart(is_clean: bool) -> None:
    """A leader of that log shows no record of the transaction before its marker is committed."""
    runtime = make_runtime()[0]
    log = open_log(runtime)
    abort(log, 0)
    abort(log, 2)
    if is_clean:
        log.close()
    else:
        log.roll()
    log = open_log(runtime, recovery_point=6, clean_shutdown=is_clean)
    assert log.producers.unstable_transactions == (
        CompletedTransaction(8, 0, 2, True),
        CompletedTransaction(8, 3, 5, True),
    )
    assert log.producers.first_unstable_offset(2) == 0
    assert log.producers.first_unstable_offset(5) == 3
    assert log.producers.first_unstable_offset(6) is None
    entry = log.producers.get(8)
    assert entry is not None
    assert [one.first_offset for one in entry.batches] == [0, 3]
    assert (entry.coordinator_epoch, entry.last_timestamp) == (1, 1000)


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("way", ["retention", "advanced start"])
def test_what_a_crash_leaves_of_a_deleted_segment_has_its_aborted_transactions(way: str, power_loss: bool) -> None:
    """One crash at each operation of the deletion. The records of a segment that is left are read again."""
    at = left = 0
    while True:
        runtime, disk, log = transactional_log()
        end, second = log.log_end_offset, log.segments[1].base_offset
        aborted = log.aborted_transactions(0, end)
        assert aborted
        kill = Kill(disk, at)
        try:
            if way == "retention":
                log.raise_start(second)
                log.delete_expired(NOW_MS, end)
            else:
                log.advance_start(second)
        except KilledError:
            pass
        else:
            break
        kill.end(power_loss=power_loss)
        again = open_log(runtime, CONFIG, recovery_point=end)
        if again.log_start_offset == 0:
            left += 1
            assert again.aborted_transactions(0, end) == aborted, f"operation {at}: {disk.listdir(log.directory)}"
        at += 1
    assert left and at >= 5


def test_a_damaged_log_does_not_make_its_transaction_index_wrong() -> None:
    """After a clean stop. The index cannot be read again from batches that are damaged: it is all that is left."""
    runtime, disk, log = transactional_log()
    before = log.aborted_transactions(0, log.log_end_offset)
    path = log.segments[0].file.path
    log.close()
    disk.flip_bit(path, 16, 0)  # no batch begins there any more
    again = open_log(runtime, CONFIG, recovery_point=log.log_end_offset, clean_shutdown=True)
    assert again.aborted_transactions(0, again.log_end_offset) == before != []


INDEX = f"{DIRECTORY}/{10:020d}.txnindex"


def log_of_transactions() -> tuple[Runtime, SimDisk]:
    """A closed log that begins at 10 with a transaction that producer 9 commits; producer 8 aborts the two others."""
    runtime, disk = make_runtime()
    log = open_log(runtime, CONFIG, log_start_offset=10)
    add(log, 0, producer_id=9)
    log.append_as_leader(marker(9, 1000, ControlRecordType.COMMIT), 0, NOW_MS, internal=True)
    abort(log, 0)
    append(log, 2)
    abort(log, 2)
    assert aborted(log) == [(13, 15), (18, 20)] and log.log_end_offset == 21
    log.close()
    return runtime, disk


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param((9, 10, 12), id="its marker commits the transaction"),
        pytest.param((9, 5, 20), id="its marker is that of another producer"),
        pytest.param((8, 13, 18), id="at its last offset there are records"),
        pytest.param((8, 13, 19), id="no batch begins at its last offset"),
        pytest.param((8, 10, 20), id="it begins with a batch of another producer, the first of the segment"),
        pytest.param((8, 15, 20), id="it begins with a marker"),
        pytest.param((8, 16, 20), id="it begins with a batch of no transaction"),
        pytest.param((8, 19, 20), id="it begins within a batch"),
    ],
)
def test_an_entry_that_the_batches_contradict_makes_the_index_be_made_again(entry: tuple[int, int, int]) -> None:
    """With it a consumer of committed transactions would not see committed records, or see aborted ones."""
    runtime, disk = log_of_transactions()
    disk.write_atomic(INDEX, struct.pack(">hqqqq", 0, *entry, entry[1]))
    log = open_log(runtime, CONFIG, recovery_point=21, clean_shutdown=True)
    assert aborted(log) == [(13, 15), (18, 20)]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_transaction_index_that_is_right_is_not_made_again(compacted: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Else each start would read the whole log. Compaction may remove the first batch of a transaction."""
    runtime, disk = make_runtime()
    log = open_log(runtime, CONFIG)
    abort(log, 0)
    add(log, 2)
    abort(log, 4)
    before, headers, content = log.aborted_transactions(0, 8), headers_of(read_all(log)), read_all(log)
    assert before == [AbortedTransaction(8, 0, 2, 3), AbortedTransaction(8, 3, 7, 8)]
    log.close()
    if compacted:
        start = sum(header.size_bytes for header in headers[:2])
        kept = content[:start] + content[start + headers[2].size_bytes :]
        disk.write_atomic(f"{DIRECTORY}/{0:020d}.log", kept)
    again = open_log(runtime, CONFIG, recovery_point=8, clean_shutdown=True)
    assert again.aborted_transactions(0, 8) == before
    assert not caplog.messages


def test_an_empty_batch_in_the_place_of_the_first_one_does_not_make_the_index_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Compaction puts it at the end of a segment, and leaves the marker, which is in another one, until its next pass.

    An index that is made again costs the snapshots of producers: a compacted log tells less of them.
    """
    runtime, disk = make_runtime()
    config = replace(COMPACT, segment_bytes=200)
    log = open_log(runtime, config)
    data = batch(1, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(data, 0, NOW_MS, guard=VERIFICATION_OFF)
    log.roll()
    abort(log, 1)
    log.roll()
    append(log, 1)
    log.flush()
    drive(clean(log, disk, plan_of(log)))
    assert [segment.base_offset for segment in log.segments] == [0, 1, 4] and aborted(log) == [(0, 3)]
    snapshots = [name for name in disk.listdir(DIRECTORY) if name.endswith(".snapshot")]
    log.close()
    log = open_log(runtime, config, recovery_point=5, clean_shutdown=True)
    assert aborted(log) == [(0, 3)] and not caplog.messages
    assert set(snapshots) <= set(disk.listdir(DIRECTORY))


def test_segments_below_the_start_go_one_after_the_other_durably() -> None:
    """A file system keeps no order of names by itself, and of two that go at once it may bring the older one back."""
    _, disk, log = transactional_log()
    done: list[str] = []
    disk.on_blocking = lambda operation, path: done.append(f"{operation} {path.rpartition('.')[2]}")
    log.advance_start(log.segments[2].base_offset)
    removals = [at for at, operation in enumerate(done) if operation == "remove log"]
    assert len(removals) == 2
    assert all(done[at + 1].startswith("fsync_dir") for at in removals)
