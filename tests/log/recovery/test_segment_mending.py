"""A segment that is replaced by a replica's batches, and crashes while it takes the place of the damaged one."""

from __future__ import annotations

import gc

import pytest
from support.log.compacted_logs import COMPACT, Writer, plan_of
from support.log.crashes import CONFIG, Kill, KilledError, transactional_log
from support.log.damaged_files import marker
from support.log.logs import NOW_MS, append, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.cleaner.compaction import clean
from raftwerk.log.config import LogConfig
from raftwerk.log.errors import StorageError
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.recovery.segment_mending import MendingGivenUpError, SegmentMending
from raftwerk.log.segment.segment import Segment
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.incremental_work import PLAIN_STEP, run_at_once
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import CorruptBatchError

COMPACTED = LogConfig(index_interval_bytes=100, cleanup_policy=("compact",))


def content_of(segment: Segment) -> memoryview:
    return memoryview(bytearray(segment.file.pread(0, segment.size_bytes)))


@pytest.mark.parametrize("power_loss", [False, True])
def test_aborted_transactions_survive_crashes_while_a_mended_segment_takes_its_place(power_loss: bool) -> None:
    """One crash after each change of a name, and another one after each step of the recovery from it."""
    at = recovered_at = crashes = 0
    while True:
        runtime, disk, log = transactional_log()
        end, content, aborted = log.log_end_offset, read_all(log), log.aborted_transactions(0, log.log_end_offset)
        assert aborted == log.segments[0].transaction_index.entries != []
        mending = SegmentMending(log, disk, 0)
        mending.add(content_of(log.segments[0]))
        kill = Kill(disk, at)
        try:
            run_at_once(mending.placing())
        except KilledError:
            pass
        else:
            break
        kill.end(power_loss=power_loss)
        kill = Kill(disk, recovered_at)
        try:
            open_log(runtime, CONFIG, recovery_point=end)
        except KilledError:
            recovered_at += 1
        else:
            at, recovered_at = at + 1, 0
        kill.end(power_loss=power_loss)
        again = open_log(runtime, CONFIG, recovery_point=end)
        where = f"operation {at}, then {recovered_at} of the recovery"
        assert again.aborted_transactions(0, end) == aborted, where
        assert again.log_end_offset == end and read_all(again) == content, where
        crashes += 1
    assert crashes > 50


def compacted_away(log: PartitionLog, kept: int) -> memoryview:
    """What another replica sends of the first two segments whose compaction has left `kept` batches of the first."""
    first, second = (bytes(content_of(segment)) for segment in log.segments[:2])
    return memoryview(bytearray(first[: sum(header.size_bytes for header in headers_of(first)[:kept])] + second))


def log_of_three_segments(config: LogConfig) -> tuple[Runtime, SimDisk, PartitionLog]:
    """Five batches of one record in each, and the first one of the second segment begins a leader epoch."""
    runtime, disk = make_runtime()
    log = open_log(runtime, config, has_gaps=False)
    for epoch in (4, 5, 5):
        for _ in range(5):
            append(log, timestamp=NOW_MS, epoch=epoch)
        if epoch == 4 or log.log_end_offset == 10:
            log.roll()
    log.flush()
    return runtime, disk, log


@pytest.mark.parametrize("kept", [0, 1, 3, 5])
def test_recovery_keeps_what_follows_a_segment_whose_last_offsets_were_compacted_away(kept: int) -> None:
    runtime, disk, log = log_of_three_segments(COMPACTED)
    end, epochs = log.log_end_offset, log.epoch_cache.entries
    mending = SegmentMending(log, disk, 0)
    mending.add(compacted_away(log, kept))
    assert mending.next_offset == mending.end_offset == 5
    run_at_once(mending.placing())
    log.flush()
    content = read_all(log)
    assert [header.next_offset for header in headers_of(content)][:kept] == list(range(1, kept + 1))
    mended = headers_of(bytes(content_of(log.segments[0])))
    assert {header.partition_leader_epoch for header in mended} == {4}, "also of what stands for the last offsets"
    disk.crash(power_loss=False)  # the checkpoint of the recovery point is still from before
    again = open_log(runtime, COMPACTED, recovery_point=0)
    assert again.log_end_offset == end and read_all(again) == content
    if kept:
        assert again.epoch_cache.entries == epochs


def test_a_replica_without_the_last_offsets_cannot_mend_a_log_that_has_no_gaps() -> None:
    _, disk, log = log_of_three_segments(CONFIG)
    mending = SegmentMending(log, disk, 0)
    with pytest.raises(MendingGivenUpError):
        mending.add(compacted_away(log, 3))
    mending.end()
    assert len(read_all(log)) == log.size_bytes


def test_a_replica_that_lacks_offsets_within_a_segment_cannot_mend_a_log_that_has_no_gaps() -> None:
    """Recovery would take the gap for lost records, and cut off what follows it."""
    _, disk, log = log_of_three_segments(CONFIG)
    content = bytes(content_of(log.segments[0]))
    size_bytes = headers_of(content)[0].size_bytes
    mending = SegmentMending(log, disk, 0)
    with pytest.raises(MendingGivenUpError, match="a batch at 3, 2 is needed"):
        mending.add(memoryview(bytearray(content[: 2 * size_bytes] + content[3 * size_bytes :])))
    mending.end()


def test_damaged_batches_of_another_replica_do_not_mend_a_log() -> None:
    _, disk, log = log_of_three_segments(CONFIG)
    content, other = read_all(log), bytearray(content_of(log.segments[0]))
    other[-1] ^= 1
    mending = SegmentMending(log, disk, 0)
    with pytest.raises(CorruptBatchError, match="offset 4 is damaged"):
        mending.add(memoryview(other))
    mending.end()
    assert read_all(log) == content


@pytest.mark.parametrize("at", [0, 1])
def test_a_compaction_that_meets_the_damage_does_not_take_the_file_of_the_mending(at: int) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACT)
    Writer(log, 1).fill(4)
    segment, end = log.segments[at], log.log_end_offset
    good = content_of(segment)
    disk.flip_bit(segment.file.path, segment.size_bytes - 3, 1)
    mending = SegmentMending(log, disk, segment.base_offset)
    mending.add(good)
    with pytest.raises(CorruptBatchError):
        run_at_once(clean(log, disk, plan_of(log, start=log.segments[2].base_offset)))
    run_at_once(mending.placing())
    mending.end()
    content = read_all(log)
    assert bytes(good) in content
    log.close(clean=False)
    disk.crash(power_loss=False)
    again = open_log(runtime, COMPACT, recovery_point=end)
    assert read_all(again) == content


def test_one_segment_of_a_log_is_mended_at_a_time() -> None:
    _, disk, log = log_of_three_segments(CONFIG)
    mending = SegmentMending(log, disk, 0)
    with pytest.raises(MendingGivenUpError):
        SegmentMending(log, disk, 0)
    mending.end()
    SegmentMending(log, disk, 0).end()


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_a_segment_stays_when_the_file_of_its_replacement_is_not_as_it_was_written(damage: str) -> None:
    runtime, disk, log = log_of_three_segments(CONFIG)
    content, end = read_all(log), log.log_end_offset
    mending = SegmentMending(log, disk, 0)
    mending.add(content_of(log.segments[0]))
    (path,) = [f"{log.directory}/{name}" for name in disk.listdir(log.directory) if name.endswith(".log.mended")]
    if damage == "removed":
        disk.remove(path)
    else:
        disk.open(path).truncate(0)
    with pytest.raises(StorageError):
        run_at_once(mending.placing())
    mending.end()
    assert not log.is_failed and read_all(log) == content
    disk.crash(power_loss=False)
    assert read_all(open_log(runtime, CONFIG, recovery_point=end)) == content
    assert not [name for name in disk.listdir(log.directory) if name.endswith((".mended", ".swap"))]


def test_the_active_segment_is_rolled_before_it_is_mended_and_no_other_one_is() -> None:
    """Appends go on meanwhile, and they need a file that nobody replaces."""
    _, disk, log = log_of_three_segments(CONFIG)
    content, active = read_all(log), log.segments[-1]
    good = content_of(active)
    mending = SegmentMending(log, disk, 5)
    mending.end()
    assert log.segments[-1] is active
    mending = SegmentMending(log, disk, active.base_offset)
    assert log.segments[-1].base_offset == log.log_end_offset
    append(log, epoch=5)
    mending.add(good)
    run_at_once(mending.placing())
    mending.end()
    assert active not in log.segments
    assert read_all(log).startswith(content) and log.log_end_offset == 16


def test_batches_come_in_pieces_the_last_batch_of_which_is_not_whole() -> None:
    """So are answers of Fetch: they end where the limit of their bytes is."""
    _, disk, log = log_of_three_segments(CONFIG)
    content, good = read_all(log), content_of(log.segments[0])
    size_bytes = headers_of(bytes(good))[0].size_bytes
    mending = SegmentMending(log, disk, 0)
    mending.add(good[: 2 * size_bytes + 70])
    assert mending.next_offset == 2
    mending.add(good[2 * size_bytes : 3 * size_bytes - 1])
    assert mending.next_offset == 2, "nothing in it was whole"
    mending.add(good[size_bytes:])
    assert mending.next_offset == mending.end_offset == 5
    run_at_once(mending.placing())
    assert read_all(log) == content


def test_a_mended_segment_has_the_indexes_of_a_rolled_one() -> None:
    """Else each start would read all of the segment to make them again."""
    config = LogConfig(index_interval_bytes=100)
    _, disk, log = log_of_three_segments(config)
    paths = [f"{log.directory}/{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    before = [disk.read_bytes(path) for path in paths]
    assert all(before)
    mending = SegmentMending(log, disk, 0)
    mending.add(content_of(log.segments[0]))
    run_at_once(mending.placing())
    log.flush()
    disk.crash(power_loss=True)
    assert [disk.read_bytes(path) for path in paths] == before


def test_batches_of_another_leader_epoch_do_not_mend_a_log() -> None:
    """The other replica has another history at these offsets."""
    _, disk, log = log_of_three_segments(CONFIG)
    content = read_all(log)
    other = memoryview(bytearray(content_of(log.segments[0])))
    other[12:16] = (3).to_bytes(4, "big")  # no CRC covers it
    mending = SegmentMending(log, disk, 0)
    with pytest.raises(MendingGivenUpError, match="another epoch at 0"):
        mending.add(other)
    assert mending.next_offset == 0
    mending.end()
    assert read_all(log) == content


def test_offsets_that_were_compacted_away_take_the_timestamp_of_the_batch_before_them() -> None:
    """A later one would keep the segment from the retention by time."""
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACTED, has_gaps=False)
    for number in range(5):
        append(log, timestamp=1000 + number)
    log.roll()
    append(log, timestamp=9000)
    log.flush()
    mending = SegmentMending(log, disk, 0)
    mending.add(compacted_away(log, 3))
    run_at_once(mending.placing())
    assert [header.max_timestamp for header in headers_of(read_all(log))] == [1000, 1001, 1002, 1002, 9000]
    replay = log.replay()
    while not replay.is_at_end:
        assert replay.read(), "a batch without records has a header alone, and is sound"


def test_a_mended_segment_has_the_aborted_transactions_that_end_in_it_and_no_others() -> None:
    """A transaction belongs to the segment of its marker, which may be the first batch of that."""
    runtime, disk = make_runtime()
    log = open_log(runtime, CONFIG, has_gaps=False)
    for sequence in range(2):
        data = batch(producer_id=8, producer_epoch=0, base_sequence=sequence, is_transactional=True)
        log.append_as_leader(data, 0, NOW_MS, guard=VERIFICATION_OFF)
        log.roll()
        log.append_as_leader(marker(8, NOW_MS), 0, NOW_MS, internal=True)
    log.roll()
    log.flush()
    before = [list(segment.transaction_index.entries) for segment in log.segments]
    assert [[one.last_offset for one in entries] for entries in before] == [[], [1], [3], []]
    for segment in log.segments[:3]:
        mending = SegmentMending(log, disk, segment.base_offset)
        mending.add(content_of(segment))
        run_at_once(mending.placing())
        mending.end()
    assert [segment.transaction_index.entries for segment in log.segments] == before


def test_a_batch_that_reaches_into_the_next_segment_does_not_mend_a_log() -> None:
    """Its last records would be in the log twice."""
    _, disk, log = log_of_three_segments(CONFIG)
    mending = SegmentMending(log, disk, 0)
    four = content_of(log.segments[0])[: 4 * headers_of(read_all(log))[0].size_bytes]
    beyond = batch(2, base_offset=4, leader_epoch=4)
    with pytest.raises(MendingGivenUpError, match="a batch at 4"):
        mending.add(memoryview(bytearray(bytes(four) + bytes(beyond))))
    mending.end()


@pytest.mark.parametrize("what", ["closed", "failed", "truncated", "deleted"])
def test_a_log_that_changes_during_an_fsync_of_the_new_segment_is_not_mended(what: str) -> None:
    """What was fetched may not be the content of that segment any more."""
    _, disk, log = log_of_three_segments(CONFIG)
    mending = SegmentMending(log, disk, 0)
    mending.add(content_of(log.segments[0]))
    placing = mending.placing()
    assert next(placing).fsyncs
    match what:
        case "closed":
            log.close(clean=False)
        case "failed":
            disk.fail_fsync(log.directory)
            append(log, epoch=5)
            with pytest.raises(StorageError):
                log.flush()
            disk.fail_fsync(None)
        case "truncated":
            log.truncate_to(12)
        case _:
            log.advance_start(5)
    with pytest.raises(MendingGivenUpError, match="has changed"):
        next(placing)
    mending.end()
    assert [segment.base_offset for segment in log.segments][-2:] == [5, 10]


def test_a_mended_segment_waits_until_other_files_have_their_names() -> None:
    _, disk, log = log_of_three_segments(CONFIG)
    content, second = read_all(log), log.segments[1]
    mending = SegmentMending(log, disk, 0)
    mending.add(content_of(log.segments[0]))
    other = Segment.create(disk, log.directory, second.base_offset, ".cleaned")
    data = content_of(second)
    other.append(data, headers_of(bytes(data)), 100)
    other.finish()
    change = log.replace_segments([second], other)
    placing = mending.placing()
    assert next(placing).fsyncs
    for _ in range(3):
        assert next(placing) == PLAIN_STEP, "the loop does something else meanwhile"
    change.finish()
    run_at_once(placing)
    mending.end()
    assert read_all(log) == content and not log.is_changing_names
    assert all(disk.exists(f"{log.directory}/{base:020d}.log") for base in (0, 5, 10))


def test_a_mending_that_is_given_up_leaves_no_file_and_takes_none_of_its_successor() -> None:
    """A process that is killed may clean up after its successor has begun to mend the same segment."""
    runtime, disk, log = log_of_three_segments(CONFIG)
    content, good = read_all(log), bytearray(content_of(log.segments[0]))
    names = disk.listdir(log.directory)
    mending = SegmentMending(log, disk, 0)
    mending.add(memoryview(good))
    mending.end()
    assert disk.listdir(log.directory) == names
    mending = SegmentMending(log, disk, 0)
    disk.crash(power_loss=False)
    again = open_log(runtime, CONFIG, recovery_point=15, has_gaps=False)
    successor = SegmentMending(again, disk, 0)
    successor.add(memoryview(good))
    mending.end()
    run_at_once(successor.placing())
    assert read_all(again) == content


def test_a_mending_whose_directory_is_gone_keeps_no_file_open() -> None:
    _, disk, log = log_of_three_segments(CONFIG)
    mending = SegmentMending(log, disk, 0)
    mending.add(content_of(log.segments[0]))
    for segment in log.segments:
        segment.close()
    gc.collect()
    before, _ = disk.open_files.count()
    disk.fail_dir(log.directory)
    mending.end()
    gc.collect()
    assert disk.open_files.count()[0] < before
