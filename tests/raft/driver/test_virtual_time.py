"""A driver's timers, on a simulated disk and in virtual time."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import weakref
from dataclasses import replace
from typing import Any

import pytest
from support.raft.lone_voter import CONFIG, DAY_S, LoneVoter, run

from raftwerk.raft.driver.log_end_checkpoint import LOG_END_FILE, LogEnd, parse_log_end
from raftwerk.raft.driver.raft_driver import QuorumFailedError, metadata_log_dir
from raftwerk.raft.messages.messages import Fetch
from raftwerk.raft.messages.wire_messages import fetch_request
from raftwerk.raft.replication.spare_space import SPARE_FILE
from raftwerk.raft.snapshots.snapshot_store import SnapshotRetention
from raftwerk.raft.snapshots.snapshot_writer import SnapshotContents
from raftwerk.raft.types import LeaderAndEpoch, ReplicaKey
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.runtime.ports import Buffer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.types import SnapshotId

SPARE = f"/data/{SPARE_FILE}"


def test_old_snapshots_are_deleted_when_their_time_has_come_however_far_away_that_is() -> None:
    """The wall clock may jump, so it is looked at once a day at least."""

    async def test(node: LoneVoter) -> None:
        kept_ms = 3 * DAY_S * 1000
        await node.start(replace(CONFIG, snapshot_retention=SnapshotRetention(-1, kept_ms)))
        await node.snapshot(await node.commit(b"a"))
        began_s = asyncio.get_running_loop().time()
        await node.snapshot(await node.commit(b"b"))
        assert len(node.snapshots()) == 2
        await asyncio.sleep(3 * DAY_S - (asyncio.get_running_loop().time() - began_s) - 5)
        assert len(node.snapshots()) == 2
        await asyncio.sleep(DAY_S)
        assert len(node.snapshots()) == 1
        assert node.driver.snapshot_end_offset == 3
        await node.driver.stop()

    run(test)


def test_an_old_snapshot_is_deleted_in_time_whatever_the_time_of_day() -> None:
    async def test(node: LoneVoter) -> None:
        await asyncio.sleep(5 * DAY_S)
        await node.start(replace(CONFIG, snapshot_retention=SnapshotRetention(-1, 3_600_000)))
        await node.snapshot(await node.commit(b"a"))
        written_s = asyncio.get_running_loop().time() - 1
        await node.snapshot(await node.commit(b"b"))
        await asyncio.sleep(written_s + 3599 - asyncio.get_running_loop().time())
        assert len(node.snapshots()) == 2
        await asyncio.sleep(2)
        assert len(node.snapshots()) == 1
        await node.driver.stop()

    run(test)


def test_snapshots_that_are_too_old_at_the_start_are_deleted_then() -> None:
    async def test(node: LoneVoter) -> None:
        await node.start()
        await node.snapshot(await node.commit(b"a"))
        await node.snapshot(await node.commit(b"b"))
        await node.driver.stop()
        await node.start(replace(CONFIG, snapshot_retention=SnapshotRetention(-1, 0)))
        assert len(node.snapshots()) == 1
        await node.driver.stop()

    run(test)


@pytest.mark.parametrize(("suffix", "ends"), [(".checkpoint", False), (".log", True)])
def test_an_old_snapshot_that_cannot_be_deleted_is_logged_and_a_log_that_cannot_be_ends_the_node(
    suffix: str, ends: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(node: LoneVoter) -> None:
        await node.start(replace(CONFIG, snapshot_retention=SnapshotRetention(-1, 60_000)))
        for record in (b"a", b"b"):
            await node.snapshot(await node.commit(record))
        removes = node.disk.remove

        def refuse_removal(path: str) -> None:
            if path.endswith(suffix):
                raise OSError(errno.EACCES, "not allowed", path)
            removes(path)

        monkeypatch.setattr(node.disk, "remove", refuse_removal)
        await asyncio.sleep(120)
        assert node.driver.failure.done() is ends
        if not ends:
            assert "old metadata snapshots were not deleted" in caplog.text
            await node.commit(b"c")
        await node.driver.stop()

    run(test)


def test_a_snapshot_that_cannot_be_written_is_logged_and_the_next_one_may_be(caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: LoneVoter) -> None:
        await node.start()
        end_offset = await node.commit(b"a")

        def broken() -> Any:
            yield [b"state"]
            raise OSError(errno.ENOSPC, "no space")

        contents = SnapshotContents(SnapshotId(end_offset, node.driver.epoch), 0, broken())
        assert node.driver.create_snapshot(contents)
        await asyncio.sleep(1)
        assert f"the metadata snapshot at offset {end_offset} was not written" in caplog.text
        assert (node.driver.snapshot_end_offset, node.driver.failure.done()) == (None, False)
        await node.snapshot(end_offset)
        assert node.driver.snapshot_end_offset == end_offset
        await node.driver.stop()

    run(test)


def test_spare_space_that_was_used_is_held_again_when_the_disk_has_room() -> None:
    async def test(node: LoneVoter) -> None:
        await node.start(replace(CONFIG, spare_bytes=1 << 16))
        assert node.disk.exists(SPARE)
        await asyncio.sleep(25)
        node.disk.fill(0)
        node.driver.append([b"x" * 1000], node.driver.epoch)
        assert not node.disk.exists(SPARE), "the record is in its place"
        await asyncio.sleep(25)
        assert not node.disk.exists(SPARE), "there is no room yet"
        node.disk.set_capacity()
        await asyncio.sleep(5.5)
        assert node.disk.exists(SPARE), "it is tried every ten seconds"
        assert not node.driver.failure.done()
        for _ in range(2):
            node.disk.fill(0)
            node.driver.append([b"x" * 1000], node.driver.epoch)
            assert not node.disk.exists(SPARE)
            node.disk.set_capacity()
            await asyncio.sleep(10.5)
            assert node.disk.exists(SPARE), "as often as it is needed"
            await asyncio.sleep(25)
        node.disk.fill(0)
        node.driver.append([b"x" * 1000], node.driver.epoch)
        assert not node.disk.exists(SPARE)
        await node.driver.stop()
        node.disk.set_capacity()
        await asyncio.sleep(60)
        assert not node.disk.exists(SPARE), "a stopped node holds nothing"

    run(test)


def test_a_sync_that_finds_no_space_is_tried_again_with_the_spare_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file beside the log could not be replaced; the records of the log had their place already."""

    async def test(node: LoneVoter) -> None:
        driver = node.make(replace(CONFIG, spare_bytes=1 << 16))
        assert node.disk.exists(SPARE)
        refused: list[str] = []
        writes = node.disk.write_atomic_soon

        def refuse_once(path: str, data: Buffer) -> asyncio.Future[None]:
            if refused or not path.endswith("leader-epoch-checkpoint"):
                return writes(path, data)
            refused.append(path)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(OSError(errno.ENOSPC, "no space left on device", path))
            return future

        monkeypatch.setattr(node.disk, "write_atomic_soon", refuse_once)
        await driver.start()
        await asyncio.sleep(1)
        assert (len(refused), driver.failure.done(), driver.high_watermark) == (1, False, 1)
        assert not node.disk.exists(SPARE)
        await driver.stop()

    run(test)


def test_a_node_without_spare_space_leaves_the_quorum_when_its_disk_is_full() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        assert not node.disk.exists(SPARE)
        node.disk.fill(0)
        with pytest.raises(QuorumFailedError):
            driver.append([b"x" * 1000], driver.epoch)
        assert driver.failure.done()
        assert driver.leader_and_epoch == LeaderAndEpoch(None, driver.epoch)
        assert (driver.is_leader, driver.leader_endpoint()) == (False, None)
        await asyncio.sleep(1)
        assert node.listener.leaders[-1] == LeaderAndEpoch(None, driver.epoch)
        await driver.stop()

    run(test)


def test_what_is_committed_on_the_disk_is_noted_while_a_voter_runs() -> None:
    async def test(node: LoneVoter) -> None:
        await node.start()
        for number in range(12):
            await node.commit(b"%d" % number)
        noted = parse_log_end(node.disk.read_bytes(f"/data/{LOG_END_FILE}"))
        assert noted.epoch == node.driver.epoch and noted.end_offset == -1
        assert 10 <= noted.committed_offset <= 13, "some seconds ago"
        await node.driver.stop()
        assert parse_log_end(node.disk.read_bytes(f"/data/{LOG_END_FILE}")) == LogEnd(node.driver.epoch, 13, 13)

    run(test)


def test_a_node_whose_disk_failed_notes_nothing_more() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        await node.commit(b"a")
        await asyncio.sleep(11)
        path = f"/data/{LOG_END_FILE}"
        noted = node.disk.read_bytes(path)
        node.disk.fail_fsync(metadata_log_dir("/data"))
        driver.append([b"b"], driver.epoch)
        await asyncio.sleep(1)
        assert driver.failure.done()
        await driver.stop()
        assert node.disk.read_bytes(path) == noted

    run(test)


class Waiting:
    """A connection to a node that never answers."""

    def __init__(self) -> None:
        self.is_closed = False
        self.is_given_up = False

    def close(self) -> None:
        self.is_closed = True

    async def send_raw(self, *_: object, **__: object) -> memoryview:
        never: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        try:
            return await never
        except asyncio.CancelledError:
            self.is_given_up = True
            raise


def test_a_node_that_stops_hangs_up() -> None:
    async def test(node: LoneVoter) -> None:
        connections = []

        async def connect(host: str, port: int) -> Waiting:
            assert (host, port) == ("n2", 9093)
            connections.append(Waiting())
            return connections[-1]

        node.connect = connect
        driver = await node.start(replace(CONFIG, voters={**CONFIG.voters, 2: VoterEndpoint("n2", 9093)}))
        assert [one.is_closed for one in connections] == [False]
        await driver.stop()
        assert [(one.is_closed, one.is_given_up) for one in connections] == [(True, True)]

    run(test)


def test_records_that_are_too_many_for_one_turn_of_the_loop_are_all_told() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        records = [bytes([65 + number]) * 5000 for number in range(4)]
        for record in records:
            driver.append([record], driver.epoch)
        await asyncio.sleep(1)
        assert node.listener.records == records
        await driver.stop()

    run(test)


def test_a_change_of_role_is_logged_with_the_role_before_and_the_epoch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test(node: LoneVoter) -> None:
        await node.start()
        lines = [line for line in caplog.messages if line.startswith("quorum-role")]
        assert lines == ["quorum-role role=leader role_before=none epoch=1"]
        await node.commit(b"a")
        assert [line for line in caplog.messages if line.startswith("quorum-role")] == lines
        await node.driver.stop()
        assert caplog.messages[-1] == "quorum-role role=resigned role_before=leader epoch=1"

    run(test)


def test_a_lone_leader_stops_at_once_since_nobody_can_take_over() -> None:
    async def test(node: LoneVoter) -> None:
        await node.start()
        began_s = asyncio.get_running_loop().time()
        await node.driver.stop()
        assert asyncio.get_running_loop().time() - began_s < 0.1

    run(test)


def test_who_knows_nothing_to_be_committed_says_that_nothing_is() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start(replace(CONFIG, voters={**CONFIG.voters, 2: VoterEndpoint("n2", 9093)}))
        assert (driver.high_watermark, driver.is_high_watermark_current) == (0, False)
        assert driver.voters.ids == [1, 2]
        await driver.stop()

    run(test)


def test_a_node_that_was_not_started_takes_no_part() -> None:
    async def test(node: LoneVoter) -> None:
        driver = node.make()
        await asyncio.sleep(1)
        assert (driver.is_leader, driver.leader_endpoint()) == (False, None)
        with pytest.raises(QuorumFailedError):
            driver.append([b"x"], 0)
        assert (await driver.handle_request(ApiKey.DESCRIBE_QUORUM, 0, None))["error_code"] == 6
        await driver.stop()

    run(test)


@pytest.mark.parametrize("began_s", [0, 3 * DAY_S])
@pytest.mark.parametrize("wait_ms", range(1, 30))
def test_a_timer_is_due_at_its_time_though_seconds_are_no_exact_measure_of_milliseconds(
    wait_ms: int, began_s: int
) -> None:
    """The loop then says that it is a millisecond earlier, and the timer would be set again without an end."""

    async def test(node: LoneVoter) -> None:
        await asyncio.sleep(began_s)
        driver = await node.start()
        fetch = Fetch(
            cluster_id="c",
            replica=ReplicaKey(9),
            epoch=1,
            fetch_offset=1,
            last_epoch=1,
            max_wait_ms=wait_ms,
            max_bytes=100,
            high_watermark=1,
        )
        asked_s = asyncio.get_running_loop().time()
        await driver.handle_fetch(18, fetch_request(fetch))
        assert asyncio.get_running_loop().time() - asked_s == pytest.approx(wait_ms / 1000, abs=0.002)
        await driver.stop()

    run(test)


def test_what_a_node_says_of_itself_while_it_runs_and_when_it_has_stopped() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        assert driver.leader_endpoint() == VoterEndpoint("n1", 9093)
        assert driver.voter_endpoints() == {1: VoterEndpoint("n1", 9093)}
        assert (driver.kraft_version, driver.snapshot_end_offset, driver.log_end_offset) == (0, None, 1)
        assert (driver.high_watermark, driver.is_high_watermark_current, driver.is_leader) == (1, True, True)
        await driver.stop()
        assert (driver.is_leader, driver.leader_endpoint()) == (False, None)
        assert driver.leader_and_epoch == LeaderAndEpoch(None, 1)
        with pytest.raises(QuorumFailedError):
            driver.append([b"x"], 1)

    run(test)


@pytest.mark.parametrize("waits_for", ["the quorum", "snapshots", "spare space"])
def test_a_node_that_has_stopped_is_not_kept_by_its_timers(waits_for: str) -> None:
    async def test(node: LoneVoter) -> None:
        config = CONFIG
        if waits_for == "the quorum":
            config = replace(CONFIG, voters={**CONFIG.voters, 2: VoterEndpoint("n2", 9093)})
        elif waits_for == "spare space":
            node.disk.fill(1 << 16)
            config = replace(CONFIG, spare_bytes=1 << 16)
        driver = await node.start(config)
        if waits_for == "snapshots":
            for record in (b"a", b"b", b"c"):
                await node.snapshot(await node.commit(record))
        await driver.stop()
        kept = weakref.ref(driver)
        del driver, node.driver
        await asyncio.sleep(0.001)
        gc.collect()
        assert kept() is None

    run(test)
