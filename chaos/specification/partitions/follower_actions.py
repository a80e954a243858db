"""What a follower does with the answers to its fetches: the branches of ReceiveFetchResponse."""

from __future__ import annotations

from dataclasses import replace

from ..log_entry import end_for_epoch, is_valid_position
from ..step_search import Action, Proposal, violated
from .partition_history import PartitionHistory
from .partition_state import NO_LEADER
from .replica_state import ReplicaLog, ReplicaState
from .role_actions import Proposals

_NAME = "ReceiveFetchResponse"


def truncation_end(followers: ReplicaLog, leaders: ReplicaLog) -> int:
    """Where a follower cuts its log by one answer: at the end of the diverging epoch, in whichever log that is earlier.

    If the follower has nothing of that epoch, it cuts at the end of its own epoch before, and asks again.
    """
    diverging = end_for_epoch(leaders, followers.epoch)
    local = end_for_epoch(followers, diverging.epoch)
    if local.epoch != diverging.epoch:
        return local.end_offset
    return min(local.end_offset, diverging.end_offset)


class FollowerActions:
    """Changes of a replica that follows."""

    def __init__(self, history: PartitionHistory) -> None:
        self._history = history

    @property
    def actions(self) -> list[Action[ReplicaState]]:
        """All of them."""
        return [
            self.append_fetched,
            self.truncate,
            self.truncate_to_leaders_end,
            self.start_over,
            self.learn_high_watermark,
        ]

    def append_fetched(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """FencedFollowerFetch: append what the leader of the follower's epoch has after the follower's end."""
        if now.is_leader or after.log is now.log or not after.log.has(now.log):
            return
        failed = self._leaders_log_violated(now, after.log)
        yield Proposal(_NAME, replace(now, log=after.log, end_offset=after.end_offset), failed)

    def truncate(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """Cut the log at the diverging epoch of the answer (KIP-595)."""
        leaders = self._history.of(now.leader_epoch).leaders_log
        if now.is_leader or after.log is now.log or after.log.has(now.log):
            return
        shorter = now.log.common_prefix(after.log)
        if leaders is None:
            leaderless = (f"epoch {now.leader_epoch} has no leader",)
            yield Proposal(_NAME, _cut(now, after, shorter, shorter.end_offset), leaderless)
            return
        end_offset = truncation_end(now.log, leaders)
        kept = now.log.up_to(end_offset)
        failed = violated(
            (not is_valid_position(leaders, now.log), f"its log agrees with the leader's in epoch {now.leader_epoch}"),
            *self._may_cut(now, end_offset),
        )
        yield Proposal(_NAME, _cut(now, after, kept, end_offset), failed)
        if shorter is not kept:
            elsewhere = (f"the leader's answer cuts it at {kept.end_offset}, not at {shorter.end_offset}",)
            yield Proposal(_NAME, _cut(now, after, shorter, shorter.end_offset), failed + elsewhere)

    def truncate_to_leaders_end(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """OFFSET_OUT_OF_RANGE: the leader's log is shorter, and has nothing of the epoch that the follower named."""
        epoch = self._history.of(now.leader_epoch)
        leaders, end_offset = epoch.leaders_log, after.end_offset
        if now.is_leader or leaders is None or end_offset >= now.end_offset or not now.log.has(after.log):
            return
        if end_for_epoch(leaders, now.log.epoch).end_offset > epoch.log_start_offset:
            return  # the answer is a diverging epoch
        failed = violated(
            (end_offset <= leaders.end_offset, f"the leader's log ends at {leaders.end_offset}, before {end_offset}"),
            *self._may_cut(now, end_offset),
        )
        yield Proposal(_NAME, _cut(now, after, now.log.up_to(end_offset), end_offset), failed)

    def start_over(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """OFFSET_OUT_OF_RANGE: the leader's log starts after the end of the follower's, which begins anew there."""
        epoch = self._history.of(now.leader_epoch)
        leaders, offset = epoch.leaders_log, after.log_start_offset
        if now.is_leader or leaders is None or offset <= now.end_offset or offset > after.end_offset:
            return
        failed = violated(
            (
                offset <= epoch.log_start_offset,
                f"the leader's log starts at {epoch.log_start_offset}, not yet at {offset}",
            ),
        )
        anew = replace(now, log=leaders.up_to(offset), end_offset=offset, high_watermark=offset)
        yield Proposal(_NAME, anew, failed)

    def learn_high_watermark(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """Take the leader's high watermark, as far as the own log reaches."""
        offset = after.high_watermark
        if now.is_leader or offset <= now.high_watermark:
            return
        known = self._history.of(now.leader_epoch).high_watermark
        failed = violated(
            (now.leader != NO_LEADER, "there is no leader"),
            (offset <= now.end_offset, f"its log ends at {now.end_offset}, before {offset}"),
            (offset <= known, f"the leader of epoch {now.leader_epoch} has committed up to {known}, not to {offset}"),
        )
        yield Proposal(_NAME, replace(now, high_watermark=offset), failed)

    def _leaders_log_violated(self, now: ReplicaState, log: ReplicaLog) -> tuple[str, ...]:
        epoch = self._history.of(now.leader_epoch)
        leaders = epoch.leaders_log
        return violated(
            (now.leader != NO_LEADER, "there is no leader"),
            (epoch.leader in (now.leader, None), f"{now.leader} does not lead epoch {now.leader_epoch}"),
            (
                leaders is not None and leaders.has(log),
                f"{log} is no part of the leader's in epoch {now.leader_epoch}, {leaders}",
            ),
        )

    def _may_cut(self, now: ReplicaState, end_offset: int) -> tuple[tuple[bool, str], ...]:
        """Only an unclean election takes away what is committed."""
        is_kept = end_offset >= now.high_watermark or self._history.is_unclean(now.leader_epoch)
        return (
            (now.leader != NO_LEADER, "there is no leader"),
            (is_kept, f"{now.high_watermark} is committed, {end_offset} is kept"),
        )


def _cut(now: ReplicaState, after: ReplicaState, kept: ReplicaLog, end_offset: int) -> ReplicaState:
    """A log whose batch at the end is missing by compaction ends between two batches."""
    end = after.end_offset if kept.end_offset <= after.end_offset <= end_offset else kept.end_offset
    return replace(now, log=kept, end_offset=end, high_watermark=min(now.high_watermark, end))
