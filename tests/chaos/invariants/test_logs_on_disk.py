"""What the simulator reads of logs on a node's disk: what recovery must keep, and whether missing offsets are noted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from support.log.logs import DIRECTORY, append, batch, make_runtime, open_log

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.invariants.derived.noted_gaps import NotedGapsChecker
from raftwerk.chaos.sim.invariants.derived.recovered_logs import RecoveryChecker, kept_end
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.checkpoints import CLEANER_OFFSET_FILE, render_offsets
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.types import TopicPartition

KEY = TopicPartition("t", 0)
COMPACTED = LogConfig(cleanup_policy=("compact",))


def directories_of(log: PartitionLog, path: str = "/data") -> Any:
    return SimpleNamespace(directories=[SimpleNamespace(path=path, logs={KEY: log}, future_logs={})])


def log_of_segments(runtime: Runtime, **options: Any) -> PartitionLog:
    log = open_log(runtime, **options)
    for _ in range(3):
        append(log, 2)
        append(log, 1)
        log.roll()
    return log


def with_offset(data: memoryview, offset: int) -> memoryview:
    """The batch at an offset, in leader epoch 0; no checksum covers these two."""
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = bytes(4)
    return data


def test_a_process_that_ends_leaves_the_whole_log_and_a_loss_of_power_what_was_synced() -> None:
    runtime, disk = make_runtime()
    log = log_of_segments(runtime)
    log.set_topic_id(UUID(int=1))
    append(log, 4)
    log.flush()
    append(log, 5)
    assert (kept_end(disk, log, power_loss=False), kept_end(disk, log, power_loss=True)) == (18, 13)
    file = disk.open(f"{DIRECTORY}/{9:020}.log")
    file.truncate(file.size() - 1)
    assert kept_end(disk, log, power_loss=False) == 13, "the last batch is not whole"
    file.truncate(10)
    assert kept_end(disk, log, power_loss=True) == 9, "the synced batch may have been cut"
    assert disk.lasting_bytes(f"{DIRECTORY}/none.log") == b""
    assert disk.lasting_bytes(f"{DIRECTORY}/{9:020}.log") == disk.read_bytes(f"{DIRECTORY}/{9:020}.log")


def test_a_log_ends_where_a_segment_is_missing_or_an_offset_if_none_can_be() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, has_gaps=False)
    append(log, 2)
    log.append_as_follower(with_offset(batch(1), 5), may_skip=True)
    assert kept_end(disk, log, power_loss=False) == 6
    log.may_have_gaps = False
    assert kept_end(disk, log, power_loss=False) == 2
    disk = make_runtime()[1]
    other = log_of_segments(make_runtime()[0])
    assert kept_end(disk, other, power_loss=False) == 0, "there is no such directory"


def recovered(checker: RecoveryChecker, end_offset: int, **known: Any) -> None:
    log: Any = SimpleNamespace(directory=DIRECTORY, is_failed=False, topic_id=None, log_end_offset=end_offset, **known)
    checker.after_event(1, directories_of(log))


def test_recovery_must_keep_what_was_there_and_is_asked_once() -> None:
    runtime, disk = make_runtime()
    log = log_of_segments(runtime)
    checker = RecoveryChecker()
    checker.before_crash(1, directories_of(log), disk, power_loss=False)
    with pytest.raises(InvariantBroken, match=r"recovery keeps what was there: .* ends at 8, the disk had it up to 9"):
        recovered(checker, 8)
    recovered(checker, 3)  # it may be cut after that
    checker.before_crash(1, directories_of(log), disk, power_loss=False)
    recovered(checker, 9)
    checker.before_crash(1, directories_of(log), disk, power_loss=False)
    checker.forget(1)
    recovered(checker, 0)


@pytest.mark.parametrize("harm", ["has_lied", "has_lost_pages", "failed_dirs"])
def test_nothing_is_asked_of_a_harmed_disk(harm: str) -> None:
    runtime, disk = make_runtime()
    log = log_of_segments(runtime)
    checker = RecoveryChecker()
    setattr(disk, harm, {"/data": None} if harm == "failed_dirs" else True)
    checker.before_crash(1, directories_of(log), disk, power_loss=False)
    recovered(checker, 0)


def note(disk: SimDisk, path: str, *keys: TopicPartition) -> None:
    disk.write_atomic(f"{path}/{CLEANER_OFFSET_FILE}", render_offsets(dict.fromkeys(keys, 0)))


def test_a_missing_offset_must_be_noted_on_the_disk() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACTED)
    checker, logs = NotedGapsChecker(), directories_of(log)
    append(log, 2)
    checker.after_event(1, logs, disk)
    log.append_as_follower(with_offset(batch(2), 2), may_skip=True)
    checker.after_event(1, logs, disk)
    log.append_as_follower(with_offset(batch(1), 7), may_skip=True)
    with pytest.raises(InvariantBroken, match=r"a log that lacks offsets is noted as such on its disk: .* ends at 8"):
        checker.after_event(1, logs, disk)
    note(disk, "/data", TopicPartition("t", 1), KEY)
    append(log, 1)
    checker.after_event(1, logs, disk)
    note(disk, "/data", TopicPartition("t", 1))
    append(log, 1)
    with pytest.raises(InvariantBroken):
        checker.after_event(1, logs, disk)


def test_offsets_that_are_missing_at_the_start_of_a_log_or_after_a_cut_must_be_noted() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACTED)
    checker, logs = NotedGapsChecker(), directories_of(log)
    log.append_as_follower(with_offset(batch(1), 4), may_skip=True)
    with pytest.raises(InvariantBroken):
        checker.after_event(1, logs, disk)
    checker.forget(1)
    log.truncate_to(0)
    append(log, 3)
    checker.after_event(1, logs, disk)
    log.truncate_to(0)
    log.append_as_follower(with_offset(batch(1), 2), may_skip=True)
    with pytest.raises(InvariantBroken):
        checker.after_event(1, logs, disk)


def test_a_log_without_gaps_that_begins_late_needs_no_note() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACTED)
    checker, logs = NotedGapsChecker(), directories_of(log)
    log.truncate_fully_and_start_at(7)
    append(log, 2)
    log.raise_start(8)
    checker.after_event(1, logs, disk)
    append(log, 2)
    checker.after_event(1, logs, disk)
