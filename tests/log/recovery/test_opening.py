"""What a log has after it was opened, and what an opening leaves on the disk."""

from __future__ import annotations

import errno
from itertools import groupby
from typing import Any
from uuid import UUID

import pytest
from support.log.logs import DIRECTORY, NOW_MS, SMALL, append, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.disk.sim_file import SimFile
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.recovery import log_recovery, segment_recovery
from raftwerk.log.recovery.log_recovery import (
    LoadedLog,
    complete_swaps,
    discard_never_durable,
    load,
    load_producers,
    was_never_durable,
)
from raftwerk.log.state.checkpoints import read_topic_id, render_topic_id, write_topic_id
from raftwerk.log.state.producer_snapshots import ProducerSnapshots
from raftwerk.log.state.producer_state import ProducerStateManager
from raftwerk.runtime.incremental_work import run_at_once
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import encode_batch

TOPIC_ID = UUID(int=4711)
METADATA = f"{DIRECTORY}/partition.metadata"


def written(batches: int = 24, records: int = 2, seed: int = 1) -> tuple[Runtime, SimDisk, PartitionLog]:
    """A log of several segments with everything durable, whose batches are of one producer each."""
    runtime, disk = make_runtime(seed)
    log = open_log(runtime)
    for number in range(batches):
        append(log, records, epoch=number // 8, producer_id=number, producer_epoch=0, base_sequence=0)
    log.flush()
    return runtime, disk, log


def loaded(disk: SimDisk, **options: Any) -> LoadedLog:
    defaults: dict[str, Any] = {"recovery_point": 0, "start_offset": 0, "clean_shutdown": False}
    result: LoadedLog = run_at_once(load(disk, DIRECTORY, SMALL, **{**defaults, **options}))
    return result


def log_files(disk: SimDisk, suffix: str = ".log") -> list[int]:
    return sorted(int(name.partition(".")[0]) for name in disk.listdir(DIRECTORY) if name.endswith(suffix))


def test_a_log_that_is_not_there_is_made_empty_at_its_start() -> None:
    _, disk = make_runtime()
    found = loaded(disk, start_offset=30)
    assert [(one.base_offset, one.next_offset, one.size_bytes) for one in found.segments] == [(30, 30, 0)]
    assert (found.epochs, found.durable_offset, found.is_settled, found.topic_id) == ([], 30, False, None)
    assert found.snapshots.offsets == ()
    assert log_files(disk) == [30]


@pytest.mark.parametrize(
    ("clean", "recovery_point", "durable_offset"), [(True, 0, 48), (False, 20, 20), (False, 99, 48)]
)
def test_what_was_fsynced_is_durable_and_after_a_clean_stop_everything_is(
    clean: bool, recovery_point: int, durable_offset: int
) -> None:
    _, disk, log = written()
    log.set_topic_id(TOPIC_ID)
    log.close()
    found = loaded(disk, clean_shutdown=clean, recovery_point=recovery_point)
    assert found.segments[-1].next_offset == 48
    assert found.durable_offset == durable_offset
    assert found.is_settled is clean, "else files were made again, and need an fsync"
    assert found.topic_id == TOPIC_ID
    assert [(entry.epoch, entry.start_offset) for entry in found.epochs] == [(0, 0), (1, 16), (2, 32)]


def test_an_empty_log_is_not_settled_since_its_files_may_not_be_durable() -> None:
    runtime, disk = make_runtime()
    open_log(runtime).close()
    assert not loaded(disk, clean_shutdown=True).is_settled
    log = open_log(runtime)
    append(log)
    log.flush()
    log.close()
    assert loaded(disk, clean_shutdown=True).is_settled, "its first record was made durable with the names of its files"


@pytest.mark.parametrize("clean", [True, False])
def test_leader_epochs_that_are_lost_are_read_from_the_batches(clean: bool) -> None:
    _, disk, log = written()
    log.close()
    disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    found = loaded(disk, clean_shutdown=clean, recovery_point=48)
    assert [(entry.epoch, entry.start_offset) for entry in found.epochs] == [(0, 0), (1, 16), (2, 32)]


def test_leader_epochs_that_are_read_from_damaged_batches_begin_where_these_can_be() -> None:
    """An epoch that begins before the one before it would let a follower truncate committed records."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for epoch in (0, 0, 0, 1, 2):
        append(log, epoch=epoch)
    log.close()
    disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    disk.open(f"{DIRECTORY}/{0:020d}.log").pwrite(3 * (log.size_bytes // 5), (1).to_bytes(8, "big"))
    assert loaded(disk, clean_shutdown=True, recovery_point=5).epochs == [(0, 0)]


@pytest.mark.parametrize("start", [0, 10])
def test_a_log_without_a_record_has_no_leader_epoch(start: int) -> None:
    """The checkpoint is that of the log in whose place it is."""
    runtime, disk = make_runtime()
    open_log(runtime, log_start_offset=start).close()
    disk.write_atomic(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n6 0\n7 10\n")
    assert loaded(disk, clean_shutdown=True).epochs == []
    assert loaded(disk).epochs == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_leader_epoch_that_begins_where_the_log_ends_is_none(clean: bool) -> None:
    """Its first batch is gone, and the next one may be of another epoch."""
    _, disk, log = written()
    log.close()
    disk.write_atomic(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n4\n0 0\n1 16\n2 32\n3 48\n")
    found = loaded(disk, clean_shutdown=clean, recovery_point=48)
    assert [(entry.epoch, entry.start_offset) for entry in found.epochs] == [(0, 0), (1, 16), (2, 32)]


# ------------------------------------------------------------------ what is removed


def test_what_an_opening_removes_does_not_come_back_after_a_loss_of_power() -> None:
    """An index of a segment that is gone, or a segment behind a damaged one, would look like a part of the log."""
    _, disk, log = written(60)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2
    log.close()
    for number in range(100, 110):
        for suffix in (".index", ".timeindex", ".log.cleaned", ".log.deleted"):
            disk.write_atomic(f"{DIRECTORY}/{number:020d}{suffix}", b"left over")
    disk.fsync_dir(DIRECTORY)
    loaded(disk, clean_shutdown=True)
    disk.crash(power_loss=True)
    assert [name for name in disk.listdir(DIRECTORY) if name.startswith("0000000000000000010")] == []
    disk.flip_bit(f"{DIRECTORY}/{bases[0]:020d}.log", 100, 3)
    assert len(loaded(disk).segments) == 1
    disk.crash(power_loss=True)
    assert log_files(disk) == bases[:1]
    assert log_files(disk, ".index") == bases[:1]


@pytest.mark.parametrize("seed", range(8))
def test_segments_alone_that_an_opening_removes_do_not_come_back(seed: int) -> None:
    """A segment that comes back behind a log that has grown again would be taken for its end."""
    _, disk, log = written(60, seed=seed)
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    for offset in log_files(disk, ".snapshot"):
        disk.remove(f"{DIRECTORY}/{offset:020d}.snapshot")
    disk.fsync_dir(DIRECTORY)
    disk.flip_bit(f"{DIRECTORY}/{bases[1]:020d}.log", 100, 3)
    loaded(disk)
    disk.crash(power_loss=True)
    assert log_files(disk) == bases[:2]


@pytest.mark.parametrize("clean", [True, False])
def test_an_opening_that_removes_nothing_changes_no_name(clean: bool) -> None:
    """A start opens thousands of logs, and an fsync of each directory would take minutes."""
    _, disk, log = written(60)
    log.close()
    done: list[str] = []
    disk.on_blocking = lambda operation, path: done.append(operation)
    loaded(disk, clean_shutdown=clean, recovery_point=120)
    assert done == []


@pytest.mark.parametrize("seed", range(8))
def test_snapshots_of_producers_beyond_the_durable_end_are_removed_for_good(seed: int) -> None:
    """They may speak of batches that are not in the log any more."""
    _, disk, log = written(60, seed=seed)
    log.close()
    before = log_files(disk, ".snapshot")
    assert len(before) > 2
    found = loaded(disk, recovery_point=before[0])
    kept = [offset for offset in before if offset <= before[0]]
    assert list(found.snapshots.offsets) == kept
    disk.crash(power_loss=True)
    assert log_files(disk, ".snapshot") == kept


def test_snapshots_of_producers_within_segments_are_removed_but_for_the_newest() -> None:
    """They are those of former checkpoints, and each start would find one more."""
    _, disk, log = written(60)
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    for offset in (bases[1] + 1, bases[-1] + 1):
        disk.write_atomic(f"{DIRECTORY}/{offset:020d}.snapshot", disk.read_bytes(f"{DIRECTORY}/{120:020d}.snapshot"))
    disk.remove(f"{DIRECTORY}/{120:020d}.snapshot")
    found = loaded(disk, clean_shutdown=True)
    assert log_files(disk, ".snapshot") == list(found.snapshots.offsets) == [*bases[1:], bases[-1] + 1]


@pytest.mark.parametrize("name", [f"{9:020d}.log.cleaned", f"{9:020d}.index", f"{9:020d}.txnindex"])
def test_each_removal_of_an_opening_is_durable(name: str) -> None:
    _, disk, log = written(60)
    log.close()
    disk.write_atomic(f"{DIRECTORY}/{name}", b"left over")
    disk.fsync_dir(DIRECTORY)
    done: list[str] = []
    disk.on_blocking = lambda operation, path: done.append(operation)
    loaded(disk, clean_shutdown=True)
    assert done == ["remove", "fsync_dir"]


def test_files_whose_names_are_not_those_of_segments_are_left_alone() -> None:
    """Somebody has put them there."""
    _, disk, log = written(60)
    log.close()
    names = ["notes.log", "5.log", "x" * 20 + ".index", f"{5:020d}.txt", "notes.txt", f"{5:021d}.log"]
    for name in names:
        disk.write_atomic(f"{DIRECTORY}/{name}", b"notes")
    before = disk.listdir(DIRECTORY)
    for clean in (True, False):
        assert loaded(disk, clean_shutdown=clean, recovery_point=120).segments[-1].next_offset == 120
        assert disk.listdir(DIRECTORY) == before


@pytest.mark.parametrize(("options", "segments", "end"), [({"keeps_gaps": True}, 3, 9), ({}, 1, 2)])
def test_a_gap_between_segments_is_kept_only_where_compaction_may_have_made_it(
    options: dict[str, bool], segments: int, end: int
) -> None:
    """Apache Kafka's compaction leaves such gaps; in our own log one means that records are lost."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(3):
        for _ in range(3):
            append(log)
        log.roll()
    log.close()
    size_bytes = log.segments[0].size_bytes // 3
    disk.open(f"{DIRECTORY}/{0:020d}.log").truncate(2 * size_bytes)
    found = loaded(disk, **options)
    with_records = [one for one in found.segments if one.size_bytes]
    assert len(with_records) == segments
    assert found.segments[-1].next_offset == end


def test_a_batch_too_far_from_the_first_one_of_its_segment_is_damage(caplog: pytest.LogCaptureFixture) -> None:
    """The indexes have four bytes for the distance."""
    runtime, disk = make_runtime()
    open_log(runtime).close()
    far = 2**31
    batches = [bytes(encode_batch([(b"k", b"v", (), 1_000)], base_offset=offset)) for offset in (0, far - 1, far)]
    disk.write_atomic(f"{DIRECTORY}/{0:020d}.log", b"".join(batches))
    found = loaded(disk)
    assert found.segments[0].next_offset == far
    assert found.segments[0].size_bytes == sum(len(one) for one in batches[:2])
    assert f"offset {far} is too far" in caplog.text


def test_a_log_that_begins_after_the_trusted_part_of_a_segment_is_checked_after_that_part_only() -> None:
    """The start of the log has moved on, so that no leader epoch is known of the batches before it."""
    config = LogConfig(index_interval_bytes=100)
    runtime, disk = make_runtime()
    log = open_log(runtime, config)
    for _ in range(12):
        append(log)
    log.close()
    log = open_log(runtime, config, recovery_point=12, clean_shutdown=True)
    trusted_bytes = log.size_bytes
    for _ in range(8):
        append(log)
    log.segments[-1].save_indexes()  # what they say of later batches may be wrong
    log.close(clean=False)
    disk.write_atomic(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n1\n0 14\n")
    positions = list(log.segments[-1].offset_index.positions)
    opening = load(disk, DIRECTORY, config, recovery_point=12, start_offset=14, clean_shutdown=False)
    checked_bytes = 0
    while True:
        try:
            checked_bytes += next(opening).done_bytes
        except StopIteration as end:
            found = end.value
            break
    assert checked_bytes == log.size_bytes - trusted_bytes
    assert list(found.segments[-1].offset_index.positions) == positions, "those before are kept, the others made again"


def test_the_greatest_timestamp_is_known_of_what_was_not_checked_again() -> None:
    """Retention by time would delete the segment too early, if it went by the records after that part."""
    config = LogConfig(index_interval_bytes=100)
    runtime, _ = make_runtime()
    log = open_log(runtime, config)
    for number in range(12):
        append(log, timestamp=9000 if number == 1 else 1000)
    log.close()
    log = open_log(runtime, config, recovery_point=12, clean_shutdown=True)
    for _ in range(8):
        append(log, timestamp=2000)
    log.close(clean=False)
    again = open_log(runtime, config, recovery_point=12)
    assert again.segments[0].largest_timestamp() == 9000
    found = again.offset_for_timestamp(3000)
    assert found is not None and (found.timestamp, found.offset) == (9000, 1)


def test_each_step_of_a_check_says_which_bytes_of_the_file_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read ahead in a thread, so that the loop does not wait for the device."""
    _, disk, log = written(60)
    sizes = {segment.file.path: segment.size_bytes for segment in log.segments}
    log.close()
    monkeypatch.setattr(segment_recovery, "STEP_BYTES", 600)
    checked: dict[str, int] = {}
    path = ""
    for step in load(disk, DIRECTORY, SMALL, recovery_point=0, start_offset=0, clean_shutdown=False):
        if path:
            checked[path] += step.done_bytes
        if step.reads is not None:
            path, position, length = step.reads.file.path, step.reads.position, step.reads.length
            assert position == checked.setdefault(path, 0)
            assert length == min(600, sizes[path] - position)
    assert checked == sizes


def test_a_check_gives_way_after_some_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches take more time for each byte than large ones."""
    monkeypatch.setattr(segment_recovery, "STEP_BATCHES", 3)
    _, disk, log = written(60)
    size_bytes = headers_of(read_all(log))[0].size_bytes
    log.close()
    steps = list(load(disk, DIRECTORY, SMALL, recovery_point=0, start_offset=0, clean_shutdown=False))
    done = [step.done_bytes // size_bytes for step in steps]
    assert sum(done) == 60 and max(done) == 3
    assert done.count(3) >= 60 // 3 - len(log.segments)


# ------------------------------------------------------------------ interrupted replacements of segments


@pytest.mark.parametrize("seed", range(6))
def test_an_interrupted_replacement_removes_what_the_new_segment_stands_for(seed: int) -> None:
    """The records of the old segments are in the new one, and the ones that compaction dropped must not come back."""
    runtime, disk, log = written(60, seed=seed)
    bases, end = [segment.base_offset for segment in log.segments], log.log_end_offset
    content = {base: disk.read_bytes(f"{DIRECTORY}/{base:020d}.log") for base in bases}
    log.close()
    disk.write_atomic(f"{DIRECTORY}/{0:020d}.log.swap", b"".join(content[base] for base in bases[:3]))
    disk.fsync_dir(DIRECTORY)
    done: list[tuple[str, str]] = []
    disk.on_blocking = lambda operation, path: done.append((operation, path))
    complete_swaps(disk, DIRECTORY)
    assert [one for one, _ in groupby(operation for operation, _ in done)] == [
        "remove",
        "fsync_dir",
        "rename",
        "fsync_dir",
    ], "what is left of an old segment after a crash must not be taken for a part of the new one"
    removed = [path.endswith(".log") for operation, path in done if operation == "remove"]
    assert removed == sorted(removed), "batches go last: while they are there, their indexes are not those of others"
    disk.crash(power_loss=True)
    assert log_files(disk) == [0, *bases[3:]]
    assert log_files(disk, ".index") == bases[3:], (
        "an index of an old segment would lead to wrong places in the new one"
    )
    again = open_log(runtime)
    assert again.log_end_offset == end and read_all(again) == b"".join(content.values())


def test_a_replacement_whose_first_batch_is_damaged_has_no_index_of_the_old_segment() -> None:
    """It does not say where it ends. It was complete, so the old segment may be gone in part already."""
    _, disk, log = written(60)
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    disk.write_atomic(f"{DIRECTORY}/{0:020d}.log.swap", b"damaged" * 40)
    complete_swaps(disk, DIRECTORY)
    assert log_files(disk) == bases
    assert log_files(disk, ".index") == bases[1:]
    assert disk.read_bytes(f"{DIRECTORY}/{0:020d}.log") == b"damaged" * 40


def test_a_replacement_whose_first_batch_is_damaged_takes_no_other_segment_away() -> None:
    """Not even one that begins a single offset later."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(3):
        append(log)
        log.roll()
    log.close()
    disk.write_atomic(f"{DIRECTORY}/{0:020d}.log.swap", b"damaged" * 40)
    complete_swaps(disk, DIRECTORY)
    assert log_files(disk) == [0, 1, 2, 3]
    assert log_files(disk, ".index") == [1, 2]


def test_a_replacement_goes_on_where_a_crash_has_left_it_after_the_first_old_segment() -> None:
    """The second one, which begins a single offset later, is still there, and its records are in the new segment."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(3):
        append(log)
        log.roll()
    log.close()
    content = [disk.read_bytes(f"{DIRECTORY}/{base:020d}.log") for base in range(3)]
    disk.write_atomic(f"{DIRECTORY}/{0:020d}.log.swap", content[0] + content[1])
    disk.remove(f"{DIRECTORY}/{0:020d}.log")
    complete_swaps(disk, DIRECTORY)
    assert log_files(disk) == [0, 2, 3]
    assert log_files(disk, ".index") == [0, 2], "without the old batches, the index is that of the new segment"
    assert read_all(open_log(runtime)) == b"".join(content)


# ------------------------------------------------------------------ topic ids


@pytest.mark.parametrize(
    ("content", "is_lost"),
    [
        (None, True),
        (b"", True),
        (-2, True),
        (b"\0", True),
        (0, False),
        (b"version: 0\ntopic_id: " + b"?" * 22, False),
    ],
)
def test_a_log_whose_topic_id_was_never_written_whole_was_never_durable(
    content: bytes | int | None, is_lost: bool
) -> None:
    """It is the first file that is made durable. One that is damaged is whole all the same."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    log.set_topic_id(TOPIC_ID)
    whole = disk.read_bytes(METADATA)
    if content is None:
        disk.remove(METADATA)
    elif isinstance(content, int):
        disk.write_atomic(METADATA, whole[: len(whole) + content] if content else whole)
    else:
        disk.write_atomic(METADATA, content * len(whole) if content == b"\0" else content)
    assert was_never_durable(disk, DIRECTORY) is is_lost


@pytest.mark.parametrize("durably", [True, False])
def test_a_topic_id_replaces_what_is_in_its_file(durably: bool) -> None:
    """Apache Kafka would refuse a file with two of each line."""
    _, disk = make_runtime()
    disk.makedirs(DIRECTORY)
    disk.write_atomic(METADATA, b"version: 0\ntopic_id: " + b"?" * 40)
    write_topic_id(disk, DIRECTORY, TOPIC_ID, durably=durably)
    assert disk.read_bytes(METADATA) == render_topic_id(TOPIC_ID)
    assert read_topic_id(disk, DIRECTORY) == TOPIC_ID


def test_a_log_that_was_never_durable_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    runtime, disk = make_runtime()
    discard_never_durable(disk, DIRECTORY)
    assert not disk.exists(DIRECTORY) and not caplog.messages
    append(open_log(runtime))
    discard_never_durable(disk, DIRECTORY)
    assert not disk.exists(DIRECTORY)
    assert "was never made durable" in caplog.text


# ------------------------------------------------------------------ producers


def test_producers_are_read_in_steps_and_only_those_of_the_batches_that_count(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A start may have to read millions of batches, and the broker answers requests meanwhile."""
    monkeypatch.setattr(log_recovery, "STEP_BATCHES", 3)
    _, disk, log = written()
    per_segment = [sum(one.base_offset <= 2 * number < one.next_offset for number in range(24)) for one in log.segments]
    producers = ProducerStateManager()
    loading = load_producers(producers, ProducerSnapshots(disk, DIRECTORY, ()), list(log.segments), 40)
    next(loading)
    assert [number for number in range(24) if producers.get(number) is not None] == [0, 1]
    assert len(list(loading)) == sum(batches // 3 for batches in per_segment) - 1
    assert [number for number in range(24) if producers.get(number) is not None] == list(range(20))
    assert not caplog.messages, "nothing is said of a log that is sound"


def test_producers_of_a_snapshot_are_not_read_again() -> None:
    """A second time, their batches would be out of order."""
    _, disk, log = written()
    offset = log.segments[1].base_offset
    snapshots = ProducerSnapshots(disk, DIRECTORY, [one for one in log_files(disk, ".snapshot") if one <= offset])
    assert snapshots.latest_offset == offset
    producers = ProducerStateManager()
    run_at_once(load_producers(producers, snapshots, list(log.segments), 48))
    for number in range(24):
        entry = producers.get(number)
        assert entry is not None and [one.last_offset for one in entry.batches] == [2 * number + 1]


def test_a_log_that_begins_within_a_batch_is_opened_again_where_it_began() -> None:
    runtime, disk, log = written(4, records=10)
    log.raise_start(15)
    log.close()
    again = open_log(runtime, log_start_offset=15, clean_shutdown=True)
    assert (again.log_start_offset, again.log_end_offset) == (15, 40)
    assert again.append_as_leader(batch(), 5, NOW_MS).first_offset == 40
    assert disk.exists(DIRECTORY)


def test_producers_of_segments_that_were_deleted_after_a_recovery_are_known_after_the_next_one() -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime)
    for number in range(12):
        append(log, 2, producer_id=7, producer_epoch=0, base_sequence=2 * number)
        log.roll()
        if number == 4:
            log.flush()
    append(log, 2, producer_id=8, producer_epoch=0, base_sequence=0)
    log.close(clean=False)
    recovered = open_log(runtime, recovery_point=10)
    start = recovered.segments[-1].base_offset
    recovered.raise_start(start)
    assert recovered.delete_expired(NOW_MS, start) == 12
    recovered.close(clean=False)
    again = open_log(runtime, recovery_point=10, log_start_offset=start)
    assert [(one, entry.last_sequence) for one, entry in again.producers.items()] == [(7, 23), (8, 1)]


@pytest.mark.parametrize("recovery_point", [0, 20])
def test_recovery_writes_the_snapshots_again_of_the_segments_that_it_reads_from_their_first_batch(
    recovery_point: int,
) -> None:
    """None of the first one: before it there is nobody. One that is there is trusted, with all before it."""
    _, disk, log = written(60)
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    found = loaded(disk, recovery_point=recovery_point)
    kept = [offset for offset in bases[1:] if offset <= recovery_point]
    assert list(found.snapshots.offsets) == kept
    producers = ProducerStateManager()
    run_at_once(load_producers(producers, found.snapshots, found.segments, 120))
    assert list(found.snapshots.offsets) == bases[1:]
    for base in bases[1:]:
        known = ProducerStateManager()
        assert found.snapshots.load_latest(base, known) == base
        assert len(list(known.items())) == base // 2, "who wrote before it"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_keeps_no_log_from_opening_for_a_snapshot_of_producers_but_a_broken_one_does(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, disk, log = written(60)
    log.close()
    found = loaded(disk)

    opens = disk.open

    def refuse_snapshots(path: str, *, create: bool = False) -> SimFile:
        if create and path.endswith(".snapshot"):
            raise OSError(code, "refused", path)
        return opens(path, create=create)

    monkeypatch.setattr(disk, "open", refuse_snapshots)
    producers = ProducerStateManager()
    work = load_producers(producers, found.snapshots, found.segments, 120)
    if code == errno.EIO:
        with pytest.raises(OSError, match="refused"):
            run_at_once(work)
    else:
        run_at_once(work)
        assert len(list(producers.items())) == 60
        assert list(found.snapshots.offsets) == []
