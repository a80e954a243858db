"""Whole quorum nodes on sockets and files."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
from support.raft.nodes import RaftNode, RaftNodes, until

from raftwerk.log.errors import StorageError
from raftwerk.log.partition_log import PartitionLog
from raftwerk.raft.driver.network_channel import is_refused
from raftwerk.raft.driver.quorum_state_store import QuorumStateError, parse_quorum_state
from raftwerk.raft.driver.raft_driver import QuorumFailedError
from raftwerk.raft.snapshots.snapshot_writer import SnapshotContents
from raftwerk.raft.types import METADATA_TOPIC, LeaderAndEpoch, NotLeaderError, ReplicaKey
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, decode_response, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from raftwerk.wire.records import CorruptBatchError
from raftwerk.wire.types import SnapshotId


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test)


def all_have(nodes: RaftNodes, records: list[bytes]) -> bool:
    return all(node.listener.records == records for node in nodes.nodes.values())


async def ask(node: RaftNode, api_key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    """A request as it comes from the wire, and its response as it goes over it."""
    request = decode_request(api_key, version, memoryview(encode_request(api_key, version, fields)))
    response = await node.driver.handle_request(api_key, version, request)
    return decode_response(api_key, version, memoryview(encode_response(api_key, version, response)))


def test_three_nodes_elect_and_replicate(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 3, observers=1) as nodes:
            leader = await nodes.elected()
            epoch = leader.driver.epoch
            assert leader.listener.committed_when_leading == 1, "its own leader change record is delivered before"
            assert leader.driver.append([b"a", b"b"], epoch) == 2
            assert leader.driver.append([b"c"], epoch) == 3
            await until(lambda: all_have(nodes, [b"a", b"b", b"c"]))
            await until(
                lambda: all(n.driver.leader_and_epoch == LeaderAndEpoch(leader.id, epoch) for n in nodes.nodes.values())
            )
            assert all(n.driver.leader_endpoint() == leader.config.voters[leader.id] for n in nodes.nodes.values())
            others = [node for node in nodes.nodes.values() if node is not leader]
            with pytest.raises(NotLeaderError):
                others[0].driver.append([b"x"], epoch)

    run(test())


def test_a_commit_waits_for_no_timer(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 3) as nodes:
            leader = await nodes.elected()
            for number in range(20):
                offset = leader.driver.append([b"%d" % number], leader.driver.epoch)
                took_s = await until(partial(nodes.have_committed, offset))
                assert took_s < 0.4, "nobody waits for a fetch to time out"

    run(test())


def test_a_killed_leader_is_replaced_and_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 3) as nodes:
            leader = await nodes.elected()
            leader.driver.append([b"before"], leader.driver.epoch)
            await until(lambda: all_have(nodes, [b"before"]))
            epoch = leader.driver.epoch
            await leader.kill()
            successor = await nodes.elected(without=leader)
            assert successor.driver.epoch > epoch
            successor.driver.append([b"after"], successor.driver.epoch)
            await leader.start()
            await until(lambda: all_have(nodes, [b"before", b"after"]))

    run(test())


def test_no_record_is_lost_when_all_are_killed(tmp_path: Path) -> None:
    async def test() -> None:
        nodes = RaftNodes(tmp_path, 3)
        async with nodes:
            leader = await nodes.elected()
            offset = leader.driver.append([b"kept"], leader.driver.epoch)
            await until(lambda: leader.driver.high_watermark > offset)
            for node in nodes.nodes.values():
                await node.kill()
            for node in nodes.nodes.values():
                await node.start()
            await until(lambda: all_have(nodes, [b"kept"]))

    run(test())


def test_a_graceful_stop_hands_over(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 3) as nodes:
            leader = await nodes.elected()
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await leader.stop()
            assert loop.time() - began_s < 0.45, "it leaves when it hears of the new epoch, not after the grace period"
            await nodes.elected(without=leader)
            assert leader.driver.leader_and_epoch.leader_id is None

    run(test())


def test_a_lone_voter(tmp_path: Path) -> None:
    async def test() -> None:
        nodes = RaftNodes(tmp_path, 1)
        async with nodes:
            leader = await nodes.elected()
            leader.driver.append([b"a"], leader.driver.epoch)
            await until(lambda: all_have(nodes, [b"a"]))
            await leader.stop()
            await leader.start()
            await until(lambda: all_have(nodes, [b"a"]))
            assert leader.driver.epoch == 2

    run(test())


def test_a_failed_fsync_stops_the_node_and_is_never_repeated(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 3) as nodes:
            leader = await nodes.elected()
            leader.disk.is_broken = True
            leader.driver.append([b"perhaps"], leader.driver.epoch)
            reason = await leader.driver.failure
            assert "broken" in str(reason)
            assert not leader.driver.is_leader
            successor = await nodes.elected(without=leader)
            with pytest.raises(QuorumFailedError):
                leader.driver.append([b"x"], leader.driver.epoch)
            await until(lambda: leader.listener.leaders[-1].leader_id is None)
            refused = await ask(leader, ApiKey.VOTE, 2, vote_fields(successor.id, leader.id, 99))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert leader.disk.fsyncs_after_failure == 1

    run(test())


def test_a_vote_that_cannot_be_written_is_not_granted(tmp_path: Path) -> None:
    async def test() -> None:
        node = RaftNodes(tmp_path, 3).nodes[1]
        await node.start()
        node.disk.refuses_state = True
        response = await ask(node, ApiKey.VOTE, 2, vote_fields(2, 1, 7))
        assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not response.topics
        assert "no space" in str(await node.driver.failure)
        await node.stop()

    run(test())


def test_a_listener_that_fails_stops_the_node(tmp_path: Path) -> None:
    async def test() -> None:
        node = RaftNodes(tmp_path, 1).nodes[1]
        await node.start()

        def refuse(batches: object) -> None:
            raise ValueError("this record makes no sense")

        node.listener.on_commit = refuse  # type: ignore[method-assign]
        assert isinstance(await node.driver.failure, ValueError)
        await node.stop()

    run(test())


def test_a_damaged_quorum_state_is_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        node = RaftNodes(tmp_path, 1).nodes[1]
        await node.start()
        await node.stop()
        path = f"{node.log_dir}/{METADATA_TOPIC}-0/quorum-state"
        node.disk.write_atomic(path, b"{}")
        with pytest.raises(QuorumStateError, match="quorum-state: not a quorum-state file"):
            await node.start()

    run(test())


def end_offset_known(leader: RaftNode, observer: ReplicaKey) -> int | None:
    role = leader.driver.quorum_state.role.as_leader()
    progress = role.replicas.observers.get(observer) if role is not None else None
    return None if progress is None else progress.end_offset


def vote_fields(candidate: int, receiver: int, epoch: int, **changes: Any) -> dict[str, Any]:
    partition = {
        "partition_index": 0,
        "replica_epoch": epoch,
        "replica_id": candidate,
        "last_offset_epoch": 0,
        "last_offset": 0,
        "pre_vote": False,
    } | changes
    return {
        "cluster_id": "c",
        "voter_id": receiver,
        "topics": [{"topic_name": changes.pop("topic", METADATA_TOPIC), "partitions": [partition]}],
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_votes_of_every_version(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        nodes = RaftNodes(tmp_path, 3)
        node = nodes.nodes[1]
        await node.start()
        try:
            fields = vote_fields(2, 1, 7, last_offset=5, last_offset_epoch=3)
            response = await ask(node, ApiKey.VOTE, version, fields)
            partition = response.topics[0].partitions[0]
            assert (partition.error_code, partition.vote_granted, partition.leader_epoch) == (0, True, 7)
            state = parse_quorum_state(node.disk.read_bytes(f"{node.log_dir}/{METADATA_TOPIC}-0/quorum-state"))
            assert (state.epoch, state.voted and state.voted.id) == (7, 2), "on disk before the answer"
            stale = (await ask(node, ApiKey.VOTE, version, vote_fields(3, 1, 6))).topics[0].partitions[0]
            assert (stale.error_code, stale.vote_granted) == (ErrorCode.FENCED_LEADER_EPOCH, False)
            foreign = await ask(node, ApiKey.VOTE, version, vote_fields(2, 1, 8) | {"cluster_id": "other"})
            assert foreign.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
            other_topic = await ask(node, ApiKey.VOTE, version, vote_fields(2, 1, 8, topic="t"))
            assert other_topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            nothing = await ask(node, ApiKey.VOTE, version, {"cluster_id": "c", "topics": []})
            assert nothing.error_code == ErrorCode.INVALID_REQUEST
            negative = await ask(node, ApiKey.VOTE, version, vote_fields(2, 1, -1))
            assert negative.error_code == ErrorCode.INVALID_REQUEST
        finally:
            await node.stop()

    run(test())


@pytest.mark.parametrize("version", [0, 1])
def test_begin_and_end_of_every_version(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        nodes = RaftNodes(tmp_path, 3)
        node = nodes.nodes[1]
        await node.start()
        try:
            partition: dict[str, Any] = {"partition_index": 0, "leader_id": 2, "leader_epoch": 4}
            topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
            fields = {"cluster_id": "c", "voter_id": 1, "topics": topics}
            begun = await ask(node, ApiKey.BEGIN_QUORUM_EPOCH, version, fields)
            answer = begun.topics[0].partitions[0]
            assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (0, 2, 4)
            partition |= {"preferred_successors": [3], "preferred_candidates": [{"candidate_id": 3}]}
            ended = await ask(node, ApiKey.END_QUORUM_EPOCH, version, fields)
            assert ended.topics[0].partitions[0].error_code == 0
            assert node.driver.leader_and_epoch == LeaderAndEpoch(None, 4)
        finally:
            await node.stop()

    run(test())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_quorum(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 3, observers=1) as nodes:
            leader = await nodes.elected()
            observer = ReplicaKey(4)
            await until(lambda: end_offset_known(leader, observer) == 1)
            topics = [
                {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]},
                {"topic_name": "t", "partitions": [{"partition_index": 3}]},
            ]
            response = await ask(leader, ApiKey.DESCRIBE_QUORUM, version, {"topics": topics[:1]})
            ours = response.topics[0].partitions[0]
            assert (ours.leader_id, ours.leader_epoch, ours.high_watermark) == (leader.id, leader.driver.epoch, 1)
            assert [voter.replica_id for voter in ours.current_voters] == [1, 2, 3]
            assert [observer.replica_id for observer in ours.observers] == [4]
            assert all(replica.log_end_offset == 1 for replica in ours.observers)
            twice = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}] * 2}]
            for asked in (topics, topics[1:], twice):
                response = await ask(leader, ApiKey.DESCRIBE_QUORUM, version, {"topics": asked})
                codes = [row.error_code for topic in response.topics for row in topic.partitions]
                assert set(codes) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            other = next(node for node in nodes.nodes.values() if node is not leader)
            response = await ask(other, ApiKey.DESCRIBE_QUORUM, version, {"topics": topics[:1]})
            refused = response.topics[0].partitions[0]
            assert (refused.error_code, refused.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.id)
            assert ([voter.replica_id for voter in refused.current_voters], refused.observers) == ([1, 2, 3], [])
            response = await ask(nodes.nodes[4], ApiKey.DESCRIBE_QUORUM, version, {"topics": topics[:1]})
            refused = response.topics[0].partitions[0]
            assert [one.replica_id for one in refused.observers] == [4], "it says that it is no voter"

    run(test())


def test_a_snapshot_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    async def test() -> None:
        nodes = RaftNodes(tmp_path, 1)
        async with nodes:
            leader = await nodes.elected()
            partition = {
                "partition": 0,
                "current_leader_epoch": leader.driver.epoch,
                "snapshot_id": {"end_offset": 1, "epoch": 1},
                "position": 0,
            }
            fields = {"cluster_id": "c", "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}]}
            response = await ask(leader, ApiKey.FETCH_SNAPSHOT, 0, fields)
            assert response.topics[0].partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND

    run(test())


@pytest.mark.parametrize("position", [-(2**63), -1, 10**9, 2**63 - 1])
def test_no_position_in_a_snapshot_ends_the_leader(tmp_path: Path, position: int) -> None:
    """The system refuses to read at the greatest ones, which looked like a failed disk."""

    async def test() -> None:
        async with RaftNodes(tmp_path, 1) as nodes:
            leader = await nodes.elected()
            driver = leader.driver
            offset = driver.append([b"a"], driver.epoch)
            await until(lambda: driver.high_watermark > offset)
            snapshot = SnapshotId(offset, driver.epoch)
            assert driver.create_snapshot(SnapshotContents(snapshot, 0, iter([[b"a"]])))
            await until(lambda: driver.quorum_state.log.latest_snapshot == snapshot)
            partition = {"partition": 0, "current_leader_epoch": driver.epoch, "snapshot_id": snapshot._asdict()}
            for at, error in ((position, ErrorCode.POSITION_OUT_OF_RANGE), (0, ErrorCode.NONE)):
                topics = [{"name": METADATA_TOPIC, "partitions": [partition | {"position": at}]}]
                fields = {"cluster_id": "c", "max_bytes": 2**31 - 1, "topics": topics}
                response = await ask(leader, ApiKey.FETCH_SNAPSHOT, 1, fields)
                assert response.topics[0].partitions[0].error_code == error
            assert driver.is_leader

    run(test())


def test_a_fetch_of_damaged_records_is_answered_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 1) as nodes:
            driver = (await nodes.elected()).driver

            def damaged(*_: object, **__: object) -> bytes:
                raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "the log is damaged at position 0")

            offset = driver.append([b"a"], driver.epoch)
            await until(lambda: driver.high_watermark > offset)
            monkeypatch.setattr(PartitionLog, "read", damaged)
            partition = FetchPartition(0, current_leader_epoch=driver.epoch, last_fetched_epoch=-1, max_bytes=1000)
            for _ in range(2):
                response = await driver.handle_fetch(
                    17, FetchRequest(topics=[FetchTopic(METADATA_TOPIC, None, [partition])], replica_id=9)
                )
                assert response.topics[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
            assert not driver._fetches, "nothing of a fetch is kept that was answered"
            assert driver.is_leader

    run(test())
    assert len([line for line in caplog.messages if "damaged at position 0" in line]) == 1


def test_fetches_of_anything_else_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        nodes = RaftNodes(tmp_path, 1)
        async with nodes:
            leader = await nodes.elected()
            for topic, error in [
                (FetchTopic("t", None, [FetchPartition(0)]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (FetchTopic(METADATA_TOPIC, None, [FetchPartition(1)]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (FetchTopic(METADATA_TOPIC, None, [FetchPartition(0)] * 2), ErrorCode.INVALID_REQUEST),
            ]:
                response = await leader.driver.handle_fetch(12, FetchRequest(topics=[topic]))
                assert [row.error_code for row in response.topics[0].partitions] == [error] * len(topic.partitions)

    run(test())


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (ConnectionRefusedError(111, "Connect call failed"), True),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect call failed"), True),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] No route to host"), False),
        (ConnectionResetError(104, "reset"), False),
        (OSError("lost"), False),
    ],
)
def test_refused_connections(error: OSError, refused: bool) -> None:
    assert is_refused(error) is refused


def test_a_listener_learns_that_a_snapshot_is_current(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RaftNodes(tmp_path, 3) as nodes:
            leader = await nodes.elected()
            leader.driver.append([b"a"], leader.driver.epoch)
            other = next(node for node in nodes.nodes.values() if node is not leader)
            await until(lambda: other.listener.records == [b"a"])
            snapshot_id = SnapshotId(other.listener.end_offset, other.driver.epoch)
            other.driver.create_snapshot(SnapshotContents(snapshot_id, 0, iter([[b"a"]])))
            await until(lambda: other.driver.quorum_state.log.latest_snapshot == snapshot_id)
            await other.stop()
            await other.start()
            await until(lambda: other.driver.is_high_watermark_current and other.listener.looks > 0)
            assert other.listener.records == [b"a"], "nothing new is committed in the idle quorum"

    run(scenario())


def cut(node: RaftNode) -> None:
    path = Path(node.log_dir, f"{METADATA_TOPIC}-0", "00000000000000000000.log")
    path.write_bytes(path.read_bytes()[:-20])


def empty(node: RaftNode) -> None:
    Path(node.log_dir, f"{METADATA_TOPIC}-0", "00000000000000000000.log").write_bytes(b"")


def flip(node: RaftNode) -> None:
    path = Path(node.log_dir, f"{METADATA_TOPIC}-0", "00000000000000000000.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def remove(node: RaftNode) -> None:
    shutil.rmtree(Path(node.log_dir, f"{METADATA_TOPIC}-0"))


def forget_the_vote(node: RaftNode) -> None:
    Path(node.log_dir, f"{METADATA_TOPIC}-0", "quorum-state").unlink()


@pytest.mark.parametrize("damage", [cut, empty, flip, remove, forget_the_vote])
def test_a_voter_that_lost_its_log_refuses_to_start(tmp_path: Path, damage: Callable[[RaftNode], None]) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 3) as nodes:
            leader = await nodes.elected()
            for number in range(20):
                leader.driver.append([b"%d" % number], leader.driver.epoch)
            await until(lambda: all(len(node.listener.records) == 20 for node in nodes.nodes.values()))
            damaged = next(node for node in nodes.nodes.values() if node is not leader)
            await damaged.stop()
            damage(damaged)
            for _ in range(2):
                with pytest.raises(StorageError, match=rf"{damaged.log_dir}.* has lost .*format it again"):
                    await damaged.start()
            shutil.rmtree(damaged.log_dir)
            await damaged.start()
            await until(lambda: all(len(node.listener.records) == 20 for node in nodes.nodes.values()))

    run(test())


def test_an_observer_whose_log_is_gone_fetches_it_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with RaftNodes(tmp_path, 1, observers=1) as nodes:
            leader, observer = nodes.nodes.values()
            await nodes.elected()
            leader.driver.append([b"a"], leader.driver.epoch)
            await until(lambda: all_have(nodes, [b"a"]))
            await observer.stop()
            remove(observer)
            await observer.start()
            await until(lambda: all_have(nodes, [b"a"]))

    run(test())


def test_a_node_of_another_cluster_is_told_so_once_for_each_controller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        """The lines of the foreign node."""
        return [record.getMessage() for record in caplog.records if "whose cluster id is other" in record.getMessage()]

    async def test() -> None:
        nodes = RaftNodes(tmp_path, 3)
        foreign = nodes.nodes[3]
        foreign.config = replace(foreign.config, cluster_id="other")
        async with nodes:
            leader = await nodes.elected(without=foreign)
            await until(lambda: len(told()) == 2)
            offset = leader.driver.append([b"x"], leader.driver.epoch)
            await until(lambda: leader.driver.high_watermark > offset)

    run(test())
    assert len(told()) == 2
