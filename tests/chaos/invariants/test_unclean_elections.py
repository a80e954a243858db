"""How the simulator finds unclean elections in the records of the metadata log."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.unclean_elections import UncleanElections
from raftwerk.controller.metadata.metadata_records import (
    RECOVERING,
    BrokerChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    encode_record,
)
from raftwerk.wire.records import NewRecord, encode_batch

TOPIC = UUID(int=7)
KEY = TOPIC, 0


def change(**changes: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(TOPIC, 0, **changes)


def read(*batches: Sequence[Record], end_offset: int = 100) -> UncleanElections:
    """What is found in a log with three brokers and a partition that 1 leads with ISR 1 and 2, and these batches."""
    brokers = [RegisterBrokerRecord(each, UUID(int=each), (), None, fenced=False) for each in (1, 2, 3)]
    first: list[Record] = [*brokers, TopicRecord("t", TOPIC), PartitionRecord(TOPIC, 0, (1, 2, 3), (1, 2), 1)]
    disk, offset = SimDisk(random.Random(1)), 0
    disk.makedirs("/metadata")
    file = disk.open("/metadata/00000000000000000000.log", create=True)
    for batch in (first, *batches):
        records = [NewRecord(None, encode_record(one, 0), (), 0) for one in batch]
        file.append([encode_batch(records, base_offset=offset)])
        offset += len(batch)
    elections = UncleanElections()
    elections.read(disk, "/metadata", end_offset)
    return elections


def fence(broker_id: int) -> BrokerChangeRecord:
    return BrokerChangeRecord(broker_id, broker_id - 1, fenced=True)


LEADERLESS: list[list[Record]] = [[fence(1), change(isr=(2,), leader=2)], [fence(2), change(isr=(), leader=-1)]]
UNCLEAN: list[Record] = [change(isr=(3,), leader=3, leader_recovery_state=RECOVERING)]


def test_an_unclean_election_is_found_once_it_is_committed() -> None:
    assert read(*LEADERLESS, UNCLEAN).epochs == {KEY: [3]}
    assert read(*LEADERLESS, UNCLEAN, end_offset=9).epochs == {}
    assert read(*LEADERLESS, UNCLEAN).since(KEY, 2, 3)
    assert not read(*LEADERLESS, UNCLEAN).since(KEY, 3, 9)


def test_an_election_that_is_not_on_record_is_told() -> None:
    with pytest.raises(InvariantBroken, match="an unclean election is on record: t-0"):
        read(*LEADERLESS, [change(isr=(3,), leader=3)])


def test_an_unclean_election_while_another_replica_could_lead_is_told() -> None:
    with pytest.raises(InvariantBroken, match=r"an unclean election is the last resort: .* active are \[2\]"):
        read([fence(1), *UNCLEAN])
