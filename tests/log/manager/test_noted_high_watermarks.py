"""High watermarks are noted over some iterations of the loop before they are written."""

from __future__ import annotations

from uuid import UUID

from support.log.compacted_logs import CLUSTER
from support.log.logs import append, make_runtime

from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.state.checkpoints import HIGH_WATERMARK_FILE
from raftwerk.wire.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def test_a_truncation_meanwhile_lowers_what_is_written() -> None:
    """Records in place of the removed ones must not count as committed after a crash."""
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1))
    manager.load()
    log = manager.create(A, UUID(int=1))
    append(log, 2)
    append(log, 3)
    append(manager.create(B, UUID(int=2)), 1)
    manager.note_high_watermarks({A: 5, B: 1})
    log.truncate_to(2)
    append(log, 5)
    manager.write_high_watermarks()
    assert disk.read_bytes(f"/data/{HIGH_WATERMARK_FILE}") == b"0\n2\na 0 2\nb 3 1\n"
