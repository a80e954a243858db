"""Which metadata a replica acts on, and what it keeps."""

from __future__ import annotations

import pytest
from support.isr.replicas import TP, FakeBrokers, Reg

from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.partition import Partition
from raftwerk.wire.errors import ErrorCode, ProtocolError


def partition(high_watermark: int = 0) -> Partition:
    return Partition(TP, LeaderConfig(1, 1, 1000), FakeBrokers({1: 101, 2: 102}), high_watermark)


def registered(leader: int, leader_epoch: int, partition_epoch: int) -> Reg:
    return Reg((1, 2), (1, 2), leader, leader_epoch, partition_epoch)


@pytest.mark.parametrize("leader", [1, 2])
@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "is_news", "is_newer"),
    [(5, 10, True, False), (5, 11, True, True), (6, 11, True, True), (5, 9, False, False), (4, 9, False, False)],
)
def test_metadata_is_ordered_by_its_epochs(
    leader: int, leader_epoch: int, partition_epoch: int, is_news: bool, is_newer: bool
) -> None:
    made = partition()
    if leader == 1:
        made.make_leader(registered(1, 5, 10), 0, 0)
    else:
        made.make_follower(registered(2, 5, 10))
    later = registered(leader, leader_epoch, partition_epoch)
    assert (made.is_news(later), made.is_newer(later)) == (is_news, is_newer)


def test_a_new_leader_in_the_same_partition_epoch_is_newer() -> None:
    made = partition()
    made.make_follower(registered(2, 5, 10))
    assert made.is_newer(registered(2, 6, 10))


def test_only_another_leader_or_epoch_changes_a_follower() -> None:
    made = partition()
    assert made.make_follower(registered(2, 5, 10))
    assert not made.make_follower(registered(2, 5, 11)), "only the ISR is new"
    assert made.make_follower(registered(2, 6, 12))
    assert made.make_follower(registered(-1, 6, 13))
    assert made.make_leader(registered(1, 7, 14), 0, 0)
    assert not made.make_leader(registered(1, 7, 15), 0, 0)
    assert made.make_follower(registered(2, 7, 16)), "it led before"


def test_a_follower_learns_what_is_committed_as_far_as_its_log_reaches() -> None:
    made = partition(3)
    made.learn_high_watermark(9, 5)
    assert made.high_watermark == 5
    made.learn_high_watermark(4, 9)
    assert made.high_watermark == 5, "what was committed stays committed"
    made.on_truncated(5)
    assert made.high_watermark == 5
    made.on_truncated(4)
    assert made.high_watermark == 4


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, None), (5, None), (4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_requests_of_other_leader_epochs_are_refused(epoch: int, error: ErrorCode | None) -> None:
    made = partition()
    made.make_follower(registered(2, 5, 10))
    if error is None:
        made.check_leader_epoch(epoch)
        return
    with pytest.raises(ProtocolError) as refused:
        made.check_leader_epoch(epoch)
    assert refused.value.code is error


def test_requests_with_an_epoch_are_refused_before_there_is_a_leader() -> None:
    made = partition()
    assert (made.leader_id, made.leader_epoch, made.partition_epoch) == (-1, -1, -1)
    with pytest.raises(ProtocolError):
        made.check_leader_epoch(0)
