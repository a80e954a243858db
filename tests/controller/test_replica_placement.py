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
def test_replicas_are_distinct_live_first_and_spread(
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
    live_racks = {broker.rack for broker in live}
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        used = min(factor, len(live))
        assert not any(brokers[broker_id].fenced for broker_id in replicas[:used])
        assert len({brokers[b].rack for b in replicas[:used]}) == min(used, len(live_racks))
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker.broker_id] for broker in live]
    assert max(counts) - min(counts) <= 1


@given(count=st.integers(2, 7), rounds=st.integers(1, 6), factor=st.integers(1, 7), seed=st.integers(0, 99))
def test_without_racks_whole_rounds_load_all_brokers_alike(count: int, rounds: int, factor: int, seed: int) -> None:
    brokers = [UsableBroker(i) for i in range(count)]
    placed = place(brokers, rounds * count, min(factor, count), random.Random(seed))
    load = Counter(broker_id for replicas in placed for broker_id in replicas)
    assert len(set(load.values())) == 1


def test_followers_of_one_leader_are_not_always_the_same() -> None:
    placed = place([UsableBroker(i) for i in range(5)], 20, 2, random.Random(1))
    assert len({replicas[1] for replicas in placed if replicas[0] == 0}) == 4
