"""Moves of compacted logs: where offsets are missing is known of the copy, too."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.log.compacted_logs import CLUSTER, COMPACT, TP, Writer, plan_of
from support.log.logs import append, make_runtime, read_all

from raftwerk.isr.directories.log_dir_moves import copy_batches, truncate_copy
from raftwerk.log.cleaner.compaction import clean
from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.state.checkpoints import read_offsets
from raftwerk.runtime.incremental_work import run_at_once
from raftwerk.wire.types import TopicPartition

OTHER = TopicPartition("other", 0)
DIRS = ("/data/a", "/data/b")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_gaps_of_a_moved_log_are_known_after_a_kill(is_restarted: bool) -> None:
    """Else recovery takes the first missing offset for damage, and cuts the log there."""
    runtime, disk = make_runtime()

    def started() -> LogManager:
        manager = LogManager(runtime, LogManagerConfig(DIRS, CLUSTER, 1, LogConfig()))
        manager.load()
        for log in manager.logs.values():
            log.config = COMPACT
        return manager

    def copy_rest(manager: LogManager) -> None:
        log, copy = manager.get(TP), manager.future_logs.get(TP)
        assert log is not None and copy is not None
        truncate_copy(log, copy)
        while copy_batches(log, copy):
            pass

    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = started()
    log = manager.create(TP, UUID(int=7), COMPACT, manager.directories.ids["/data/a"])
    manager.create(OTHER, UUID(int=5), COMPACT, manager.directories.ids["/data/b"])
    Writer(log, 1).fill(6)
    run_at_once(clean(log, disk, plan_of(log)))
    manager.future_logs.begin(TP, "/data/b")
    copy_rest(manager)
    manager.checkpoint_recovery_points()
    if is_restarted:
        manager.shutdown(1)  # the copy has all that is compacted
        disk.crash(power_loss=False)
        manager = started()
        manager.checkpoint_recovery_points()
    log = manager.logs[TP]
    append(log, 3, epoch=100)
    copy_rest(manager)
    content, end = read_all(log), log.log_end_offset
    assert manager.future_logs.finish(TP).log_end_offset == end
    disk.crash(power_loss=False)
    again = started().get(TP)
    assert again is not None and (read_all(again), again.log_end_offset) == (content, end)


def test_a_new_log_in_its_directory_leaves_the_gaps_of_a_copy_known() -> None:
    runtime, disk = make_runtime()
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(DIRS, CLUSTER, 1, COMPACT))
    manager.load()
    ids = manager.directories.ids
    manager.create(TP, UUID(int=7), directory_id=ids["/data/a"])
    manager.create(OTHER, UUID(int=5), directory_id=ids["/data/b"])
    manager.future_logs.begin(TP, "/data/b")
    copy = manager.future_logs.get(TP)
    assert copy is not None
    copy.note_gaps(at_once=True)
    manager.checkpoint_recovery_points()
    manager.delete(OTHER)
    manager.create(OTHER, UUID(int=6), directory_id=ids["/data/b"])
    assert TP in read_offsets(disk, "/data/b/cleaner-offset-checkpoint")
