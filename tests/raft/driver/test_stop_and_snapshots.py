"""What a node notes when it stops, and that it writes one snapshot at a time."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from support.raft.nodes import RaftNode, RaftNodes, until

from raftwerk.raft.driver.log_end_checkpoint import LOG_END_FILE, LogEnd, parse_log_end
from raftwerk.raft.driver.raft_driver import metadata_log_dir
from raftwerk.raft.snapshots.snapshot_writer import SnapshotContents
from raftwerk.runtime.ports import File
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


def test_a_disk_that_is_full_when_the_log_rolls_after_a_snapshot_ends_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 1) as nodes:
            node = await nodes.elected()
            driver, disk, refused = node.driver, node.disk, []
            opens = disk.open

            def full(path: str, *, create: bool = False) -> File:
                if create and path.endswith(".log"):
                    refused.append(path)
                    raise OSError(errno.ENOSPC, "no space left on device", path)
                return opens(path, create=create)

            offset = driver.append([b"a"], driver.epoch)
            await until(lambda: driver.high_watermark > offset)
            for end_offset in (offset, offset + 1):
                snapshot = SnapshotId(end_offset, driver.epoch)
                with monkeypatch.context() as patched:
                    if end_offset == offset:
                        patched.setattr(disk, "open", full)
                    assert driver.create_snapshot(SnapshotContents(snapshot, 0, iter([[b"a"]])))
                    await until(lambda: not driver._is_snapshotting)
                assert driver.quorum_state.log.latest_snapshot == snapshot
            assert len(refused) == 1 and not driver.failure.done()
            assert disk.exists(f"{metadata_log_dir(node.log_dir)}/{offset + 1:020d}.log"), "the next one rolls it"
            offset = driver.append([b"b"], driver.epoch)
            await until(lambda: driver.high_watermark > offset)

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
