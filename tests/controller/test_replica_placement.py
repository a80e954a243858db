from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.controller.topics.replica_placement import UsableBroker, place
from raftwerk.wire.errors import ErrorCode, ProtocolError


@given(
    racks=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 9),
    fenced=st.sets(st.integers(0, 8)),
    seed=st.integers(0, 1000),
)
def test_replicas_are_distinct_spread_and_live_where_they_can_be(
    racks: list[int], partitions: int, factor: int, fenced: set[int], seed: int
) -> None:
    brokers = [UsableBroker(i, f"r{rack}", i in fenced) for i, rack in enumerate(racks)]
    live = [broker for broker in brokers if not broker.fenced]
    if factor > len(brokers) or not live:
        with pytest.raises(ProtocolError) as refused:
            place(brokers, partitions, factor, random.Random(seed))
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    placed = place(brokers, partitions, factor, random.Random(seed))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert not brokers[replicas[0]].fenced
        check_spread(brokers, replicas)
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker.broker_id] for broker in live]
    assert max(counts) - min(counts) <= 1


def check_spread(brokers: list[UsableBroker], replicas: tuple[int, ...]) -> None:
    """Racks have equal shares, as far as they have brokers, and nobody is fenced for whom a live broker would do."""
    shares = Counter(brokers[one].rack for one in replicas)
    largest = max(shares.values())
    unused = [broker for broker in brokers if broker.broker_id not in replicas]
    assert all(shares[broker.rack] >= largest - 1 for broker in unused)
    for fenced in (brokers[one] for one in replicas if brokers[one].fenced):
        for live in (broker for broker in unused if not broker.fenced):
            assert live.rack != fenced.rack
            assert shares[live.rack] >= shares[fenced.rack], "else it would have had the larger share"


@given(count=st.integers(2, 7), rounds=st.integers(1, 6), factor=st.integers(1, 7), seed=st.integers(0, 99))
def test_without_racks_whole_rounds_load_all_brokers_alike(count: int, rounds: int, factor: int, seed: int) -> None:
    brokers = [UsableBroker(i) for i in range(count)]
    placed = place(brokers, rounds * count, min(factor, count), random.Random(seed))
    load = Counter(broker_id for replicas in placed for broker_id in replicas)
    assert len(set(load.values())) == 1


def test_followers_of_one_leader_are_not_always_the_same() -> None:
    placed = place([UsableBroker(i) for i in range(5)], 20, 2, random.Random(1))
    assert len({replicas[1] for replicas in placed if replicas[0] == 0}) == 4


def test_racks_share_the_replicas_of_a_partition_alike() -> None:
    brokers = [UsableBroker(i, rack) for i, rack in enumerate("aabbbb")]
    for replicas in place(brokers, 24, 4, random.Random(1)):
        assert Counter(brokers[one].rack for one in replicas) == {"a": 2, "b": 2}


def test_a_rack_whose_brokers_are_fenced_gets_its_share() -> None:
    brokers = [UsableBroker(i, rack, rack == "c") for i, rack in enumerate("aabbcc")]
    for replicas in place(brokers, 24, 3, random.Random(1)):
        assert sorted(brokers[one].rack or "" for one in replicas) == ["a", "b", "c"]


def test_fenced_brokers_are_spread_over_racks_too() -> None:
    brokers = [UsableBroker(0, "a"), UsableBroker(1, "a"), UsableBroker(2, "a", True), UsableBroker(3, "b", True)]
    assert all({*replicas} == {0, 1, 3} for replicas in place(brokers, 8, 3, random.Random(1)))


@pytest.mark.parametrize("racks", ["aab", "aaabb", "aabcd", "aaaaabb"])
def test_brokers_of_a_rack_follow_a_leader_of_another_one_in_turn(racks: str) -> None:
    """The number of racks divided that of the other brokers, so that the rotation came to some of them only."""
    brokers = [UsableBroker(i, rack) for i, rack in enumerate(racks)]
    placed = place(brokers, 60 * len(racks), 2, random.Random(1))
    leader = len(racks) - 1
    followers = {replicas[1] for replicas in placed if replicas[0] == leader}
    assert followers == {broker.broker_id for broker in brokers if broker.rack != racks[leader]}
