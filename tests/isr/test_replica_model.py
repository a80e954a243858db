"""Hundreds of seeded histories of a three-replica partition, and a check that the checks bite."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.isr.replica_model import run_seed

from raftwerk.isr import replica
from raftwerk.isr.leader.follower_progress import FollowerProgress
from raftwerk.isr.leader.isr_state import CommittedIsr, PendingExpandIsr, PendingShrinkIsr
from raftwerk.isr.leader.leader_state import IsrProposal, LeaderState
from raftwerk.isr.replica import Replica
from raftwerk.isr.results import FetchParams
from raftwerk.log.log_divergence import truncation_offset
from raftwerk.wire.fetch import FetchPartition
from raftwerk.wire.types import EpochEndOffset


@pytest.mark.parametrize("chunk", range(8))
def test_partition_invariants_hold(chunk: int) -> None:
    acked = 0
    for seed in range(chunk * 50, chunk * 50 + 50):
        acked += len(run_seed(seed, 250, min_isr=1 + seed % 2).acked)
    assert acked > 50, "the histories get something done"


def test_epochs_that_a_leader_did_not_see() -> None:
    """Seed 158 led to a lost record when offsets of followers outlived a leader in between."""
    run_seed(158, 500)


def test_same_seed_same_history() -> None:
    assert run_seed(5).trace == run_seed(5).trace


def _truncate_to_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """KIP-101."""
    original = Replica.make_follower

    def make_follower(self: Replica, registration: object) -> bool:
        changed = original(self, registration)  # type: ignore[arg-type]
        if changed:
            self.truncate_to(self.high_watermark)
        return changed

    patch.setattr(Replica, "make_follower", make_follower)


def _count_diverging_fetches(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-13141."""
    original = Replica.on_fetch

    def on_fetch(self: Replica, params: FetchParams, request: FetchPartition, now_ms: int) -> IsrProposal | None:
        leader = self.partition.leader
        if leader is not None and params.replica_id in leader.followers:
            leader.followers[params.replica_id].log_end_offset = request.fetch_offset
            leader.maybe_advance_high_watermark(self.log_end_offset, now_ms)
        return original(self, params, request, now_ms)

    patch.setattr(Replica, "on_fetch", on_fetch)


def _ignore_pending_expansion(patch: pytest.MonkeyPatch) -> None:
    """KIP-497's maximal ISR left out."""
    patch.setattr(PendingExpandIsr, "proposed_isr", property(lambda self: (*self.committed.isr, self.new_replica)))
    patch.setattr(PendingExpandIsr, "maximal_isr", property(lambda self: self.committed.isr))
    patch.setattr(LeaderState, "_is_joining", lambda *_: False)


def _shrink_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingShrinkIsr, "maximal_isr", property(lambda self: self.proposed_isr))


def _ignore_min_isr(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-15583."""
    patch.setattr(LeaderState, "is_under_min_isr", property(lambda self: False))


def _truncate_to_the_leaders_offset_only(patch: pytest.MonkeyPatch) -> None:
    """KIP-279."""
    truncation = truncation_offset

    def decide(leader: EpochEndOffset, local: EpochEndOffset, start: int, end: int) -> int:
        return truncation(leader, leader, start, end)

    patch.setattr(replica, "truncation_offset", decide)


def _let_in_before_caught_up(patch: pytest.MonkeyPatch) -> None:
    def propose(self: LeaderState, follower: FollowerProgress) -> IsrProposal | None:
        state = self.isr_state
        if follower.replica_id in state.isr or not isinstance(state, CommittedIsr):
            return None
        return self._propose(PendingExpandIsr(state, follower.replica_id)) if self._is_eligible(follower) else None

    patch.setattr(LeaderState, "propose_expand", propose)


@pytest.mark.parametrize(
    "break_it",
    [
        _truncate_to_high_watermark,
        _count_diverging_fetches,
        _ignore_pending_expansion,
        _shrink_before_it_is_committed,
        _ignore_min_isr,
        _truncate_to_the_leaders_offset_only,
        _let_in_before_caught_up,
    ],
)
def test_historic_bugs_are_caught(break_it: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        with pytest.raises(AssertionError):
            for seed in range(400):
                run_seed(seed, 400, min_isr=1 + seed % 2)
