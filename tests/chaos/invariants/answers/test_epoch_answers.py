"""Where leader epochs end and where logs part, by the batches of a log."""

from __future__ import annotations

import pytest

from raftwerk.chaos.sim.invariants.answers.epoch_answers import is_right
from raftwerk.chaos.sim.invariants.answers.follower_fetches import check_divergence
from raftwerk.chaos.sim.invariants.answers.replica_states import SeenReplica
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.specification.log_entry import LogEntry, empty_log
from raftwerk.wire.fetch import FetchPartition
from raftwerk.wire.types import EpochEndOffset

START: LogEntry[None] = empty_log()
LOG = START.follow(3, 1, 0).follow(5, 1, 0).follow(8, 4, 0)
"""Epoch 1 from 0 to 5, epoch 4 from 5 to 8."""


def leader(start_offset: int = 0, end_offset: int = 8, epoch: int = 6) -> SeenReplica:
    return SeenReplica(epoch, 1, start_offset, end_offset, 0, 0, (1,))


@pytest.mark.parametrize(
    ("epoch", "told"), [(1, (1, 5)), (3, (1, 5)), (4, (4, 8)), (5, (4, 8)), (6, (6, 8)), (7, (-1, -1)), (0, (0, 0))]
)
def test_a_leader_epoch_ends_where_the_next_one_in_the_log_begins(epoch: int, told: tuple[int, int]) -> None:
    around = leader(), leader()
    assert is_right(LOG, epoch, told, around)
    assert not any(is_right(LOG, epoch, (told[0], told[1] + more), around) for more in (-2, 2, 9))


def test_of_deleted_records_no_end_is_known() -> None:
    around = leader(start_offset=6), leader(start_offset=6)
    assert is_right(LOG, 1, (1, 6), around)
    assert not is_right(LOG, 4, (4, 6), around)


def test_the_last_epoch_ends_where_the_log_ended_before_or_after_the_event() -> None:
    around = leader(end_offset=7, epoch=4), leader(epoch=4)
    assert is_right(LOG, 4, (4, 7), around) and is_right(LOG, 4, (4, 8), around)


@pytest.mark.parametrize(
    ("offset", "epoch", "told"),
    [(5, 1, None), (8, 4, None), (6, 1, (1, 5)), (6, 3, (1, 5)), (5, 3, (1, 5)), (9, 4, (4, 8))],
)
def test_logs_part_where_the_leaders_has_another_epoch(offset: int, epoch: int, told: tuple[int, int] | None) -> None:
    wanted = FetchPartition(0, 6, offset, epoch)
    answer = None if told is None else EpochEndOffset(*told)
    check_divergence(LOG, wanted, answer, leader(), "t-0")
    for wrong in (EpochEndOffset(1, 4), EpochEndOffset(4, 5), *((None,) if told else ())):
        with pytest.raises(InvariantBroken, match="a fetch tells where two logs part"):
            check_divergence(LOG, wanted, wrong, leader(), "t-0")
