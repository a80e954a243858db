"""A leader waits for all whom the controller holds in sync, also before anything is committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raftwerk.chaos.sim.invariants.derived.counted_replicas import check_counted
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken

OTHERS = frozenset((2, 3))


def leader(*counted: int, leader_epoch: int = 4, partition_epoch: int = 7) -> Any:
    state = SimpleNamespace(maximal_isr=frozenset(counted))
    return SimpleNamespace(
        leader_epoch=leader_epoch, partition_epoch=partition_epoch, isr_state=state, config=SimpleNamespace(local_id=1)
    )


def held(*isr: int, elr: tuple[int, ...] = (), leader_epoch: int = 4, partition_epoch: int = 8) -> Any:
    return SimpleNamespace(isr=isr, elr=elr, leader_epoch=leader_epoch, partition_epoch=partition_epoch)


def test_a_replica_that_was_added_counts() -> None:
    check_counted(held(1, 2), leader(1, 2, 3), OTHERS, "t-0")
    with pytest.raises(InvariantBroken, match=r"a leader waits for all whom the controller holds in sync: t-0: \[3\]"):
        check_counted(held(1, 2, 3), leader(1, 2), OTHERS, "t-0")


def test_another_epoch_is_not_compared() -> None:
    """Of the leader, or one of the partition that the leader knows before all nodes do."""
    check_counted(held(1, 2, 3, leader_epoch=5), leader(1, 2), OTHERS, "t-0")
    check_counted(held(1, 2, 3, partition_epoch=6), leader(1, 2), OTHERS, "t-0")
    check_counted(None, leader(1, 2), OTHERS, "t-0")


def test_all_who_may_be_elected_are_asked() -> None:
    check_counted(held(1, elr=(3,)), leader(1), (3,), "t-0")
    for partition in (held(1, 2), held(1, elr=(2,))):
        with pytest.raises(
            InvariantBroken, match=r"a leader asks all who may be elected: t-0: \(3,\), not all of \[2\]"
        ):
            check_counted(partition, leader(1, 2), (3,), "t-0")
