"""A check of the checkers: known bugs of replicated logs, put back in one at a time, must each be caught.

Each mutant says which scenarios it is run in, and after how many seeds at most it must have been noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from raftwerk.broker.broker import Broker
from raftwerk.chaos.runs import SCENARIOS, Run
from raftwerk.controller import replication
from raftwerk.isr import appends
from raftwerk.isr.isr_state import PendingExpandIsr
from raftwerk.isr.leader_state import LeaderState
from raftwerk.isr.replica import Replica
from raftwerk.log.partition_log import PartitionLog
from raftwerk.raft.election_state import QuorumStateStore, format_quorum_state
from raftwerk.runtime.ports import File

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """`apply` puts the bug in."""

    name: str
    apply: Patch
    scenarios: tuple[str, ...]
    seeds: int = 40


def replacing(owner: Any, name: str, value: Any) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def truncate_by_high_watermark(self: Replica, registration: Any) -> bool:
    changed = ORIGINAL_MAKE_FOLLOWER(self, registration)
    if changed:
        self.truncate_to(self.high_watermark)
    return changed


def leave_divergence(self: Replica, diverging: object) -> None:
    """Append behind what the leader does not have."""


def vote_without_sync(self: QuorumStateStore, state: Any) -> None:
    disk: Any = self._disk
    file: File = disk.open(self.path, create=True)
    file.truncate(0)
    file.append([format_quorum_state(state)])
    file.close()


def high_watermark_of_the_leader_alone(self: LeaderState, log_end_offset: int, now_ms: int) -> bool:
    """Moves although fewer than min ISR are in sync."""
    offsets = [follower.log_end_offset for id, follower in self.followers.items() if id in self.isr_state.maximal_isr]
    lowest = min([log_end_offset, *offsets])
    moved = lowest > self.high_watermark
    self.high_watermark = max(lowest, self.high_watermark)
    return moved


async def at_once(self: Broker) -> None:
    """Take up the roles that the metadata gave to a former incarnation."""


def unclean_goal(self: Any, *arguments: Any) -> Any:
    goal = ORIGINAL_GOAL(self, *arguments)
    return type(goal)(
        goal.isr, goal.acceptable, goal.min_insync_replicas, goal.elr_enabled, replication.Election.UNCLEAN
    )


ORIGINAL_MAKE_FOLLOWER = Replica.make_follower
ORIGINAL_GOAL = replication.PartitionRules.goal
ORIGINAL_FOLLOWER_APPEND = PartitionLog.append_as_follower


def forget_producers(self: PartitionLog, batches: memoryview) -> Any:
    info = ORIGINAL_FOLLOWER_APPEND(self, batches)
    self.producers.clear()
    return info


def ack_uncommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "ACKS_ALL", -2)


MUTANTS = (
    Mutant("acks before the followers have it", ack_uncommitted, ("kill",)),
    Mutant(
        "truncation by high watermark (KIP-101)",
        replacing(Replica, "make_follower", truncate_by_high_watermark),
        ("chase", "kill"),
    ),
    Mutant(
        "append before truncation (KAFKA-14704)",
        replacing(Replica, "truncate_to_divergence", leave_divergence),
        ("chase", "mixed"),
    ),
    Mutant(
        "a vote that is not synced", replacing(QuorumStateStore, "write", vote_without_sync), ("power", "leader-crash")
    ),
    Mutant(
        "high watermark below min ISR (KAFKA-15583)",
        replacing(LeaderState, "maybe_advance_high_watermark", high_watermark_of_the_leader_alone),
        ("kill", "mixed"),
    ),
    Mutant(
        "high watermark past a joining replica (KAFKA-12686)",
        replacing(PendingExpandIsr, "maximal_isr", property(lambda self: self.committed.isr)),
        ("kill", "mixed"),
    ),
    Mutant("leading for a former incarnation", replacing(Broker, "registered", at_once), ("leader-crash",)),
    Mutant(
        "a leader counts a diverging fetch (KAFKA-13141)",
        replacing(Replica, "_divergence", lambda *_: None),
        ("chase", "mixed"),
    ),
    Mutant(
        "dedupe lost at a leader change",
        replacing(PartitionLog, "append_as_follower", forget_producers),
        ("kill", "stop"),
    ),
    Mutant("unclean elections", replacing(replication.PartitionRules, "goal", unclean_goal), ("few-alive",)),
)


def seeds_until_caught(mutant: Mutant) -> tuple[int, str] | None:
    count = 0
    for seed in range(mutant.seeds):
        for scenario in mutant.scenarios:
            count += 1
            failure = Run(SCENARIOS[scenario], seed).execute().failure
            if failure is not None:
                return count, f"{scenario} {seed}: {failure}"
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert seeds_until_caught(mutant) is not None
