"""The second replay of metadata records, against the nodes' own."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.controller.metadata_states import batch_of

from raftwerk.chaos.sim.invariants.derived.metadata_images import ImageChecker, parts_of
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.specification.metadata.metadata_state import MetadataState
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.controller.metadata.metadata_records import (
    AccessControlEntryRecord,
    BrokerChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

A, B, ACL = UUID(int=100), UUID(int=101), UUID(int=102)
DIRECTORIES = UUID(int=200), UUID(int=201), UUID(int=202)
ELR = "eligible.leader.replicas.version"
USER = (("user", "alice"),)
BATCHES: tuple[tuple[Record, ...], ...] = (
    (RegisterControllerRecord(9, UUID(int=9), ()),),
    tuple(RegisterBrokerRecord(each, UUID(int=each), (), f"rack{each}", log_dirs=DIRECTORIES) for each in (1, 2, 3)),
    tuple(BrokerChangeRecord(each, each, fenced=False) for each in (1, 2, 3)),
    (TopicRecord("a.x", A), PartitionRecord(A, 0, (1, 2, 3), (1, 2), 1, directories=DIRECTORIES)),
    (PartitionChangeRecord(A, 0, isr=(1, 2, 3)), ConfigRecord(2, "a.x", "retention.ms", "5")),
    (PartitionChangeRecord(A, 0, leader=2), ConfigRecord(2, "a.x", "retention.bytes", "6")),
    (PartitionChangeRecord(A, 0, replicas=(3, 1), isr=(1, 3), leader=3, removing_replicas=(2,), adding_replicas=(3,)),),
    (PartitionChangeRecord(A, 0, replicas=(3, 2), isr=(3,), removing_replicas=(), adding_replicas=(), elr=(2,)),),
    (TopicRecord("b", B), PartitionRecord(B, 0, (1, 2), (1,), 1), PartitionRecord(B, 1, (2, 3), (2, 3), 2)),
    (PartitionChangeRecord(B, 0, replicas=(1, 3), last_known_elr=(3,), leader_recovery_state=1),),
    (ConfigRecord(2, "a.x", "retention.ms", None), ConfigRecord(4, "", "x", "1"), ConfigRecord(4, "", "x", None)),
    (
        RemoveTopicRecord(A),
        ProducerIdsRecord(1, 1, 1000),
        FeatureLevelRecord("transaction.version", 2),
        FeatureLevelRecord(ELR, 1),
    ),
    (FeatureLevelRecord(ELR, 0), TopicRecord("a.x", UUID(int=103))),
    (UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),),
    (ClientQuotaRecord(USER, "producer_byte_rate", 5.0), ClientQuotaRecord(USER, "consumer_byte_rate", 6.0)),
    (ClientQuotaRecord(USER, "producer_byte_rate", None),),
    (ClientQuotaRecord(USER, "consumer_byte_rate", None), RemoveUserScramCredentialRecord("alice", 1)),
    (AccessControlEntryRecord(ACL, 2, "a", 3, "User:alice", "*", 3, 3),),
    (DelegationTokenRecord("id", "User:alice", "User:bob", (), 1, 9, 5),),
    (DelegationTokenRecord("id", "User:alice", "User:bob", (), 1, 9, 8), RemoveAccessControlEntryRecord(ACL)),
    (RemoveDelegationTokenRecord("id"), UnregisterBrokerRecord(2, 2)),
    (RegisterBrokerRecord(2, UUID(int=22), ()), BrokerChangeRecord(1, 1, in_controlled_shutdown=True, log_dirs=())),
)


def test_records_mean_to_nodes_what_they_mean_here() -> None:
    state, loader, images, offset = MetadataState(), MetadataLoader("c"), ImageChecker(), 0
    for number, records in enumerate(BATCHES):
        batch = batch_of(offset, *records, epoch=1 + number // 5)
        offset += len(records)
        state.replay(batch)
        images.on_committed([batch])
        loader.on_commit([batch])
        assert parts_of(loader.image) == state.parts(), records
        assert images.after_event(1, loader)
    assert [dict(parts["numbers"])["epoch"] for parts in images.since(offset)] == [5]
    assert len(list(images.since(0))) == len(BATCHES)
    assert len(list(images.since(offset - len(BATCHES[-1])))) == 2


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_a_node_that_lacks_a_batch_is_found_out(number: int) -> None:
    state = MetadataState()
    loader, images, offset = MetadataLoader("c"), ImageChecker(), 0
    for records in BATCHES[: number + 1]:
        batch = batch_of(offset, *records)
        state.replay(batch)
        images.on_committed([batch])
        if records is not BATCHES[number]:
            loader.on_commit([batch])
        offset += len(records)
    loader.image.advance(offset - 1, 1)
    before = {part for part, values in parts_of(loader.image).items() if values != state.parts()[part]}
    assert before
    with pytest.raises(InvariantBroken, match="the metadata of a node are what the committed records say"):
        images.after_event(1, loader)
