"""The leader's arithmetic against naive oracles, and each rule of the ISR by example."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.isr.replicas import FakeBrokers, fetch, new_leader

from raftwerk.isr.leader.follower_progress import FollowerProgress
from raftwerk.isr.leader.isr_state import CommittedIsr, PendingExpandIsr, PendingShrinkIsr
from raftwerk.isr.leader.leader_state import AlterPartitionResult, IsrProposal, LeaderState
from raftwerk.wire.errors import ErrorCode, ProtocolError


def committed(isr: tuple[int, ...], partition_epoch: int = 11, leader_epoch: int = 5) -> AlterPartitionResult:
    return AlterPartitionResult(0, 1, leader_epoch, isr, partition_epoch)


# ------------------------------------------------------------------ high watermark


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    step = st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("fetch"), st.sampled_from([2, 3, 4]), st.integers(0, 12)),
        st.tuples(st.just("wait"), st.integers(1, 900)),
        st.tuples(st.just("shrink")),
        st.tuples(st.just("answer"), st.sampled_from(["ok", "lost", "refused", "stale"])),
        st.tuples(st.just("metadata"), st.booleans()),
        st.tuples(st.just("eligible"), st.sampled_from([2, 3, 4]), st.booleans()),
    )
    return draw(st.lists(step, max_size=60))


class Oracle:
    """Follows a leader from outside, keeping every fact in the plainest form, and recomputes the rules."""

    def __init__(self, min_isr: int) -> None:
        self.brokers = FakeBrokers({1: 101, 2: 102, 3: 103, 4: 104})
        self.leader = new_leader((1, 2, 3, 4), (1, 2, 3), min_isr=min_isr, brokers=self.brokers)
        self.min_isr = min_isr
        self.end = 0
        self.now = 0
        self.proposals: list[IsrProposal] = []

    def check(self, before: int) -> None:
        leader = self.leader
        isr = leader.isr_state
        assert leader.high_watermark >= before, "the high watermark is monotone at a leader"
        assert set(isr.isr) <= set(isr.maximal_isr)
        if leader.high_watermark > before:
            assert len(isr.isr) >= min(self.min_isr, 4), "it moves only with enough in sync"
            for replica in isr.maximal_isr:
                if replica != 1:
                    assert leader.followers[replica].log_end_offset >= leader.high_watermark
        naive = min([self.end] + [f.log_end_offset for f in leader.followers.values() if self._counts(f)])
        if len(isr.isr) >= min(self.min_isr, 4):
            leader.maybe_advance_high_watermark(self.end, self.now)
            assert leader.high_watermark == max(before, naive)

    def _counts(self, follower: FollowerProgress) -> bool:
        if follower.replica_id in self.leader.isr_state.maximal_isr:
            return True
        caught_up = follower.last_caught_up_ms is not None and self.now - follower.last_caught_up_ms <= 1000
        eligible = follower.broker_epoch is not None and follower.replica_id not in self.brokers.ineligible
        fetches = follower.last_fetch_ms is not None and self.now - follower.last_fetch_ms <= 1000
        return eligible and fetches and (caught_up or follower.log_end_offset == self.end)

    def step(self, step: tuple[Any, ...]) -> None:
        leader = self.leader
        if step[0] == "append":
            self.end += step[1]
            leader.maybe_advance_high_watermark(self.end, self.now)
        elif step[0] == "fetch":
            offset = min(self.end, max(leader.followers[step[1]].log_end_offset, 0) + step[2])
            self._note(fetch(leader, step[1], offset, self.end, self.now))
        elif step[0] == "wait":
            self.now += step[1]
        elif step[0] == "shrink":
            self._note(leader.propose_shrink(self.end, self.now))
        elif step[0] == "answer" and self.proposals:
            self._answer(step[1])
        elif step[0] == "metadata":
            self._metadata(drop_last=step[1])
        elif step[0] == "eligible":
            self.brokers.ineligible.pop(step[1], None) if step[2] else self.brokers.ineligible.update({step[1]: None})

    def _note(self, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            assert self.leader.isr_state is proposal.state
            self.proposals.append(proposal)

    def _answer(self, kind: str) -> None:
        proposal = self.proposals[-1]
        epoch = proposal.partition_epoch + 1
        members = tuple(replica for replica, _ in proposal.new_isr)
        results = {
            "ok": committed(members, epoch),
            "lost": AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION),
            "refused": AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA),
            "stale": AlterPartitionResult(ErrorCode.INVALID_UPDATE_VERSION),
        }
        self.leader.on_alter_partition_result(proposal, results[kind], self.end, self.now)

    def _metadata(self, *, drop_last: bool) -> None:
        isr = self.leader.isr_state.isr
        if drop_last and len(isr) > 1:
            isr = tuple(replica for replica in isr if replica != max(isr))
        self.leader.on_registration((1, 2, 3, 4), isr, (5, self.leader.partition_epoch + 1), self.end, self.now)


@given(histories(), st.integers(1, 4))
def test_high_watermark_follows_the_naive_rule(history: list[tuple[Any, ...]], min_isr: int) -> None:
    oracle = Oracle(min_isr)
    for step in history:
        before = oracle.leader.high_watermark
        oracle.step(step)
        oracle.check(before)


def test_the_high_watermark_waits_for_a_pending_expansion() -> None:
    leader = new_leader(isr=(1, 2))
    fetch(leader, 2, 10, 10, 1)
    assert leader.high_watermark == 10
    proposal = fetch(leader, 3, 10, 10, 2)
    assert proposal is not None and isinstance(leader.isr_state, PendingExpandIsr)
    assert proposal.new_isr == ((1, 101), (2, 102), (3, 103))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)
    fetch(leader, 2, 20, 20, 3)
    assert leader.high_watermark == 10, "the new member may be in the ISR already"


def test_pending_shrink_still_waits_for_the_replica() -> None:
    leader = new_leader()
    for replica in (2, 3):
        fetch(leader, replica, 5, 5, 0)
    fetch(leader, 2, 9, 9, 2000)
    proposal = leader.propose_shrink(9, 2000)
    assert proposal is not None and proposal.new_isr == ((1, 101), (2, 102))
    pending_state = leader.isr_state
    assert isinstance(pending_state, PendingShrinkIsr)
    leader.maybe_advance_high_watermark(9, 2000)
    assert leader.high_watermark == 5
    assert not leader.on_alter_partition_result(proposal, committed((1, 2)), 9, 2001)
    assert leader.high_watermark == 5, "min.insync.replicas may have risen, and 3 be eligible to lead"
    leader.on_registration((1, 2, 3), (1, 2), (leader.leader_epoch, leader.partition_epoch + 1), 9, 2002)
    assert leader.high_watermark == 9
    assert leader.isr_state == CommittedIsr((1, 2))


def test_replicas_that_a_reassignment_adds_are_not_missing() -> None:
    leader = new_leader((1, 2, 3), (1, 2, 3))
    leader.on_registration((1, 2, 3, 4, 5), (1, 2, 3), (5, 11), 0, 0, (4, 5))
    assert not leader.is_under_replicated
    leader.on_registration((1, 2, 3, 4, 5), (1, 3), (5, 12), 0, 0, (4, 5))
    assert leader.is_under_replicated
    leader.on_registration((1, 2, 3, 4, 5), (1, 3, 4), (5, 13), 0, 0, (4, 5))
    assert not leader.is_under_replicated, "Apache Kafka counts, too"
    leader.on_registration((1, 4, 5), (1, 4), (5, 14), 0, 0)
    assert leader.is_under_replicated


def test_the_high_watermark_stands_still_below_min_isr() -> None:
    leader = new_leader(isr=(1,), min_isr=2)
    assert not leader.maybe_advance_high_watermark(10, 0)
    proposal = fetch(leader, 2, 10, 10, 1)
    assert proposal is not None
    assert leader.high_watermark == 0, "a pending member does not make up the number"
    leader.on_alter_partition_result(proposal, committed((1, 2)), 10, 2)
    assert leader.high_watermark == 10


def test_min_isr_is_capped_by_the_number_of_replicas() -> None:
    leader = new_leader((1,), (1,), min_isr=3)
    assert leader.maybe_advance_high_watermark(4, 0)
    assert leader.high_watermark == 4


def test_new_leader_knows_no_follower_position() -> None:
    leader = new_leader(log_end_offset=30, high_watermark=12)
    assert leader.high_watermark == 12
    assert leader.leader_epoch_start_offset == 30
    assert all(follower.log_end_offset == -1 for follower in leader.followers.values())


def test_offsets_survive_into_the_next_own_epoch_but_not_over_a_gap() -> None:
    leader = new_leader()
    fetch(leader, 2, 7, 9, 1)
    leader.on_registration((1, 2, 3), (1, 2, 3), (6, 11), 9, 2)
    assert leader.followers[2].log_end_offset == 7
    leader.on_registration((1, 2, 3), (1, 2, 3), (8, 13), 9, 3)
    assert leader.followers[2].log_end_offset == -1, "somebody else may have led in epoch 7"


# ------------------------------------------------------------------ who may join


@pytest.mark.parametrize(("changes", "offset"), [(1, 5), (2, -1)])
def test_a_replica_may_have_been_taken_away_and_added_again_between_two_changes(changes: int, offset: int) -> None:
    """Of a replica outside the ISR, the offset stays known over a single change of the partition only."""
    leader = new_leader((1, 2, 3), (1, 2))
    fetch(leader, 2, 5, 5, 0)
    fetch(leader, 3, 5, 5, 0)
    epochs = (leader.leader_epoch, leader.partition_epoch + changes)
    leader.on_registration((1, 2, 3), (1, 2), epochs, 5, 100)
    assert leader.followers[2].log_end_offset == 5
    assert leader.followers[3].log_end_offset == offset
    assert (leader.propose_expand(leader.followers[3]) is not None) == (changes == 1)


def test_join_needs_the_start_of_the_leaders_epoch() -> None:
    leader = new_leader(isr=(1, 2), log_end_offset=30, high_watermark=12)
    assert fetch(leader, 3, 29, 30, 1) is None
    assert fetch(leader, 3, 30, 30, 2) is not None


def test_fenced_or_restarted_broker_does_not_join() -> None:
    brokers = FakeBrokers({1: 101, 2: 102, 3: 103}, {3: None})
    leader = new_leader(isr=(1, 2), brokers=brokers)
    assert fetch(leader, 3, 0, 0, 1) is None
    brokers.ineligible.clear()
    brokers.epochs[3] = 999
    with pytest.raises(ProtocolError) as refused:
        fetch(leader, 3, 0, 0, 2)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(leader, 3, 0, 0, 3, epoch=999) is not None


def test_fetch_of_an_incarnation_newer_than_the_metadata_counts_but_does_not_join() -> None:
    leader = new_leader(isr=(1, 2))
    assert fetch(leader, 3, 0, 0, 1, epoch=500) is None
    assert leader.followers[3].log_end_offset == 0


def test_a_broker_without_a_replica_is_refused() -> None:
    with pytest.raises(ProtocolError) as refused:
        fetch(new_leader(), 9, 0, 0, 1)
    assert refused.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


# ------------------------------------------------------------------ lag


def test_follower_that_keeps_pace_under_load_stays_in() -> None:
    leader = new_leader(isr=(1, 2), replicas=(1, 2))
    for tick in range(1, 50):
        fetch(leader, 2, (tick - 1) * 10, tick * 10, tick * 100)
        assert leader.propose_shrink(tick * 10 + 5, tick * 100) is None


def test_follower_that_stops_leaves_the_isr_after_the_lag_time_only() -> None:
    leader = new_leader(isr=(1, 2), replicas=(1, 2))
    fetch(leader, 2, 10, 10, 500)
    assert leader.propose_shrink(11, 1500) is None
    assert leader.propose_shrink(11, 1501) is not None


def test_silent_follower_at_the_log_end_stays_in_the_isr() -> None:
    leader = new_leader(isr=(1, 2), replicas=(1, 2))
    fetch(leader, 2, 10, 10, 500)
    assert leader.propose_shrink(10, 99_999) is None


def test_member_that_never_fetched_gets_one_lag_time() -> None:
    leader = new_leader(log_end_offset=3)
    assert leader.propose_shrink(3, 1000) is None
    proposal = leader.propose_shrink(3, 1001)
    assert proposal is not None and proposal.new_isr == ((1, 101),)


# ------------------------------------------------------------------ answers of the controller


def pending() -> tuple[LeaderState, IsrProposal]:
    leader = new_leader(isr=(1, 2))
    fetch(leader, 2, 4, 4, 1)
    proposal = fetch(leader, 3, 4, 4, 2)
    assert proposal is not None
    return leader, proposal


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_final_refusal_resets_to_the_committed_isr(code: ErrorCode) -> None:
    leader, proposal = pending()
    assert not leader.on_alter_partition_result(proposal, AlterPartitionResult(code), 4, 3)
    assert leader.isr_state == CommittedIsr((1, 2))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_a_conflict_stays_pending_until_metadata_comes(code: ErrorCode) -> None:
    leader, proposal = pending()
    assert not leader.on_alter_partition_result(proposal, AlterPartitionResult(code), 4, 3)
    pending_state = leader.isr_state
    assert isinstance(pending_state, PendingExpandIsr)
    leader.on_registration((1, 2, 3), (1, 2, 3), (5, 11), 4, 4)
    assert leader.isr_state == CommittedIsr((1, 2, 3))


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH],
)
def test_after_a_transient_error_the_proposal_is_sent_again(code: ErrorCode) -> None:
    leader, proposal = pending()
    assert leader.on_alter_partition_result(proposal, AlterPartitionResult(code), 4, 3)
    assert isinstance(leader.isr_state, PendingExpandIsr)


def test_answer_after_newer_metadata_is_ignored() -> None:
    leader, proposal = pending()
    leader.on_registration((1, 2, 3), (1,), (5, 11), 4, 3)
    assert not leader.on_alter_partition_result(proposal, committed((1, 2, 3)), 4, 4)
    assert leader.isr_state == CommittedIsr((1,))


def test_metadata_that_repeats_the_answer_keeps_the_next_proposal() -> None:
    """KAFKA-12686: else the high watermark passes a replica that the controller is just letting in."""
    leader, proposal = pending()
    leader.on_alter_partition_result(proposal, committed((1, 2, 3)), 4, 3)
    fetch(leader, 2, 9, 9, 2000)
    shrink = leader.propose_shrink(9, 2000)
    assert shrink is not None
    leader.on_registration((1, 2, 3), (1, 2, 3), (5, 11), 9, 2001)
    assert leader.isr_state is shrink.state


def test_answer_of_another_epoch_changes_nothing() -> None:
    leader, proposal = pending()
    leader.on_alter_partition_result(proposal, committed((1, 2, 3), leader_epoch=6), 4, 3)
    assert isinstance(leader.isr_state, PendingExpandIsr)


def test_one_proposal_at_a_time() -> None:
    leader, _ = pending()
    assert leader.propose_shrink(99, 99_999) is None


def test_a_replica_that_is_back_and_does_not_fetch_is_not_waited_for() -> None:
    """It was caught up before it was fenced, and its lag time is not over; its next fetch would be its first."""
    leader = new_leader((1, 2, 3), (1, 2, 3), lag_ms=30_000)
    for replica in (2, 3):
        fetch(leader, replica, 10, 10, 100)
    leader.on_registration((1, 2, 3), (1, 2), (5, 11), 10, 200)
    fetch(leader, 2, 20, 20, 201)
    assert leader.high_watermark == 20


def test_a_replica_that_was_in_sync_long_ago_has_to_catch_up_again() -> None:
    """What it was before it left the ISR says nothing of how long it needs now; when it is at the end, it is let in."""
    leader = new_leader((1, 2, 3), (1, 2, 3), lag_ms=30_000)
    for replica in (2, 3):
        fetch(leader, replica, 10, 10, 100)
    leader.on_registration((1, 2, 3), (1, 2), (5, 11), 10, 200)
    fetch(leader, 2, 1000, 1000, 300)
    for offset in range(10, 1000, 90):
        assert fetch(leader, 3, offset, 1000, 300 + offset) is None
        assert not leader.waits_for(3, 1000, 300 + offset)
    fetch(leader, 2, 1001, 1001, 1400)
    assert leader.high_watermark == 1001
    assert fetch(leader, 3, 1000, 1001, 1401) is None, "it has what was there at its last fetch"
    assert leader.waits_for(3, 1001, 1402), "so it keeps pace, and is to come in"
    assert fetch(leader, 3, 1001, 1001, 1402) is not None


def test_a_replica_that_keeps_pace_and_stops_to_fetch_is_not_waited_for_long() -> None:
    leader = new_leader((1, 2, 3, 4), (1, 2, 3, 4), lag_ms=30_000)
    for replica in (2, 3, 4):
        fetch(leader, replica, 10, 10, 100)
    leader.on_registration((1, 2, 3, 4), (1, 2), (5, 11), 10, 200)
    proposal = fetch(leader, 3, 10, 10, 250)
    assert proposal is not None
    assert fetch(leader, 4, 10, 10, 250) is None, "one change at a time"
    leader.on_alter_partition_result(proposal, AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA), 10, 260)
    fetch(leader, 2, 20, 20, 2_250)
    assert leader.high_watermark == 10, "they may be about to join"
    fetch(leader, 2, 21, 21, 2_251)
    assert leader.high_watermark == 21


# ------------------------------------------------------------------ what a proposal says


def test_a_proposal_names_the_epoch_of_each_member_as_far_as_the_leader_knows_it() -> None:
    """The controller refuses a member that was restarted meanwhile (KIP-903). -1 is one that has not fetched yet."""
    leader = new_leader(isr=(1, 2))
    proposal = fetch(leader, 3, 0, 0, 1)
    assert proposal is not None
    assert proposal.new_isr == ((1, 101), (2, -1), (3, 103))
    unregistered = new_leader(isr=(1, 2), brokers=FakeBrokers({2: 102, 3: 103}))
    proposal = fetch(unregistered, 3, 0, 0, 1)
    assert proposal is not None
    assert proposal.new_isr[0] == (1, -1)


def test_a_replica_joins_when_it_has_all_that_is_committed() -> None:
    leader = new_leader(isr=(1, 2))
    fetch(leader, 2, 10, 15, 1)
    assert leader.high_watermark == 10
    assert fetch(leader, 3, 9, 15, 2) is None
    assert fetch(leader, 3, 10, 15, 3) is not None


def test_a_follower_that_does_not_tell_its_epoch_is_not_refused() -> None:
    """It runs a version that does not know the field."""
    leader = new_leader(isr=(1, 2))
    assert fetch(leader, 2, 3, 5, 1, epoch=-1) is None
    assert leader.followers[2].log_end_offset == 3
    unregistered = new_leader(isr=(1, 2), brokers=FakeBrokers({1: 101}))
    assert fetch(unregistered, 2, 3, 5, 1, epoch=7) is None
    assert unregistered.followers[2].log_end_offset == 3, "its registration is on the way"


@pytest.mark.parametrize(("partition_epoch", "isr"), [(9, (1, 2)), (10, (1, 2, 3)), (11, (1, 2, 3))])
def test_an_answer_counts_unless_the_leader_knows_a_later_change_of_the_partition(
    partition_epoch: int, isr: tuple[int, ...]
) -> None:
    leader, proposal = pending()
    leader.on_alter_partition_result(proposal, committed((1, 2, 3), partition_epoch), 4, 3)
    assert leader.isr_state.isr == isr
    assert leader.partition_epoch == max(partition_epoch, 10)


def test_a_replica_that_the_controller_refuses_and_that_stops_to_fetch_is_waited_for_no_more() -> None:
    leader, proposal = pending()
    fetch(leader, 2, 9, 9, 4999)
    assert leader.high_watermark == 4, "the controller may have let it in"
    leader.on_alter_partition_result(proposal, AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA), 9, 5000)
    assert leader.high_watermark == 9
