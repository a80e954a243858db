"""A replica manager that has stopped does nothing more, whatever was under way or comes afterwards."""

from __future__ import annotations

import pytest
from support.isr.manager_cluster import Cluster, replicated_topic

from raftwerk.isr.leader import isr_proposals
from raftwerk.isr.leader.isr_state import CommittedIsr
from raftwerk.isr.replica_manager import PeriodicTask, ReplicaManager
from raftwerk.log.state.checkpoints import HIGH_WATERMARK_FILE
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def test_its_periodic_tasks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would look at replicas, and write files, of directories that another process may have taken."""
    called: list[str] = []
    monkeypatch.setattr(ReplicaManager, "shrink_isrs", lambda self: called.append("shrink"))
    monkeypatch.setattr(ReplicaManager, "checkpoint_high_watermarks", lambda self: called.append("checkpoint"))
    cluster = Cluster(nodes=(1,), replica_lag_time_max_ms=2_000, high_watermark_checkpoint_interval_ms=2_500)
    cluster.boot(1)
    cluster.sleep(5.1)
    assert sorted(called) == ["checkpoint"] * 2 + ["shrink"] * 5
    cluster.stop(1)
    called.clear()
    cluster.sleep(30.0)
    assert called == []


def test_a_periodic_task_goes_on_after_an_error() -> None:
    """One failure must not stop all checkpoints for good; it is told to the loop."""
    cluster, called = Cluster(nodes=()), list[float]()

    def act() -> None:
        called.append(cluster.loop.time())
        raise ValueError("hostile")

    task = cluster.on_loop(PeriodicTask, 1_000, act)
    cluster.sleep(3.5)
    task.cancel()
    cluster.sleep(3.0)
    assert called == [1.0, 2.0, 3.0]
    errors, cluster.scheduler.errors[:] = list(cluster.scheduler.errors), []
    assert len(errors) == 3


def test_replicas_that_have_fallen_behind_are_not_proposed_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looking at the ISRs of many partitions in slices."""
    monkeypatch.setattr(isr_proposals, "SHRINKS_PER_SLICE", 2)
    cluster, _ = replicated_topic(partitions=40, replica_lag_time_max_ms=100_000)
    cluster.sleep(2.0)
    cluster.mute[2, 1] = None
    for index in range(40):
        cluster.produce(1, TopicPartition("t", index), acks=1)
    cluster.sleep(101.0)
    manager = cluster.managers[1]
    leaders = [replica.partition.leader for replica in manager.partitions.values()]
    cluster.on_loop(manager.shrink_isrs)
    cluster.stop(1)
    cluster.sleep(1.0)
    proposed = [leader for leader in leaders if leader is not None and not isinstance(leader.isr_state, CommittedIsr)]
    assert 0 < len(proposed) <= 4, "a slice at once, and one before it has begun to stop"


def test_to_stop_it_again_writes_nothing() -> None:
    """By then the directory may belong to another process, and the high watermarks in it be newer."""
    cluster, _ = replicated_topic(replicas=(1,))
    cluster.produce(1, TP)
    manager = cluster.managers[1]
    cluster.stop(1)
    checkpoint = f"/n1/{HIGH_WATERMARK_FILE}"
    written = cluster.disks[1].read_bytes(checkpoint)
    assert b"t 0 1" in written
    cluster.run(manager.stop())
    assert cluster.disks[1].read_bytes(checkpoint) == written
    assert not manager.partitions


def test_nobody_leads_a_partition_that_is_not_here() -> None:
    cluster = Cluster(nodes=(1,))
    answers: list[bool] = []
    cluster.on_loop(cluster.boot(1).confirm_leadership, TP, 0, 1_000, answers.append)
    assert answers == [False]
