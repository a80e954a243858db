"""What the listener is told, and in which order: snapshots, commits, the leader."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.raft.driver.commit_publisher import CommitPublisher
from raftwerk.raft.driver.raft_driver import open_metadata_log
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.replication.partition_raft_log import PartitionRaftLog
from raftwerk.raft.snapshots.snapshot_store import SnapshotRetention, encode_snapshot
from raftwerk.raft.types import CommittedBatch, ElectionState, LeaderAndEpoch
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.types import SnapshotId

CURRENT: list[bytes] = []
"""Told once: the high watermark is known to be that of the quorum."""


class FixedClock:
    def wall_ms(self) -> int:
        return 1_700_000_000_000


class LoneVoter:
    """A quorum of one node, whose publisher writes down what it tells."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(0))
        self.disk.makedirs("/data")
        self.told: list[object] = []
        self.begin()

    def begin(self) -> None:
        """Start, or start again."""
        runtime = Runtime(disk=self.disk, clock=FixedClock(), rng=random.Random(0))
        self.log = PartitionRaftLog(open_metadata_log(runtime, "/data"), runtime)
        config = RaftConfig(node_id=1, cluster_id="c", voters={1: VoterEndpoint("n1", 9093)})
        state = ElectionState(epoch=self.log.last_epoch)
        self.quorum = Quorum(config, self.log, state, random.Random(0))
        self.publisher = CommitPublisher(self.quorum.state, self.log, self)
        self.told.clear()

    def lead(self) -> int:
        """Be elected; nothing is committed yet."""
        self.quorum.start(0)
        assert self.quorum.state.is_leader
        return self.quorum.state.epoch

    def commit(self) -> None:
        """All that was appended becomes durable."""

        async def flush() -> None:
            flushed = asyncio.get_running_loop().create_future()
            self.log.flush_if_behind(flushed.set_result)
            assert await flushed is None

        asyncio.run(flush())
        self.quorum.on_flushed(0)

    def publish(self) -> list[object]:
        """What was told, until there is no more news."""
        self.told.clear()
        for _ in range(20):
            if not self.publisher.has_news:
                return self.told
            self.publisher.publish()
        raise AssertionError(f"there is always news: {self.told}")

    def add_snapshot(self, end_offset: int, records: Sequence[bytes]) -> SnapshotId:
        snapshot_id = SnapshotId(end_offset, self.log.last_epoch)
        file = self.log.snapshots.begin(snapshot_id)
        file.append([b"".join(encode_snapshot(snapshot_id, 5, iter([[record] for record in records])))])
        file.fsync()
        file.close()
        self.log.add_snapshot(snapshot_id)
        return snapshot_id

    # ---- the listener

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.told.append([record for batch in batches for record in batch.records])

    def on_snapshot(self, snapshot_id: SnapshotId, records: Sequence[bytes] | None) -> None:
        self.told.append((snapshot_id.end_offset, records))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.told.append(leader)


def test_a_leader_is_told_once_it_has_all_records_of_former_epochs() -> None:
    node = LoneVoter()
    epoch = node.lead()
    assert node.publish() == [LeaderAndEpoch(None, epoch)], "the epoch is known, and nothing is committed in it"
    node.quorum.append([b"a"], epoch)
    node.commit()
    assert node.publish() == [[b"a"], LeaderAndEpoch(1, epoch), CURRENT]
    assert node.publish() == []
    node.quorum.append([b"b"], epoch)
    node.commit()
    assert node.publish() == [[b"b"]], "the leader is told once"


def test_records_of_former_epochs_come_before_the_leader() -> None:
    node = LoneVoter()
    node.quorum.append([b"a"], node.lead())
    node.commit()
    node.begin()
    epoch = node.lead()
    node.quorum.append([b"b"], epoch)
    node.commit()
    assert node.publish() == [[b"a", b"b"], LeaderAndEpoch(1, epoch), CURRENT]


def test_a_snapshot_is_told_in_parts_before_what_follows_it() -> None:
    node = LoneVoter()
    epoch = node.lead()
    node.quorum.append([b"a"], epoch)
    node.commit()
    node.publish()
    snapshot_id = node.add_snapshot(node.publisher.delivered_offset, [b"s", b"t"])
    node.quorum.append([b"b"], epoch)
    node.commit()
    assert node.publish() == [[b"b"]], "a listener that knows the records needs no snapshot"
    end = snapshot_id.end_offset
    node.begin()
    node.lead()
    node.commit()
    assert node.publish()[:4] == [(end, [b"s"]), (end, [b"t"]), (end, None), [b"b"]]


def test_a_later_snapshot_takes_the_place_of_one_that_is_being_loaded() -> None:
    node = LoneVoter()
    epoch = node.lead()
    node.quorum.append([b"a"], epoch)
    node.commit()
    node.publish()
    first = node.add_snapshot(node.publisher.delivered_offset, [b"s", b"t"])
    node.quorum.append([b"b"], epoch)
    node.commit()
    node.begin()
    node.publisher.publish()
    assert node.told == [(first.end_offset, [b"s"])]
    later = node.add_snapshot(first.end_offset + 1, [b"u", b"v"])
    node.lead()
    node.commit()
    end = later.end_offset
    assert node.publish()[:4] == [(end, [b"u"]), (end, [b"v"]), (end, None), []], "what it said before counts no more"
    assert node.publisher.delivered_offset > end


def test_a_listener_that_is_behind_the_logs_start_gets_the_snapshot_there() -> None:
    node = LoneVoter()
    epoch = node.lead()
    node.commit()
    node.publish()
    known = node.publisher.delivered_offset
    for record in (b"a", b"b"):
        node.quorum.append([record], epoch)
        node.commit()
        node.add_snapshot(node.log.end_offset, [record])
    assert node.log.clean(SnapshotRetention(0), 0) is None
    assert node.log.start.end_offset == known + 2
    end = known + 2
    assert node.publish() == [(end, [b"b"]), (end, None)]
    assert node.publisher.delivered_offset == end


def test_a_snapshot_of_nothing_is_not_loaded() -> None:
    """As formatting writes it: it ends at offset 0."""
    node = LoneVoter()
    node.add_snapshot(0, [])
    epoch = node.lead()
    node.quorum.append([b"a"], epoch)
    node.commit()
    assert node.publish() == [[b"a"], LeaderAndEpoch(1, epoch), CURRENT]


def test_without_new_commits_a_high_watermark_becomes_current_once() -> None:
    node = LoneVoter()
    epoch = node.lead()
    node.commit()
    node.publish()
    node.begin()
    node.lead()
    node.publisher.delivered_offset = node.log.end_offset
    node.commit()
    assert node.publish() == [CURRENT, LeaderAndEpoch(1, epoch + 1)]


def test_who_leaves_the_quorum_has_no_leader() -> None:
    node = LoneVoter()
    epoch = node.lead()
    node.commit()
    node.publish()
    node.told.clear()
    node.publisher.publish_no_leader()
    node.publisher.publish_no_leader()
    assert node.told == [LeaderAndEpoch(None, epoch)]
