"""Steps of a quorum of three voters, allowed ones and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from raftwerk.chaos.specification.quorum.quorum_specification import QuorumSpecification, StoredElection
from raftwerk.chaos.specification.quorum.replica_state import MetadataLog
from raftwerk.raft.types import ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import Voter, VoterSet


def voter_set(*ids: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(each), ()) for each in ids)


class Quorum:
    """Voters 1, 2 and 3. Each method is one event, and returns what the specification says of it."""

    def __init__(self) -> None:
        self.specification = QuorumSpecification()
        for each in (1, 2, 3):
            self.specification.on_start(each, voter_set(1, 2, 3))
            assert not self.become(each, root_voters=voter_set(1, 2, 3))

    def become(self, node_id: int, **changes: Any) -> str:
        """The replica's state changes in these fields; the deviation, or nothing if it is a step."""
        after = replace(self.specification.states[node_id], **changes)
        return str(self.specification.observe(after) or "")

    def log(self, node_id: int) -> MetadataLog:
        return self.specification.states[node_id].log

    def stand(self, node_id: int) -> str:
        epoch = self.specification.states[node_id].epoch
        return self.become(node_id, role=RoleKind.PROSPECTIVE) or self.become(
            node_id, role=RoleKind.CANDIDATE, epoch=epoch + 1, leader=None, voted_for=ReplicaKey(node_id)
        )

    def vote(self, node_id: int, candidate: int) -> str:
        epoch = max(self.specification.states[candidate].epoch, self.specification.states[node_id].epoch)
        unattached: dict[str, Any] = {"role": RoleKind.UNATTACHED, "epoch": epoch, "leader": None}
        return self.become(node_id, voted_for=ReplicaKey(candidate), **unattached)

    def lead(self, node_id: int) -> str:
        """Become the leader, and append the first entry of the epoch."""
        return self.become(node_id, role=RoleKind.LEADER, leader=node_id, log=self.next_entry(node_id))

    def next_entry(self, node_id: int, epoch: int | None = None, voters: VoterSet | None = None) -> MetadataLog:
        log = self.log(node_id)
        own = self.specification.states[node_id].epoch
        return log.follow(log.end_offset + 1, own if epoch is None else epoch, (node_id, voters), voters)

    def follow(self, node_id: int, leader: int, **changes: Any) -> str:
        epoch = self.specification.states[leader].epoch
        same = self.specification.states[node_id].epoch == epoch
        voted_for = self.specification.states[node_id].voted_for if same else None
        return self.become(node_id, role=RoleKind.FOLLOWER, epoch=epoch, leader=leader, voted_for=voted_for, **changes)

    def sync(self, *node_ids: int) -> None:
        """All that these nodes have is on their devices."""
        for each in node_ids:
            self.specification.history.durable[ReplicaKey(each)] = self.log(each)

    def commit(self, node_id: int, offset: int) -> str:
        return self.become(node_id, high_watermark=offset)


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    """Node 1 leads epoch 1, and 2 follows it; nothing is committed."""
    quorum = Quorum()
    assert not quorum.stand(1)
    assert not quorum.vote(2, 1)
    assert not quorum.lead(1)
    assert not quorum.follow(2, 1)
    yield quorum


def test_entries_are_fetched_committed_and_known(quorum: Quorum) -> None:
    assert not quorum.become(2, log=quorum.log(1))
    quorum.sync(1, 2)
    assert not quorum.commit(1, 1)
    assert not quorum.commit(2, 1)
    assert not quorum.follow(3, 1, log=quorum.log(1), high_watermark=1)


def test_a_log_that_parts_is_cut_and_goes_on(quorum: Quorum) -> None:
    assert not quorum.become(1, log=quorum.next_entry(1))
    assert not quorum.follow(3, 1)
    assert not quorum.become(2, role=RoleKind.UNATTACHED)
    assert not quorum.stand(2)
    assert not quorum.vote(3, 2)
    assert not quorum.lead(2)
    assert not quorum.follow(1, 2, log=quorum.specification.root)
    assert not quorum.become(1, log=quorum.log(2))


def test_a_restart_keeps_what_is_durable(quorum: Quorum) -> None:
    durable = quorum.log(1)
    assert not quorum.become(1, log=quorum.next_entry(1))
    quorum.specification.on_end(1, durable)
    quorum.specification.on_start(1, voter_set(1, 2, 3))
    assert not quorum.become(1, role=RoleKind.UNATTACHED, log=durable)


def test_a_removed_voter_no_longer_counts() -> None:
    quorum = Quorum()
    assert not quorum.stand(1) and not quorum.vote(2, 1) and not quorum.lead(1)
    quorum.sync(1)
    assert not quorum.follow(2, 1, log=quorum.log(1))
    quorum.sync(2)
    assert not quorum.commit(1, 1)
    assert not quorum.become(1, log=quorum.next_entry(1, voters=voter_set(1, 2)))
    quorum.sync(1)
    assert "only [1] have the log up to 2" in quorum.commit(1, 2)


def vote_twice(quorum: Quorum) -> str:
    quorum.become(2, role=RoleKind.UNATTACHED)
    quorum.stand(2)
    quorum.vote(3, 2)
    quorum.specification.on_end(1, quorum.log(1))
    quorum.specification.on_start(1, voter_set(1, 2, 3))
    quorum.become(1, role=RoleKind.UNATTACHED)
    quorum.stand(1)
    return quorum.become(3, voted_for=ReplicaKey(1))


def vote_for_a_shorter_log(quorum: Quorum) -> str:
    quorum.become(2, log=quorum.log(1))
    quorum.stand(3)
    quorum.stand(3)
    return quorum.vote(2, 3)


def stand_without_pre_votes(quorum: Quorum) -> str:
    return quorum.become(3, role=RoleKind.CANDIDATE, epoch=1, voted_for=ReplicaKey(3))


def lead_by_a_minority(quorum: Quorum) -> str:
    quorum.stand(3)
    quorum.stand(3)
    return quorum.lead(3)


def invent_an_epoch(quorum: Quorum) -> str:
    return quorum.become(3, epoch=7)


def go_back_to_an_older_epoch(quorum: Quorum) -> str:
    return quorum.become(2, epoch=0, role=RoleKind.UNATTACHED, leader=None, voted_for=None)


def follow_a_node_that_does_not_lead(quorum: Quorum) -> str:
    return quorum.become(3, epoch=1, role=RoleKind.FOLLOWER, leader=2)


def append_for_a_former_leader(quorum: Quorum) -> str:
    return quorum.become(1, log=quorum.next_entry(1, epoch=0))


def append_what_the_leader_has_not(quorum: Quorum) -> str:
    return quorum.become(2, log=quorum.next_entry(2))


def commit_what_only_the_leader_has(quorum: Quorum) -> str:
    quorum.sync(1)
    return quorum.commit(1, 1)


def commit_an_older_epoch_by_count(quorum: Quorum) -> str:
    quorum.become(2, log=quorum.log(1))
    quorum.become(2, role=RoleKind.UNATTACHED)
    quorum.stand(2)
    quorum.vote(1, 2)
    quorum.lead(2)
    quorum.sync(1, 2)
    return quorum.commit(2, 1)


def learn_of_commits_before_the_leader(quorum: Quorum) -> str:
    quorum.become(2, log=quorum.log(1))
    return quorum.commit(2, 1)


def learn_of_commits_where_the_log_is_cut(quorum: Quorum) -> str:
    """The answer that says where to cut does not tell what the cut log may take for committed."""
    quorum.become(2, log=quorum.log(1))
    shared = quorum.log(1)
    quorum.become(1, log=quorum.next_entry(1))
    quorum.become(2, role=RoleKind.UNATTACHED)
    quorum.stand(2)
    quorum.vote(3, 2)
    quorum.lead(2)
    quorum.follow(3, 2, log=quorum.log(2))
    quorum.sync(2, 3)
    quorum.commit(2, 2)
    return quorum.follow(1, 2, log=shared, high_watermark=1)


def cut_a_log_that_agrees(quorum: Quorum) -> str:
    quorum.become(2, log=quorum.log(1))
    return quorum.become(2, log=quorum.specification.root)


def lose_what_is_durable(quorum: Quorum) -> str:
    quorum.specification.on_end(1, quorum.log(1))
    quorum.specification.on_start(1, voter_set(1, 2, 3))
    return quorum.become(1, role=RoleKind.UNATTACHED, log=quorum.specification.root)


def change_two_voters_at_once(quorum: Quorum) -> str:
    commit_the_first_entry(quorum)
    return quorum.become(1, log=quorum.next_entry(1, voters=voter_set(1, 2, 4)))


def change_voters_before_a_commit(quorum: Quorum) -> str:
    return quorum.become(1, log=quorum.next_entry(1, voters=voter_set(1, 2)))


def change_voters_again_before_a_commit(quorum: Quorum) -> str:
    commit_the_first_entry(quorum)
    quorum.become(1, log=quorum.next_entry(1, voters=voter_set(1, 2)))
    return quorum.become(1, log=quorum.next_entry(1, voters=voter_set(1, 2, 4)))


def stand_as_an_observer(quorum: Quorum) -> str:
    commit_the_first_entry(quorum)
    quorum.become(1, log=quorum.next_entry(1, voters=voter_set(1, 2)))
    quorum.sync(1)
    quorum.become(2, log=quorum.log(1))
    quorum.sync(2)
    quorum.commit(1, 2)
    quorum.follow(3, 1, log=quorum.log(1), high_watermark=2)
    return quorum.become(3, role=RoleKind.PROSPECTIVE)


def install_a_snapshot_of_what_is_not_committed(quorum: Quorum) -> str:
    return quorum.follow(3, 1, log=quorum.log(1), log_start=quorum.log(1), high_watermark=1)


def commit_the_first_entry(quorum: Quorum) -> None:
    quorum.become(2, log=quorum.log(1))
    quorum.sync(1, 2)
    quorum.commit(1, 1)


ILLEGAL: dict[Callable[[Quorum], str], str] = {
    vote_twice: "not HandleRequestVoteRequest: its vote in epoch 2 belongs to 2",
    vote_for_a_shorter_log: "the log of 3 ends at (epoch, offset) (0, 0), the voter's own at (1, 1)",
    stand_without_pre_votes: "not RequestVote: no voter can have answered its pre-votes within the same event",
    lead_by_a_minority: "not BecomeLeader: of the voters 1,2,3 only [3] voted for it in epoch 2",
    invent_an_epoch: "not TransitionToUnattached: nobody has begun epoch 7",
    go_back_to_an_older_epoch: "epoch from 1 to 0",
    follow_a_node_that_does_not_lead: "not TransitionToFollower: 2 does not lead epoch 1, but 1",
    append_for_a_former_leader: "not ClientRequest: the leader of epoch 1 appended entries of the epochs [0]",
    append_what_the_leader_has_not: "not HandleSuccessFetchResponse: a log that ends at 1 in epoch 1 is no part of",
    commit_what_only_the_leader_has: "of the voters 1,2,3 only [1] have the log up to 1 on their disks",
    commit_an_older_epoch_by_count: "not AcceptFetchRequestFromVoter: the record before 1 is of an epoch before 2",
    learn_of_commits_before_the_leader: "the leader of epoch 1 has committed up to 0, not to 1",
    learn_of_commits_where_the_log_is_cut: "not HandleDivergingFetchResponse: that answer tells only where to cut",
    cut_a_log_that_agrees: "not HandleDivergingFetchResponse: its log is a prefix of the leader's in epoch 1",
    lose_what_is_durable: "not RestartWithState: the log was durable up to 1, 0 is left",
    change_two_voters_at_once: "not ClientRequest: the voters 1,2,3 became 1,2,4 in one change",
    change_voters_before_a_commit: "not ClientRequest: no record of epoch 1 is committed yet",
    change_voters_again_before_a_commit: "not ClientRequest: the change to 1,2 is not committed yet",
    stand_as_an_observer: "not RequestPreVote (KIP-996): 3 is not among the voters 1,2 of its log",
    install_a_snapshot_of_what_is_not_committed: "the snapshot ends at 1, which is not committed",
}


@pytest.mark.parametrize("step", ILLEGAL, ids=lambda step: step.__name__)
def test_other_steps_are_told(quorum: Quorum, step: Callable[[Quorum], str]) -> None:
    assert ILLEGAL[step] in step(quorum)


def elect_3(quorum: Quorum) -> None:
    """Node 3 has the votes of a majority in epoch 2, and has not taken up that it leads."""
    quorum.become(2, log=quorum.log(1))
    quorum.follow(3, 1, log=quorum.log(1))
    quorum.stand(3)
    assert not quorum.vote(2, 3)


def test_a_process_that_ends_in_the_event_that_elected_it_may_have_begun_its_log_only(quorum: Quorum) -> None:
    elect_3(quorum)
    begun = quorum.next_entry(3)
    quorum.specification.on_end(3, begun)
    assert not quorum.become(3, role=RoleKind.UNATTACHED, log=begun)
    assert quorum.specification.history.epochs[2].leader == 3


def test_a_process_that_was_seen_to_lead_has_stored_it(quorum: Quorum) -> None:
    elect_3(quorum)
    assert not quorum.lead(3)
    quorum.specification.on_end(3, quorum.log(3))
    assert "leader from 3 to None" in quorum.become(3, role=RoleKind.UNATTACHED, leader=None)
    assert not quorum.become(3, role=RoleKind.UNATTACHED)


def test_a_process_that_ended_in_an_event_has_not_forgotten_an_earlier_vote(quorum: Quorum) -> None:
    elect_3(quorum)
    begun = quorum.next_entry(3)
    quorum.specification.on_end(3, begun)
    assert "voted for from 3 to None" in quorum.become(3, role=RoleKind.UNATTACHED, log=begun, voted_for=None)


def test_the_device_must_have_the_vote(quorum: Quorum) -> None:
    state = quorum.specification.states[2]
    assert quorum.specification.stored_differently(state, StoredElection(1, ReplicaKey(1))) is None
    assert "stable storage" in str(quorum.specification.stored_differently(state, StoredElection(1, None)))


def test_committed_logs_that_part_are_told(quorum: Quorum) -> None:
    commit_the_first_entry(quorum)
    other = quorum.specification.root.follow(1, 1, "another batch")
    quorum.specification.history.epochs[1].leaders_log = other
    told = quorum.follow(3, 1, log=other, high_watermark=1)
    assert "not NoLogDivergence" in told


def test_a_leader_without_what_is_committed_is_told(quorum: Quorum) -> None:
    commit_the_first_entry(quorum)
    quorum.stand(3)
    quorum.stand(3)
    quorum.specification.history.epochs[2].votes[ReplicaKey(2)] = ReplicaKey(3)
    assert "not LeaderHasAllAckedValues" in quorum.lead(3)


def test_others_may_hear_of_a_leader_that_ends_in_the_event_that_elected_it(quorum: Quorum) -> None:
    elect_3(quorum)
    hears: dict[str, Any] = {"role": RoleKind.FOLLOWER, "epoch": 2, "leader": 3, "voted_for": None}
    assert quorum.become(1, **hears)
    assert quorum.specification.on_end_as_leader(3, 2) is None
    quorum.specification.on_end(3, quorum.log(3))
    assert not quorum.become(1, **hears)
    assert not quorum.become(3, role=RoleKind.UNATTACHED, leader=None), "its state was not stored"


def test_who_has_no_majority_is_not_elected_at_its_end_either(quorum: Quorum) -> None:
    quorum.follow(3, 1)
    assert not quorum.stand(3)
    assert "only [3] voted for it" in str(quorum.specification.on_end_as_leader(3, 2))
