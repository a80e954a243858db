"""What the replay of the metadata log says of the replicas of new partitions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from uuid import UUID

import pytest

from raftwerk.chaos.sim.invariants.derived.placed_replicas import check_placed
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.controller.metadata.metadata_image import BrokerRegistration, MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import RegisterBrokerRecord
from raftwerk.controller.topics.replica_placement import UsableBroker, place


def registered(racks: str, fenced: Sequence[int] = ()) -> list[BrokerRegistration]:
    """Brokers 1, 2, ... in these racks."""
    image = MetadataImage("c")
    for broker_id, rack in enumerate(racks, 1):
        record = RegisterBrokerRecord(broker_id, UUID(int=broker_id), (), rack, broker_id in fenced)
        image.replay(record, broker_id, MetadataDelta())
    return list(image.brokers.values())


@pytest.mark.parametrize("racks", ["".join(one) for one in product("abc", repeat=4)])
def test_what_controllers_place_is_right(racks: str) -> None:
    for fenced in ((), (2,), (1, 3)):
        brokers = registered(racks, fenced)
        usable = [UsableBroker(one.broker_id, one.rack, one.fenced) for one in brokers]
        for factor in (1, 2, 3, 4):
            check_placed(brokers, place(usable, 12, factor, random.Random(factor)))


@pytest.mark.parametrize(
    ("racks", "fenced", "placed", "told"),
    [
        ("aab", (), [(1, 2)], "rack b has too small a share"),
        ("aabb", (3, 4), [(1, 2)], "rack b has too small a share"),
        ("abb", (2,), [(1, 2)], "2 is fenced, 3 is not"),
        ("ab", (1,), [(1, 2)], "1 is fenced and first"),
        ("ab", (), [(1, 1)], "are not brokers that may get replicas"),
    ],
)
def test_one_partition_is_told(racks: str, fenced: tuple[int, ...], placed: list[tuple[int, ...]], told: str) -> None:
    with pytest.raises(InvariantBroken, match=rf"new replicas are spread over racks, and live.*{told}"):
        check_placed(registered(racks, fenced), placed)


def test_leaders_and_followers_take_turns() -> None:
    with pytest.raises(InvariantBroken, match=r"spread over brokers.*leaders are not chosen in turn"):
        check_placed(registered("abc"), [(1, 2), (1, 3), (2, 3)])
    with pytest.raises(InvariantBroken, match=r"spread over brokers.*3 is never followed by some of \[1, 2\]"):
        check_placed(registered("aab"), [(1, 3), (2, 3), (3, 1), (1, 3), (2, 3), (3, 1)])
