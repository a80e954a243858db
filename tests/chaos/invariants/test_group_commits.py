"""The commits of a group as registers: what may be in force when a partition has had several owners."""

from __future__ import annotations

import pytest

from raftwerk.chaos.sim.invariants.group_commits import Commit, PartitionCommits
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken

FIRST, SECOND = "first", "second"


class Partition:
    """A partition that FIRST owns in epoch 1."""

    def __init__(self) -> None:
        self.commits = PartitionCommits(0)
        self.take_over(FIRST, 1, 0, "")

    def new(self, owner: str, epoch: int, offset: int) -> Commit:
        return self.commits.new(owner, owner, epoch, offset)

    def accepted(self, commit: Commit) -> None:
        self.commits.on_accepted(commit, was_owner=self.commits.owner is commit.owner)

    def read(self, offset: int, metadata: str) -> Commit:
        return self.commits.on_read(offset, metadata, self.commits.possible())

    def take_over(self, owner: str, epoch: int, offset: int, metadata: str) -> None:
        self.commits.take_over(owner, owner, epoch, self.read(offset, metadata))


def test_a_commit_that_was_answered_is_found_and_none_before_it() -> None:
    partition = Partition()
    old, new = partition.new(FIRST, 1, 5), None
    partition.accepted(old)
    new = partition.new(FIRST, 1, 9)
    partition.read(5, str(old.number))
    partition.read(9, str(new.number))
    partition.accepted(new)
    partition.read(9, str(new.number))
    with pytest.raises(InvariantBroken, match="do not go back: partition 0: 5"):
        partition.read(5, str(old.number))


def test_a_read_may_be_older_than_the_commit_that_is_answered_before_it() -> None:
    partition = Partition()
    before = partition.commits.possible()
    partition.accepted(partition.new(FIRST, 1, 5))
    assert partition.commits.on_read(0, "", before).number == 0


def test_a_refused_commit_is_never_found() -> None:
    partition = Partition()
    commit = partition.new(FIRST, 1, 5)
    partition.commits.on_refused(commit)
    with pytest.raises(InvariantBroken, match="do not go back"):
        partition.read(5, str(commit.number))


def test_a_commit_in_flight_takes_effect_before_the_partition_is_given_up_or_never() -> None:
    partition = Partition()
    late = partition.new(FIRST, 1, 5)
    partition.take_over(SECOND, 2, 0, "")
    assert partition.commits.answered == 0
    with pytest.raises(InvariantBroken, match="given up a partition commits nothing"):
        partition.read(5, str(late.number))
    found = Partition()
    early = found.new(FIRST, 1, 5)
    found.take_over(SECOND, 2, 5, str(early.number))
    found.commits.on_accepted(early, was_owner=True)
    found.read(5, str(early.number))


def test_the_same_owner_in_the_same_epoch_may_still_have_a_commit_in_flight() -> None:
    partition = Partition()
    late = partition.new(FIRST, 1, 5)
    partition.take_over(FIRST, 1, 0, "")
    partition.read(5, str(late.number))
    partition.take_over(FIRST, 2, 5, str(late.number))


def test_who_is_not_the_owner_may_not_commit() -> None:
    partition = Partition()
    partition.take_over(SECOND, 2, 0, "")
    late = partition.new(FIRST, 1, 5)
    with pytest.raises(InvariantBroken, match="a partition has one reader: partition 0: first commits 5"):
        partition.accepted(late)
