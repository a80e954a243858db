"""A node that cannot go on leaves the quorum: what it says to whom, and that it does so once."""

from __future__ import annotations

import asyncio
import errno
import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.raft.lone_voter import CONFIG, LoneVoter, run

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.errors import StorageError
from raftwerk.raft.driver.log_end_checkpoint import LOG_END_FILE, LogEnd, parse_log_end
from raftwerk.raft.driver.raft_driver import metadata_log_dir, open_metadata_log
from raftwerk.raft.messages.messages import EndQuorumEpoch, EpochReply, Fetch, Vote, VoteReply
from raftwerk.raft.messages.wire_messages import election_reply_fields, fetch_request, parse_request
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.runtime.clock import SystemClock
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, encode_response
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import NewRecord, encode_batch


def test_the_metadata_log_has_kafkas_topic_id() -> None:
    disk = SimDisk(random.Random(0))
    disk.makedirs("/data")
    for _ in range(2):
        log = open_metadata_log(Runtime(disk=disk, clock=SystemClock(), rng=random.Random(0)), "/data")
        assert log.topic_id == UUID(int=1)
        log.close()


def test_a_batch_that_is_missing_ends_the_metadata_log_as_no_compaction_has_removed_it() -> None:
    disk = SimDisk(random.Random(0))
    disk.makedirs("/data")
    runtime = Runtime(disk=disk, clock=SystemClock(), rng=random.Random(0))
    log = open_metadata_log(runtime, "/data")
    for _ in range(3):
        batch = encode_batch([NewRecord(None, b"r", (), 5)])
        log.append_as_leader(memoryview(batch), 1, 5, internal=True)
    path = log.segments[0].file.path
    log.close(clean=False)
    whole = disk.read_bytes(path)
    size = len(whole) // 3
    disk.write_atomic(path, whole[:size] + whole[2 * size :])
    assert open_metadata_log(runtime, "/data").log_end_offset == 1


def test_a_log_whose_directory_cannot_be_made_durable_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(random.Random(0))
    disk.makedirs("/data")
    syncs = disk.fsync_dir

    def refuse(path: str) -> None:
        if path == "/data":
            raise OSError(errno.EIO, "input/output error", path)
        syncs(path)

    monkeypatch.setattr(disk, "fsync_dir", refuse)
    with pytest.raises(StorageError, match="__cluster_metadata-0 cannot be made durable"):
        open_metadata_log(Runtime(disk=disk, clock=SystemClock(), rng=random.Random(0)), "/data")


def test_a_listener_that_appends_to_a_disk_that_fails_ends_its_node_once(caplog: pytest.LogCaptureFixture) -> None:
    """The append ends the node, and then the error reaches the publisher through the listener."""

    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        end_offset = await node.commit(b"a")
        commits = node.listener.on_commit

        def append(batches: Any) -> None:
            commits(batches)
            node.disk.fail_dir("/data")
            driver.append([b"b"], driver.epoch)

        node.listener.on_commit = append  # type: ignore[method-assign]
        driver.append([b"c"], driver.epoch)
        await asyncio.sleep(1)
        assert isinstance(driver.failure.result(), StorageError)
        assert driver.high_watermark == end_offset + 1
        await driver.stop()

    run(test)
    assert sum("leaves the metadata quorum" in line for line in caplog.messages) == 1


def test_a_node_that_has_left_the_quorum_tells_its_listener_of_no_more_records() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        commits = node.listener.on_commit

        def leave(batches: Any) -> None:
            commits(batches)
            if len(node.listener.records) == 2:
                driver._leave()

        node.listener.on_commit = leave  # type: ignore[method-assign]
        for record in (b"a", b"b", b"c"):
            driver.append([record * 5000], driver.epoch)
        await asyncio.sleep(1)
        assert driver.high_watermark == 4, "the last two were committed at once"
        assert node.listener.records == [b"a" * 5000, b"b" * 5000]
        await driver.stop()

    run(test)


def test_a_fetch_that_finds_the_disk_broken_is_refused_and_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        fetch = Fetch(
            cluster_id="c",
            replica=ReplicaKey(9, UUID(int=9)),
            epoch=driver.epoch,
            fetch_offset=0,
            last_epoch=0,
            max_wait_ms=0,
            max_bytes=1000,
        )
        answered = await driver.handle_fetch(18, fetch_request(fetch))
        assert answered.topics[0].partitions[0].error_code == ErrorCode.NONE

        def fail(*_: object, **__: object) -> None:
            raise StorageError("the disk is broken")

        monkeypatch.setattr(driver._log._log, "read", fail)
        refused = await driver.handle_fetch(18, fetch_request(fetch))
        assert [row.error_code for row in refused.topics[0].partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert driver.failure.done()
        refused = await driver.handle_fetch(18, fetch_request(fetch))
        assert [row.error_code for row in refused.topics[0].partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
        await driver.stop()

    run(test)


class Granting:
    """A connection to voter 2, which votes for whoever asks, and takes note of all that it is told."""

    def __init__(self, received: list[object]) -> None:
        self.is_closed = False
        self._received = received

    def close(self) -> None:
        self.is_closed = True

    async def send_raw(self, api_key: ApiKey, version: int, body: list[Any], *, timeout_s: float) -> memoryview:
        request = parse_request(api_key, decode_request(api_key, version, memoryview(b"".join(body))), "CONTROLLER")
        self._received.append(request)
        reply: VoteReply | EpochReply = EpochReply(error=ErrorCode.NONE, leader_id=None, epoch=request.epoch)
        if isinstance(request, Vote):
            reply = VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=request.epoch, granted=True)
        return memoryview(bytes(encode_response(api_key, version, election_reply_fields(reply))))


def test_a_leader_whose_disk_fails_tells_the_other_voters_that_it_resigns() -> None:
    async def test(node: LoneVoter) -> None:
        received: list[object] = []

        async def connect(_host: str, _port: int) -> Granting:
            return Granting(received)

        node.connect = connect
        driver = await node.start(replace(CONFIG, voters={**CONFIG.voters, 2: VoterEndpoint("n2", 9093)}))
        assert driver.is_leader
        received.clear()
        node.disk.fail_fsync(metadata_log_dir("/data"))
        driver.append([b"a"], driver.epoch)
        await asyncio.sleep(0.5)
        assert driver.failure.done()
        (end,) = (one for one in received if isinstance(one, EndQuorumEpoch))
        assert (end.leader_id, end.epoch, end.preferred_successors) == (1, driver.epoch, (ReplicaKey(2),))
        await driver.stop()

    run(test)


def test_what_is_on_this_nodes_disk_alone_is_not_noted_as_committed() -> None:
    """It may be cut off, and a node that lacks what it has noted as committed does not start."""

    async def test(node: LoneVoter) -> None:
        async def connect(_host: str, _port: int) -> Granting:
            return Granting([])

        node.connect = connect
        driver = await node.start(replace(CONFIG, voters={**CONFIG.voters, 2: VoterEndpoint("n2", 9093)}))
        assert (driver.is_leader, driver.log_end_offset, driver.high_watermark) == (True, 1, 0)
        path = f"/data/{LOG_END_FILE}"
        assert not node.disk.exists(path)
        await driver.stop()
        assert parse_log_end(node.disk.read_bytes(path)) == LogEnd(driver.epoch, 0, 1)

    run(test)


def test_a_leader_that_stops_tells_the_other_voters_before_it_leaves() -> None:
    async def test(node: LoneVoter) -> None:
        received: list[object] = []

        async def connect(_host: str, _port: int) -> Granting:
            await asyncio.sleep(0.01)
            return Granting(received)

        node.connect = connect
        driver = await node.start(replace(CONFIG, voters={**CONFIG.voters, 2: VoterEndpoint("n2", 9093)}))
        assert driver.is_leader
        began_s = asyncio.get_running_loop().time()
        await driver.stop()
        assert isinstance(received[-1], EndQuorumEpoch)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(0.5, abs=0.1), "nobody took over"

    run(test)


def test_a_log_that_cannot_be_rolled_after_a_snapshot_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start()
        end_offset = await node.commit(b"a")
        opens = node.disk.open

        def refuse(path: str, *, create: bool = False) -> Any:
            if create and path.endswith(".log"):
                raise OSError(errno.EIO, "input/output error", path)
            return opens(path, create=create)

        monkeypatch.setattr(node.disk, "open", refuse)
        await node.snapshot(end_offset)
        assert isinstance(driver.failure.result(), StorageError)
        await driver.stop()

    run(test)
