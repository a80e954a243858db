"""Changes of a partition by one record, allowed ones and others."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from raftwerk.chaos.specification.partitions.controller_actions import ControllerActions, creation_violated
from raftwerk.chaos.specification.partitions.partition_state import NO_LEADER, PartitionState
from raftwerk.chaos.specification.step_search import Deviation


def state(
    leader: int,
    epoch: int,
    isr: Collection[int],
    elr: Collection[int] = (),
    replicas: Collection[int] = (1, 2, 3),
    is_recovering: bool = False,
) -> PartitionState:
    return PartitionState(frozenset(replicas), frozenset(isr), frozenset(elr), leader, epoch, is_recovering)


def explained(
    before: PartitionState,
    after: PartitionState,
    active: Collection[int] = (1, 2, 3),
    min_isr: int | None = None,
    lossy: Collection[int] = (),
) -> str:
    """The names of the actions, or the deviation."""
    found = ControllerActions(before, active, min_isr, lossy).explain(after)
    return str(found) if isinstance(found, Deviation) else ", ".join(step.action for step in found)


BEFORE = state(1, 4, (1, 2))


def test_a_dead_leader_is_replaced_and_leaves_the_isr_in_one_record() -> None:
    told = explained(BEFORE, state(2, 5, (2,), elr=(1,)), active=(2, 3))
    assert told == "ControllerElectLeader, ControllerShrinkIsr"


def test_the_isr_grows_and_shrinks_in_the_same_leader_epoch() -> None:
    assert explained(BEFORE, state(1, 4, (1, 2, 3))) == "LeaderExpandIsr"
    assert explained(BEFORE, state(1, 4, (1,))) == "ControllerShrinkIsr"


def test_who_leaves_the_isr_stays_eligible_if_too_few_stay() -> None:
    alone, eligible = state(1, 4, (1,)), state(1, 4, (1,), elr=(2,))
    assert explained(BEFORE, eligible, min_isr=2) == "ControllerShrinkIsr"
    assert "does not follow" in explained(BEFORE, eligible, min_isr=1)
    assert "does not follow" in explained(BEFORE, alone, min_isr=2)
    assert explained(BEFORE, alone, min_isr=1) == "ControllerShrinkIsr"
    assert explained(BEFORE, alone, min_isr=2, lossy=(2,)) == "ControllerShrinkIsr"


def test_the_last_member_stays_eligible_and_leads_again() -> None:
    alone, gone = state(1, 4, (1,), elr=(2,)), state(NO_LEADER, 5, (), elr=(1, 2))
    assert explained(alone, gone, active=()) == "ControllerShrinkIsr, ControllerShrinkIsr"
    assert explained(gone, state(2, 6, (2,), elr=(1,)), active=(2,)) == "ControllerElectLeader"


def test_an_unclean_election_is_the_last_resort_and_the_leader_recovers() -> None:
    gone, elected = state(NO_LEADER, 5, (1,)), state(3, 6, (3,), is_recovering=True)
    assert explained(gone, elected, active=(3,)) == "UncleanElection (KIP-704)"
    assert explained(elected, state(3, 6, (3,)), active=(3,)) == "Recover (KIP-704)"


def test_replicas_move() -> None:
    adding = state(1, 4, (1, 2), replicas=(1, 2, 3, 4))
    assert explained(BEFORE, adding) == "Reassign (KIP-455)"
    done = state(2, 5, (2, 4), replicas=(2, 4))
    told = explained(state(1, 4, (1, 2, 4), replicas=(1, 2, 3, 4)), done, active=(1, 2, 4))
    assert sorted(set(told.split(", "))) == ["ControllerElectLeader", "ControllerShrinkIsr", "Reassign (KIP-455)"]


NOT_ALLOWED = {
    "neither in the ISR [1, 2] nor in the ELR": (BEFORE, state(3, 5, (3,)), (3,)),
    "the active brokers [2] have all that is committed": (BEFORE, state(3, 5, (3,), is_recovering=True), (2, 3)),
    "not ControllerElectLeader: broker 2 is not active": (BEFORE, state(2, 5, (2,)), (3,)),
    "not LeaderExpandIsr: broker 3 is not active": (BEFORE, state(1, 4, (1, 2, 3)), (1, 2)),
    "not LeaderExpandIsr: 4 is not among the replicas": (BEFORE, state(1, 4, (1, 2, 4)), (1, 2, 3, 4)),
    "not LeaderExpandIsr: the leader has not recovered yet": (
        state(1, 4, (1,), is_recovering=True),
        state(1, 4, (1, 2), is_recovering=True),
        (1, 2),
    ),
    "not ControllerShrinkIsr: 1 leads, and leaves the ISR": (BEFORE, state(1, 4, (2,)), (1, 2)),
    "not Reassign (KIP-455): [2] are still in the ISR or the ELR": (BEFORE, state(1, 4, (1, 2), replicas=(1, 3)), (1,)),
    "for this: elr is [3], not []": (BEFORE, state(1, 4, (1, 2), elr=(3,)), (1, 2)),
    "leader epoch from 4 to 6": (BEFORE, state(2, 6, (1, 2)), (1, 2)),
    "leader epoch from 4 to 3": (BEFORE, state(1, 3, (1, 2)), (1, 2)),
    "leader from 1 to 2": (BEFORE, state(2, 4, (1, 2)), (1, 2)),
}


@pytest.mark.parametrize("sentence", NOT_ALLOWED)
def test_other_changes_are_told(sentence: str) -> None:
    assert sentence in explained(*NOT_ALLOWED[sentence])


def test_a_new_partition_has_its_leader_in_the_isr() -> None:
    assert not creation_violated(state(1, 0, (1, 2)))
    assert "the leader is not in the ISR" in creation_violated(state(3, 0, (1, 2)))[0]
    assert "the ISR has others than the replicas" in creation_violated(state(1, 0, (1, 4)))[0]
    assert "a new partition has lost nothing" in creation_violated(state(1, 0, (1,), elr=(2,)))[0]
