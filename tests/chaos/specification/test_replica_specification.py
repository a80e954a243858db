"""Steps of the replicas of a partition, allowed ones and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from raftwerk.chaos.specification.partitions.partition_state import NO_LEADER, PartitionState
from raftwerk.chaos.specification.partitions.replica_specification import ReplicaSpecification
from raftwerk.chaos.specification.partitions.replica_state import ReplicaLog

REPLICAS = frozenset({1, 2, 3})
FORGOTTEN: dict[str, Any] = {"leader": NO_LEADER, "leader_epoch": -1, "partition_epoch": -1, "isr": frozenset()}
"""The role of a replica that has just started."""


class Partition:
    """Replicas 1, 2 and 3. Each method is one event, and returns what the specification says of it.

    Replica 1 leads epoch 0 with all in the ISR. It has a batch of two records, which 2 has, too.
    """

    def __init__(self) -> None:
        self.specification = ReplicaSpecification()
        self.partition_epoch = -1
        self.register(1, 0)
        for node in REPLICAS:
            self.specification.on_created(node)
            assert not self.take_role(node)
        assert not self.write(1)
        assert not self.fetch(2, 1)

    def become(self, node: int, **changes: Any) -> str:
        """The replica's state changes in these fields; the deviation, or nothing if it is a step."""
        after = replace(self.specification.states[node], **changes)
        if "log" in changes and "end_offset" not in changes:
            after = replace(after, end_offset=after.log.end_offset)
        return str(self.specification.observe(after) or "")

    def register(
        self,
        leader: int,
        leader_epoch: int,
        isr: frozenset[int] = REPLICAS,
        unclean: bool = False,
        replicas: frozenset[int] = REPLICAS,
    ) -> None:
        """The controller commits the partition's next state."""
        self.partition_epoch += 1
        state = PartitionState(replicas, isr, frozenset(), leader, leader_epoch, unclean)
        self.specification.history.register(self.partition_epoch, state)

    def take_role(self, node: int, **changes: Any) -> str:
        """The replica takes up what the controller has committed last."""
        one = self.specification.history.registrations[self.partition_epoch]
        before, leads = self.specification.states[node], one.leader == node
        is_new = before.leader_epoch != one.leader_epoch
        role: dict[str, Any] = {
            "leader": one.leader,
            "leader_epoch": one.leader_epoch,
            "partition_epoch": self.partition_epoch,
            "isr": one.isr,
            "pending_isr": None,
        }
        if is_new:
            role |= {"epoch_start_offset": before.end_offset if leads else -1, "fetch_offsets": frozenset()}
        return self.become(node, **(role | changes))

    def log(self, node: int) -> ReplicaLog:
        return self.specification.states[node].log

    def batch(self, node: int, epoch: int | None = None, records: int = 2) -> ReplicaLog:
        """The node's log with another batch."""
        log, own = self.log(node), self.specification.states[node].leader_epoch
        return self.specification.history.follow(log, log.end_offset + records, own if epoch is None else epoch, node)

    def write(self, node: int) -> str:
        return self.become(node, log=self.batch(node))

    def fetch(self, node: int, leader: int) -> str:
        """The follower appends what the leader has."""
        return self.become(node, log=self.log(leader))

    def receive_fetch(self, leader: int, follower: int, offset: int, **changes: Any) -> str:
        """The leader learns that the follower's log ends at the offset."""
        others = {one for one in self.specification.states[leader].fetch_offsets if one[0] != follower}
        return self.become(leader, fetch_offsets=frozenset(others | {(follower, offset)}), **changes)

    def commit(self) -> None:
        """The first batch is committed, and 2 knows it."""
        assert not self.fetch(3, 1)
        assert not self.receive_fetch(1, 2, 2)
        assert not self.receive_fetch(1, 3, 2, high_watermark=2)
        assert not self.become(2, high_watermark=2)

    def change_leader(self, leader: int, **changes: Any) -> None:
        """Another replica leads the next epoch, and all know it."""
        self.register(leader, self.specification.states[1].leader_epoch + 1, **changes)
        for node in REPLICAS:
            assert not self.take_role(node)


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_records_are_fetched_committed_and_known(partition: Partition) -> None:
    partition.commit()
    assert partition.specification.states[1].high_watermark == 2


def test_a_follower_is_counted_only_where_it_has_fetched(partition: Partition) -> None:
    assert not partition.receive_fetch(1, 2, 2)
    assert "3 did not have the leader's log up to 2" in partition.receive_fetch(1, 3, 2)


def test_a_log_that_parts_is_cut_and_goes_on(partition: Partition) -> None:
    partition.commit()
    assert not partition.write(1)
    partition.change_leader(2)
    assert not partition.write(2)
    assert not partition.become(1, log=partition.log(1).up_to(2))
    assert not partition.fetch(1, 2)


def test_epochs_that_the_follower_has_not_take_two_answers(partition: Partition) -> None:
    assert not partition.write(1)
    partition.change_leader(2)
    partition.change_leader(3)
    assert not partition.write(3)
    assert not partition.become(1, log=partition.log(1).up_to(0))
    assert not partition.fetch(1, 3)


def test_a_leader_leads_on_and_keeps_what_its_followers_have(partition: Partition) -> None:
    assert not partition.receive_fetch(1, 2, 2)
    partition.register(1, 1)
    assert not partition.take_role(1, fetch_offsets=frozenset({(2, 2)}))


@pytest.mark.parametrize(
    ("is_removed", "known", "is_allowed"),
    [(True, {2, 3}, False), (True, {2}, True), (True, {3}, False), (False, {2, 3}, True), (False, {2}, True)],
)
def test_a_leader_knows_nothing_of_a_replica_that_was_taken_away_and_added_again(
    partition: Partition, is_removed: bool, known: set[int], is_allowed: bool
) -> None:
    """It hears of two changes at once; of a replica outside the ISR it may forget what it knew in any case."""
    assert not partition.fetch(3, 1)
    assert not partition.receive_fetch(1, 2, 2)
    assert not partition.receive_fetch(1, 3, 2)
    both = frozenset({1, 2})
    partition.register(1, 0, both, replicas=both if is_removed else REPLICAS)
    partition.register(1, 1, both)
    offsets = frozenset((node, 2) for node in known)
    assert (partition.take_role(1, fetch_offsets=offsets) == "") == is_allowed


def test_who_has_caught_up_joins_and_who_has_not_leaves(partition: Partition) -> None:
    partition.register(1, 0, isr=frozenset({1, 2}))
    assert not partition.take_role(1)
    assert not partition.receive_fetch(1, 3, 0, pending_isr=REPLICAS)
    partition.register(1, 0)
    assert not partition.take_role(1)
    assert not partition.become(1, pending_isr=frozenset({1, 2}))
    assert not partition.become(1, pending_isr=None)


def test_a_restart_loses_what_was_not_durable_and_the_role(partition: Partition) -> None:
    partition.specification.on_end(2, durable_offset=0)
    root = partition.specification.history.root
    assert not partition.become(2, log=root, **FORGOTTEN)
    assert not partition.take_role(2)


def test_a_replica_that_was_removed_begins_with_an_empty_log(partition: Partition) -> None:
    partition.commit()
    partition.specification.on_end(2, durable_offset=2)
    without = PartitionState(frozenset({1, 3}), frozenset({1, 3}), frozenset(), 1, 0)
    partition.partition_epoch += 1
    partition.specification.history.register(partition.partition_epoch, without)
    partition.register(1, 0)
    assert not partition.take_role(2, log=partition.specification.history.root, high_watermark=0)


def test_a_follower_before_the_start_of_its_leaders_log_starts_over(partition: Partition) -> None:
    partition.commit()
    assert not partition.write(1)
    assert not partition.become(1, log_start_offset=2, pending_isr=frozenset({1, 2}))
    partition.specification.on_log_lost(3)
    assert not partition.become(3, log=partition.specification.history.root, high_watermark=0)
    fresh = partition.log(1).up_to(2)
    assert not partition.become(3, log=fresh, log_start_offset=2, high_watermark=2)


def test_an_unclean_election_takes_away_what_was_committed(partition: Partition) -> None:
    partition.commit()
    partition.specification.on_log_lost(3)
    assert not partition.become(3, log=partition.specification.history.root, high_watermark=0)
    partition.change_leader(3, isr=frozenset({3}), unclean=True)
    assert not partition.write(3)
    assert not partition.become(2, log=partition.specification.history.root, high_watermark=0)


# -- what is not allowed


def lead_for_another(partition: Partition) -> str:
    partition.register(2, 1)
    return partition.take_role(3, leader=3)


def act_on_what_is_not_committed(partition: Partition) -> str:
    return partition.become(2, leader=3, leader_epoch=7, partition_epoch=7)


def go_back_to_an_older_epoch(partition: Partition) -> str:
    partition.change_leader(2)
    return partition.become(3, leader=1, leader_epoch=0, partition_epoch=0)


def lead_with_another_isr(partition: Partition) -> str:
    partition.register(2, 1, isr=frozenset({2, 3}))
    return partition.take_role(2, isr=REPLICAS)


def forget_the_high_watermark(partition: Partition) -> str:
    partition.commit()
    partition.register(2, 1)
    return partition.take_role(2, high_watermark=0)


def append_in_another_epoch(partition: Partition) -> str:
    partition.change_leader(1)
    return partition.become(1, log=partition.batch(1, epoch=0))


def append_what_the_leader_has_not(partition: Partition) -> str:
    return partition.become(2, log=partition.batch(2))


def fetch_from_a_former_leader(partition: Partition) -> str:
    assert not partition.write(1)
    partition.register(2, 1)
    for node in (2, 3):
        assert not partition.take_role(node)
    return partition.fetch(3, 1)


def cut_a_log_that_agrees(partition: Partition) -> str:
    return partition.become(2, log=partition.specification.history.root)


def _part(partition: Partition) -> None:
    """Replica 1 has two batches that the next leader has not."""
    partition.commit()
    assert not partition.write(1)
    assert not partition.write(1)
    partition.change_leader(2)


def cut_one_batch_too_few(partition: Partition) -> str:
    _part(partition)
    return partition.become(1, log=partition.log(1).up_to(4))


def cut_one_batch_too_many(partition: Partition) -> str:
    _part(partition)
    return partition.become(1, log=partition.specification.history.root, high_watermark=0)


def cut_what_is_committed(partition: Partition) -> str:
    partition.commit()
    partition.specification.on_log_lost(3)
    assert not partition.become(3, log=partition.specification.history.root, high_watermark=0)
    partition.change_leader(3)
    return partition.become(2, log=partition.specification.history.root, high_watermark=0)


def commit_what_one_has_not(partition: Partition) -> str:
    return partition.receive_fetch(1, 2, 2, high_watermark=2)


def commit_with_too_few(partition: Partition) -> str:
    partition.register(1, 0, isr=frozenset({1}))
    return partition.take_role(1, high_watermark=2, min_isr=2)


def commit_where_no_log_ends(partition: Partition) -> str:
    assert not partition.fetch(3, 1)
    assert not partition.receive_fetch(1, 3, 2)
    return partition.receive_fetch(1, 2, 2, high_watermark=1)


def go_back_with_the_high_watermark(partition: Partition) -> str:
    partition.commit()
    return partition.become(1, high_watermark=0)


def learn_of_commits_before_the_leader(partition: Partition) -> str:
    return partition.become(2, high_watermark=2)


def learn_beyond_the_own_end(partition: Partition) -> str:
    partition.commit()
    return partition.become(3, high_watermark=4)


def count_a_fetch_of_an_older_epoch(partition: Partition) -> str:
    partition.register(1, 1)
    assert not partition.take_role(1)
    return partition.receive_fetch(1, 2, 2)


def count_a_fetch_that_diverges(partition: Partition) -> str:
    assert not partition.write(1)
    partition.change_leader(2)
    assert not partition.write(2)
    return partition.receive_fetch(2, 1, 4)


def expand_one_batch_early(partition: Partition) -> str:
    partition.register(1, 0, isr=frozenset({1}))
    assert not partition.take_role(1, high_watermark=2)
    return partition.receive_fetch(1, 3, 0, pending_isr=frozenset({1, 3}))


def expand_before_the_epoch_starts(partition: Partition) -> str:
    partition.change_leader(2, isr=frozenset({2}))
    return partition.receive_fetch(2, 3, 0, pending_isr=frozenset({2, 3}))


def shrink_by_one_who_has_all(partition: Partition) -> str:
    assert not partition.receive_fetch(1, 2, 2)
    return partition.become(1, pending_isr=frozenset({1, 3}))


def lose_what_is_durable(partition: Partition) -> str:
    partition.specification.on_end(2, durable_offset=2)
    return partition.become(2, log=partition.specification.history.root, **FORGOTTEN)


def start_over_after_the_start(partition: Partition) -> str:
    assert not partition.write(1)
    return partition.become(3, log=partition.log(1).up_to(2), log_start_offset=2, high_watermark=2)


ILLEGAL: dict[Callable[[Partition], str], str] = {
    lead_for_another: "not BecomeLeaderInNewEpoch: 2 leads epoch 1",
    act_on_what_is_not_committed: "not BecomeFollowerInNewEpoch: the controller has committed no partition epoch 7",
    go_back_to_an_older_epoch: "not BecomeFollowerInNewEpoch: partition epoch 1 is known",
    lead_with_another_isr: "BecomeLeaderInNewEpoch explains it but for this: isr is [1, 2, 3], not [2, 3]",
    forget_the_high_watermark: "BecomeLeaderInNewEpoch explains it but for this: high watermark is 0, not 2",
    append_in_another_epoch: "not WriteRecordToLeader: the leader of epoch 1 appended batches of the epochs [0]",
    append_what_the_leader_has_not: "not ReceiveFetchResponse: a log that ends at 4 in epoch 0 is no part of",
    fetch_from_a_former_leader: "not ReceiveFetchResponse: a log that ends at 4 in epoch 0 is no part of",
    cut_a_log_that_agrees: "not ReceiveFetchResponse: its log agrees with the leader's in epoch 0",
    cut_one_batch_too_few: "not ReceiveFetchResponse: the leader's answer cuts it at 2, not at 4",
    cut_one_batch_too_many: "not ReceiveFetchResponse: the leader's answer cuts it at 2, not at 0",
    cut_what_is_committed: "not ReceiveFetchResponse: 2 is committed, 0 is kept",
    commit_what_one_has_not: "of the maximal ISR [1, 2, 3] have fetched less than 2: {3: -1}",
    commit_with_too_few: "not FencedLeaderIncHighWatermark: 2 are to be in sync (KIP-966), the ISR is [1]",
    commit_where_no_log_ends: "not FencedLeaderIncHighWatermark: no replica's log ends at 1",
    go_back_with_the_high_watermark: "high watermark from 2 to 0",
    learn_of_commits_before_the_leader: "the leader of epoch 0 has committed up to 0, not to 2",
    learn_beyond_the_own_end: "not ReceiveFetchResponse: its log ends at 2, before 4",
    count_a_fetch_of_an_older_epoch: "2 did not have the leader's log up to 2 as a follower in epoch 1",
    count_a_fetch_that_diverges: "1 did not have the leader's log up to 4 as a follower in epoch 1",
    expand_one_batch_early: "3 has fetched up to 0; the high watermark is 2, and epoch 0 starts at 0",
    expand_before_the_epoch_starts: "3 has fetched up to 0; the high watermark is 0, and epoch 1 starts at 2",
    shrink_by_one_who_has_all: "not SendAlterPartitionRequest: 2 has all of the leader's log up to 2",
    lose_what_is_durable: "not UncleanShutdown: the log was durable up to 2, 0 is left",
    start_over_after_the_start: "not ReceiveFetchResponse: the leader's log starts at 0, not yet at 2",
}


@pytest.mark.parametrize("step", ILLEGAL, ids=lambda step: step.__name__)
def test_other_steps_are_told(partition: Partition, step: Callable[[Partition], str]) -> None:
    assert ILLEGAL[step] in step(partition)
