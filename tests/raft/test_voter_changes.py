"""Voters come and go under seeded faults; and bugs in that, put in on purpose, are caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.raft.memory_log import MemoryLog
from support.raft.voters_simulation import simulate

from raftwerk.raft.quorum import quorum
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.quorum.quorum_state import QuorumState
from raftwerk.raft.replication.replica_progress import ProgressTracker
from raftwerk.raft.roles import Follower
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters import voter_changes
from raftwerk.raft.voters.voter_changes import LeaderStanding
from raftwerk.raft.voters.voter_set import NO_VOTERS, VersionRange, VoterHistory, VoterSet
from raftwerk.wire.errors import ErrorCode, ProtocolError

SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", range(0, 80, SEEDS_A_TEST))
def test_seeds(first: int) -> None:
    elections = committed = changes = wiped = 0
    for seed in range(first, first + SEEDS_A_TEST):
        try:
            sim = simulate(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        elections += sim.elections
        committed += len(sim.committed)
        changes += sim.changes_done
        wiped += sim.wiped
    assert elections > SEEDS_A_TEST, "the histories have elections in them"
    assert changes > SEEDS_A_TEST // 2, "voters come and go"
    assert wiped > SEEDS_A_TEST // 4, "disks are lost"
    assert committed > 10 * SEEDS_A_TEST, "the histories commit records"


def count_a_leader_that_is_no_voter(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-16530."""
    patch.setattr(ProgressTracker, "leader_is_voter", True)


def take_votes_for_a_former_self(patch: pytest.MonkeyPatch) -> None:
    def receiver_error(config: Any, cluster_id: str | None, receiver: Any) -> ErrorCode:
        mistaken = receiver.id >= 0 and receiver.id != config.node_id
        return ErrorCode.INVALID_VOTER_KEY if mistaken else ErrorCode.NONE

    patch.setattr(quorum, "receiver_error", receiver_error)


def count_fetches_of_a_former_self(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterSet, "is_voter", lambda self, replica: self.get(replica.id) is not None)


def two_changes_at_once(patch: pytest.MonkeyPatch) -> None:
    original = voter_changes.check_ready

    def check_ready(standing: LeaderStanding) -> None:
        original(replace(standing, has_pending_change=False, history=VoterHistory()))

    patch.setattr(voter_changes, "check_ready", check_ready)


def change_before_a_commit_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """The bug in single-server membership changes (Ongaro, 2015)."""
    original = voter_changes.check_ready

    def check_ready(standing: LeaderStanding) -> None:
        original(replace(standing, epoch_start_offset=-1))

    patch.setattr(voter_changes, "check_ready", check_ready)


def keep_voters_that_were_truncated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterHistory, "truncate_to", lambda self, end_offset: None)


def forget_voters_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    original = MemoryLog._read_voters

    def read_voters(self: MemoryLog) -> None:
        original(self)
        if self.start.end_offset:
            self.voters.start_from(0, self.formatted)

    patch.setattr(MemoryLog, "_read_voters", read_voters)


def removed_leaders_never_stand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumState, "may_stand", property(lambda self: self.is_voter))


def only_known_voters_get_votes(patch: pytest.MonkeyPatch) -> None:
    """A voter that does not know yet that it is one refuses its vote."""
    original = Quorum.on_vote

    def on_vote(self: Any, vote: Any, now_ms: int) -> Any:
        if not self.state.is_voter or not self.state.voters.is_voter(vote.candidate):
            return self.state.vote_reply(ErrorCode.INCONSISTENT_VOTER_SET, granted=False)
        return original(self, vote, now_ms)

    patch.setattr(Quorum, "on_vote", on_vote)


def acknowledge_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    """An observer that is about to be a voter tells of records that are not on its disk."""

    fetch = Follower._fetch

    def early(self: Any, now_ms: int) -> None:
        if self.quorum.is_voter:
            fetch(self, now_ms)
        else:
            self.fetch_sent_ms = self.next_fetch_ms = now_ms
            self.fetch_id = self.quorum.send_fetch(self.leader_id, self.leader_endpoint, max_wait_ms=500)

    patch.setattr(Follower, "_fetch", early)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    count_a_leader_that_is_no_voter,
    take_votes_for_a_former_self,
    count_fetches_of_a_former_self,
    two_changes_at_once,
    change_before_a_commit_of_its_own,
    keep_voters_that_were_truncated,
    forget_voters_of_snapshots,
    removed_leaders_never_stand,
    only_known_voters_get_votes,
    acknowledge_before_the_disk,
]


FIRST_SEED = {"take_votes_for_a_former_self": 30, "forget_voters_of_snapshots": 90}
"""Where the rare ones are known to be caught soon, to spare the time."""


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_mutant_is_caught(mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    first = FIRST_SEED.get(mutate.__name__, 0)
    for seed in range(first, first + 400):
        try:
            simulate(seed)
        except Exception:
            return
    raise AssertionError("not caught in 400 seeds")


@pytest.mark.parametrize("is_back", [False, True])
def test_a_disk_that_is_gone_gets_no_vote(is_back: bool) -> None:
    old, new = ReplicaKey(4, UUID(int=1)), ReplicaKey(4, UUID(int=2))
    replicas = ProgressTracker(ReplicaKey(1), NO_VOTERS)
    replicas.progress_of(old).last_fetch_ms = replicas.progress_of(old).last_caught_up_ms = 100
    if is_back:
        replicas.progress_of(new).last_fetch_ms = 200
        with pytest.raises(ProtocolError, match="does not fetch with this directory id"):
            voter_changes.check_probed(replicas, old, VersionRange(0, 1), 300, 1_000)
    else:
        voter_changes.check_probed(replicas, old, VersionRange(0, 1), 300, 1_000)
