"""Known ways to break a quorum, as patches on its core: the simulations must find each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from support.raft import simulation as raft_sim
from support.raft.memory_log import MemoryLog

from raftwerk.raft.quorum import high_watermark
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.quorum.quorum_state import QuorumState
from raftwerk.raft.replication import divergence
from raftwerk.raft.replication.fetch_answers import snapshot_answer
from raftwerk.raft.roles import Candidate, Follower, Unattached, epoch_election, follower, leader
from raftwerk.raft.roles.nominee import Nominee
from raftwerk.wire.types import EpochEndOffset, SnapshotId

Mutate = Callable[[pytest.MonkeyPatch], None]


def vote_for_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unattached, "can_grant", lambda self, vote, log_is_up_to_date, now_ms: log_is_up_to_date)
    patch.setattr(Candidate, "can_grant", lambda self, vote, log_is_up_to_date, now_ms: log_is_up_to_date)


def forget_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumState, "_persist", lambda self: None)


def vote_for_short_logs(patch: pytest.MonkeyPatch) -> None:
    original = Unattached.can_grant
    patch.setattr(Unattached, "can_grant", lambda self, vote, up_to_date, now_ms: original(self, vote, True, now_ms))


def commit_older_epochs_by_count(patch: pytest.MonkeyPatch) -> None:
    original = high_watermark.next_high_watermark
    patch.setattr(high_watermark, "next_high_watermark", lambda current, ends, start: original(current, ends, -1))


def count_what_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    class Optimist:
        """Takes what is written for what is durable."""

        def __init__(self, log: Any) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, "end_offset" if name == "durable_offset" else name)

    patch.setattr(raft_sim, "Quorum", lambda config, log, state, rng: Quorum(config, Optimist(log), state, rng))


def count_diverging_fetches(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-13141."""
    patch.setattr(divergence, "diverging_epoch", lambda log, fetch: None)


def never_truncate_by_epoch(patch: pytest.MonkeyPatch) -> None:
    def by_offset_only(log: Any, fetch: Any) -> EpochEndOffset | None:
        return EpochEndOffset(log.last_epoch, log.end_offset) if fetch.fetch_offset > log.end_offset else None

    patch.setattr(divergence, "diverging_epoch", by_offset_only)


def cut_at_the_end_of_another_epoch(patch: pytest.MonkeyPatch) -> None:
    """To save a round; that end may lie within a batch."""
    original = divergence.truncation_offset
    patch.setattr(follower, "truncation_offset", lambda log, end: min(original(log, end), end.end_offset))


def count_votes_of_any_round(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Nominee, "_is_of_this_round", lambda self, sent: sent.request.pre_vote == self.is_pre_vote)


def take_any_fetch_reply(patch: pytest.MonkeyPatch) -> None:
    """A follower takes the late answer of a leader that it does not follow any more."""
    original = Follower.on_fetch_reply

    def take(self: Follower, sent: Any, reply: Any, now_ms: int) -> None:
        self.fetch_id = sent.id
        original(self, sent, reply, now_ms)

    patch.setattr(Follower, "on_fetch_reply", take)


def minority_elects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(epoch_election, "majority_size", lambda voters: max(1, voters // 2))


def name_snapshots_one_too_far(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-14618."""
    patch.setattr(raft_sim, "snapshot_id", lambda entries, end: SnapshotId(end + 1, entries[end - 1].epoch))


def name_snapshots_one_too_near(patch: pytest.MonkeyPatch) -> None:
    original = MemoryLog.take_snapshot

    def take(self: MemoryLog, snapshot_id: SnapshotId, *, kept: int) -> None:
        original(self, SnapshotId(snapshot_id.end_offset - 1, snapshot_id.epoch), kept=kept)
        self.snapshots = {name: tuple(self.entries[: name.end_offset + 1]) for name in self.snapshots}

    patch.setattr(MemoryLog, "take_snapshot", take)


def snapshot_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    def snapshot(self: raft_sim.Sim, node: raft_sim.Node) -> None:
        end_offset, latest = node.log.end_offset, node.log.latest_snapshot
        if node.quorum is not None and self.snapshots_kept and end_offset > (latest.end_offset if latest else 0):
            node.log.take_snapshot(raft_sim.snapshot_id(node.log.entries, end_offset), kept=1)

    patch.setattr(raft_sim.Sim, "snapshot", snapshot)


def look_at_offsets_only_before_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(divergence, "needs_snapshot", lambda log, fetch: fetch.fetch_offset < log.start.end_offset)


def install_parts_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    original = snapshot_answer

    def truncated(log: Any, leader_and_epoch: Any, request: Any) -> Any:
        reply = original(log, leader_and_epoch, request)
        return dataclasses.replace(reply, size_bytes=request.position + len(reply.data))

    patch.setattr(leader, "snapshot_answer", truncated)


MUTANTS: list[Mutate] = [
    vote_for_everybody,
    forget_votes,
    vote_for_short_logs,
    commit_older_epochs_by_count,
    count_what_is_not_flushed,
    count_diverging_fetches,
    never_truncate_by_epoch,
    cut_at_the_end_of_another_epoch,
    minority_elects,
    count_votes_of_any_round,
    take_any_fetch_reply,
]
SNAPSHOT_MUTANTS: list[Mutate] = [
    name_snapshots_one_too_far,
    name_snapshots_one_too_near,
    snapshot_what_is_not_committed,
    look_at_offsets_only_before_the_log,
    install_parts_of_snapshots,
]
