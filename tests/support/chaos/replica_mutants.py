"""Known ways to break the replicas of a partition: the specification of Kafka replication has to tell of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from support.chaos import mutants
from support.chaos.mutants import Mutant, replacing

from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.partition_invariants import PartitionChecker
from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.isr.follower import fetcher_state
from raftwerk.isr.follower.fetcher_state import FetcherState
from raftwerk.isr.leader.follower_progress import FollowerProgress
from raftwerk.isr.leader.isr_state import CommittedIsr, PendingExpandIsr, PendingShrinkIsr
from raftwerk.isr.leader.leader_state import IsrProposal, LeaderState
from raftwerk.isr.partition import Partition
from raftwerk.isr.replica import Replica
from raftwerk.log.durability import Durability
from raftwerk.log.partition_log import PartitionLog
from raftwerk.wire.records import iter_headers

SENTENCE = "each step of a replica is one of its specification"
RECORDS_MAX = 3
"""How many records the producers of a run have in a batch."""
CHECKS = ("after_event", "on_acked", "on_consumed")


def truncate_one_batch_too_few(self: Replica, offset: int) -> None:
    """The first batch that the leader does not have stays, if another one comes after it."""
    log = self.log
    for _, header in iter_headers(log.read(offset, 1, end_offset=log.log_end_offset)):
        offset = header.next_offset if header.next_offset < log.log_end_offset else offset
        break
    ORIGINAL_TRUNCATE(self, offset)


def truncate_one_batch_too_many(self: Replica, offset: int) -> None:
    ORIGINAL_TRUNCATE(self, max(offset - 1, self.log.log_start_offset))


def append_in_the_epoch_before(self: PartitionLog, records: Any, leader_epoch: int, *rest: Any, **named: Any) -> Any:
    is_metadata = "__cluster_metadata" in self.directory
    epoch = leader_epoch if is_metadata else max(leader_epoch - 1, 0)
    return ORIGINAL_APPEND(self, records, epoch, *rest, **named)


def commit_without_the_slowest(self: LeaderState, log_end_offset: int, now_ms: int) -> bool:
    """The high watermark waits for all members of the ISR but one."""
    members = [one for one in self.followers.values() if one.replica_id in self.isr_state.maximal_isr]
    ends = sorted([log_end_offset, *(one.log_end_offset for one in members)])
    return not self.is_under_min_isr and self.watermark.advance(ends[min(1, len(ends) - 1)])


def expand_one_batch_early(self: LeaderState, follower: FollowerProgress) -> IsrProposal | None:
    return _expand(self, follower, max(self.high_watermark, self.leader_epoch_start_offset) - RECORDS_MAX)


def expand_before_the_epoch_starts(self: LeaderState, follower: FollowerProgress) -> IsrProposal | None:
    """KIP-320: the high watermark of a new leader may be behind what the former leader has committed."""
    return _expand(self, follower, self.high_watermark)


def _expand(leader: LeaderState, follower: FollowerProgress, reached: int) -> IsrProposal | None:
    state = leader.isr_state
    if follower.replica_id in state.isr or not isinstance(state, CommittedIsr):
        return None
    if not 0 <= follower.log_end_offset >= reached or not leader._is_eligible(follower):
        return None
    return leader._propose(PendingExpandIsr(state, follower.replica_id))


def shrink_to_the_leader(self: LeaderState, log_end_offset: int, now_ms: int) -> IsrProposal | None:
    """Followers are removed that have everything."""
    state = self.isr_state
    others = tuple(one for one in state.isr if one != self.config.local_id)
    return self._propose(PendingShrinkIsr(state, others)) if others and isinstance(state, CommittedIsr) else None


def commit_to_the_end(self: Partition, leader_high_watermark: int, log_end_offset: int) -> None:
    """A follower takes all that it has fetched for committed."""
    self.watermark.advance(log_end_offset)


def begin_without_a_high_watermark(self: LeaderState, *arguments: Any) -> None:
    """A new leader waits for its followers before it believes that anything is committed."""
    self.watermark.reset(0)
    ORIGINAL_BEGIN(self, *arguments)


def take_every_answer(fetched: Any, asked: Any) -> bool:
    """A follower takes the answer of a leader that it does not follow any more, if it fits the end of its log."""
    replica = fetched.replica
    return replica.partition.leader is None and replica.log_end_offset == asked.fetch_offset and not replica.offline


def forget_the_fsync(self: Durability, target: int) -> None:
    self._synced_up_to(target)


ORIGINAL_TRUNCATE = Replica.truncate_to
ORIGINAL_APPEND = PartitionLog.append_as_leader
ORIGINAL_BEGIN = LeaderState._begin_epoch

MUTANTS = (
    Mutant(
        "truncates one batch too few", replacing(Replica, "truncate_to", truncate_one_batch_too_few), ("elections",)
    ),
    Mutant(
        "truncates one batch too many", replacing(Replica, "truncate_to", truncate_one_batch_too_many), ("elections",)
    ),
    Mutant(
        "truncation by high watermark (KIP-101)",
        replacing(Replica, "make_follower", mutants.truncate_by_high_watermark),
        ("chase",),
    ),
    Mutant(
        "appends in the epoch before",
        replacing(PartitionLog, "append_as_leader", append_in_the_epoch_before),
        ("kill",),
    ),
    Mutant(
        "high watermark of all replicas but one",
        replacing(LeaderState, "maybe_advance_high_watermark", commit_without_the_slowest),
        ("kill",),
    ),
    Mutant(
        "high watermark below min ISR (KAFKA-15583)",
        replacing(LeaderState, "maybe_advance_high_watermark", mutants.high_watermark_of_the_leader_alone),
        ("kill",),
    ),
    Mutant(
        "high watermark past a joining replica (KAFKA-12686)",
        replacing(PendingExpandIsr, "maximal_isr", property(lambda self: self.committed.isr)),
        ("kill",),
    ),
    Mutant(
        "high watermark past a replica that is still in the ISR (KIP-497)",
        replacing(PendingShrinkIsr, "maximal_isr", property(lambda self: self.proposed_isr)),
        ("sessions",),
    ),
    Mutant(
        "a follower takes all that it has for committed",
        replacing(Partition, "learn_high_watermark", commit_to_the_end),
        ("kill",),
    ),
    Mutant(
        "a new leader goes back to high watermark 0",
        replacing(LeaderState, "_begin_epoch", begin_without_a_high_watermark),
        ("kill",),
    ),
    Mutant(
        "a stale fetch is not fenced (KIP-320)",
        replacing(Partition, "check_leader_epoch", mutants.no_fencing),
        ("moves",),
    ),
    Mutant(
        "a leader counts a diverging fetch (KAFKA-13141)",
        replacing(Replica, "_divergence", lambda *_: None),
        ("elections",),
    ),
    Mutant(
        "divergence after a fast double failover (KIP-279)",
        replacing(Replica, "_divergence", mutants.look_at_offsets_only),
        ("elections",),
    ),
    Mutant(
        "answers of a former leader are taken",
        replacing(fetcher_state, "_is_current", take_every_answer),
        ("elections",),
    ),
    Mutant(
        "a follower that is out of range begins at the leader's end",
        replacing(FetcherState, "restart", mutants.begin_at_the_end),
        ("trims",),
    ),
    Mutant(
        "joins the ISR one batch early", replacing(LeaderState, "propose_expand", expand_one_batch_early), ("moves",)
    ),
    Mutant(
        "joins the ISR before the start of the epoch (KIP-320)",
        replacing(LeaderState, "propose_expand", expand_before_the_epoch_starts),
        ("elections",),
    ),
    Mutant(
        "leaves the ISR with all records", replacing(LeaderState, "propose_shrink", shrink_to_the_leader), ("sessions",)
    ),
    Mutant("a log is durable before its fsync", replacing(Durability, "sync", forget_the_fsync), ("power",)),
)


def what_is_broken(mutant: Mutant, seeds: Iterable[int], patch: pytest.MonkeyPatch) -> tuple[int, str] | None:
    """How many runs it took until the specification told of the bug, and what it said; None if it did not.

    The invariants of partitions are not judged, so that a run goes on beyond them.
    """
    for name in CHECKS:
        patch.setattr(PartitionChecker, name, _only_noting(getattr(PartitionChecker, name)))
    mutant.apply(patch)
    count = 0
    for seed in seeds:
        for scenario in mutant.scenarios:
            count += 1
            failure = Run(SCENARIOS[scenario], seed).execute().failure or ""
            if any(text in failure for text in ("TypeError", "AttributeError", "positional argument")):
                raise ValueError(f"the patch does not fit the code: {failure}")
            if failure.startswith(SENTENCE):
                return count, failure
    return None


def _only_noting(check: Any) -> Any:
    def note(*arguments: Any, **named: Any) -> None:
        with suppress(InvariantBroken):
            check(*arguments, **named)

    return note
