"""What a node notes when it stops, and that it writes one snapshot at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.raft.nodes import RaftNode, RaftNodes, until

from raftwerk.raft.driver.log_end_checkpoint import LOG_END_FILE, LogEnd, parse_log_end
from raftwerk.raft.snapshots.snapshot_writer import SnapshotContents
from raftwerk.wire.types import SnapshotId


def noted(node: RaftNode) -> LogEnd:
    path = Path(node.log_dir, LOG_END_FILE)
    return parse_log_end(path.read_bytes()) if path.exists() else LogEnd()


def test_a_clean_stop_notes_where_the_log_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 1) as nodes:
            node = await nodes.elected()
            offset = node.driver.append([b"a", b"b"], node.driver.epoch)
            await until(lambda: node.driver.high_watermark > offset)
            epoch = node.driver.epoch
            await node.stop()
            assert noted(node) == LogEnd(epoch, offset + 1, offset + 1)
            await node.start()
            assert noted(node).end_offset == -1, "from now on the log may be truncated"

    asyncio.run(test())


def test_a_node_whose_disk_failed_notes_no_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 1) as nodes:
            node = await nodes.elected()
            node.disk.is_broken = True
            node.driver.append([b"perhaps"], node.driver.epoch)
            await node.driver.failure
            await node.stop()
            assert noted(node).end_offset == -1

    asyncio.run(test())


def test_one_snapshot_is_written_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 1) as nodes:
            node = await nodes.elected()
            driver = node.driver
            offset = driver.append([b"a"], driver.epoch)
            await until(lambda: driver.high_watermark > offset)
            first, second = (SnapshotId(end_offset, driver.epoch) for end_offset in (offset, offset + 1))
            assert driver.create_snapshot(SnapshotContents(first, 0, iter([[b"a"]])))
            assert not driver.create_snapshot(SnapshotContents(second, 0, iter([[b"a"]])))
            await until(lambda: driver.quorum_state.log.latest_snapshot == first)
            await until(lambda: driver.create_snapshot(SnapshotContents(second, 0, iter([[b"a"]]))))
            await until(lambda: driver.quorum_state.log.latest_snapshot == second)
            await node.stop()
            assert not driver.create_snapshot(SnapshotContents(second, 0, iter([[b"a"]])))

    asyncio.run(test())
