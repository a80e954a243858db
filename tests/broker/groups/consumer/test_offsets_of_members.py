"""Who may commit and fetch offsets in a consumer group."""

from __future__ import annotations

import pytest
from support.broker.consumer_transcript import FakeTopics

from raftwerk.broker.groups.classic.classic_events import JoinRequest
from raftwerk.broker.groups.classic.consumer_protocol import write_subscription
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.consumer.consumer_group_heartbeat import HeartbeatRequest
from raftwerk.broker.groups.group_config import GroupConfig
from raftwerk.wire.errors import ErrorCode

NONE, UNKNOWN, STALE = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH
ILLEGAL = ErrorCode.ILLEGAL_GENERATION


@pytest.fixture
def empty() -> ConsumerGroup:
    return ConsumerGroup("g", GroupConfig(), FakeTopics())


@pytest.fixture
def group(empty: ConsumerGroup) -> ConsumerGroup:
    """A group of `m` in epoch 1, and `c` in epoch 2, which uses the classic protocol."""
    empty.heartbeat(HeartbeatRequest("m", 0, rebalance_timeout_ms=1_000, topic_names=("t",), owned=()), "m", 0, 0)
    protocols = (("range", write_subscription(["t"], ())),)
    joins = JoinRequest("", "c", None, "c", "/h", 10_000, 1_000, "consumer", protocols, requires_known_id=False)
    empty.classic_protocol.join(joins, "c", 0, 0)
    assert {one.member_id: one.epoch for one in empty.members.values()} == {"m": 1, "c": 2}
    return empty


def test_tools_may_fetch_without_a_member(group: ConsumerGroup) -> None:
    """They send neither a member nor an epoch. An empty member id is a client's that has none yet."""
    assert group.check_fetch(None, -1) is NONE
    assert group.check_fetch("", -1) is UNKNOWN
    assert group.check_fetch(None, 0) is UNKNOWN


@pytest.mark.parametrize(("member_id", "epoch", "expected"), [
    ("m", 1, NONE), ("m", 0, STALE), ("m", 2, STALE), ("m", -1, STALE), ("c", 2, NONE), ("c", 1, ILLEGAL),
    ("nobody", 1, UNKNOWN), ("nobody", -1, UNKNOWN),
])  # fmt: skip
def test_a_member_commits_and_fetches_in_its_own_epoch(
    group: ConsumerGroup, member_id: str, epoch: int, expected: ErrorCode
) -> None:
    """In codes of its protocol. In transactions, clients know no STALE_MEMBER_EPOCH."""
    assert group.check_fetch(member_id, epoch) is expected
    assert group.check_commit(member_id, None, epoch, 0) is expected
    assert group.check_transactional_commit(member_id, None, epoch) is (ILLEGAL if expected is STALE else expected)


def test_without_members_commits_need_no_epoch(empty: ConsumerGroup) -> None:
    assert empty.check_commit("anybody", None, -1, 0) is NONE
    assert empty.check_commit("anybody", None, 0, 0) is UNKNOWN
    assert empty.check_transactional_commit("anybody", "instance", -1) is NONE
    assert empty.check_transactional_commit("anybody", None, -2) is NONE
    assert empty.check_transactional_commit("anybody", None, 0) is UNKNOWN


def test_with_members_a_commit_without_an_epoch_is_refused(group: ConsumerGroup) -> None:
    """It comes from a consumer that assigns its partitions itself, beside the group's members."""
    assert group.check_commit("", None, -1, 0) is UNKNOWN


def test_a_transaction_that_names_no_member_is_fenced_by_its_producer_alone(group: ConsumerGroup) -> None:
    assert group.check_transactional_commit("", None, -1) is NONE
    assert group.check_transactional_commit("", "instance", -1) is UNKNOWN
    assert group.check_transactional_commit("", None, -2) is UNKNOWN
    assert group.check_transactional_commit("", None, 0) is UNKNOWN


def test_members_of_the_consumer_protocol_are_told_apart(group: ConsumerGroup) -> None:
    assert [group.uses_consumer_protocol(one) for one in ("m", "c", "nobody")] == [True, False, False]
