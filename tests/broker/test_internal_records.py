"""What people see of the records of internal topics."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.broker.groups.classic.consumer_protocol import write_assignment, write_subscription
from raftwerk.broker.groups.records.consumer_group_records import (
    ConsumerGroupKey,
    CurrentAssignmentValue,
    EpochValue,
    MemberMetadataValue,
    RecordType,
    current_record,
    epoch_record,
    member_metadata_record,
    target_record,
    tombstone,
)
from raftwerk.broker.groups.records.offset_and_classic_records import (
    GroupMetadataValue,
    MemberValue,
    OffsetAndMetadata,
    classic_group_record,
    offset_record,
)
from raftwerk.broker.internal_records import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, readable_record
from raftwerk.broker.transactions.transaction_metadata import TransactionMetadata, TransactionState
from raftwerk.broker.transactions.transaction_records import transaction_record
from raftwerk.wire.types import TopicPartition

TOPIC_ID = UUID(int=7)


def test_committed_offsets_and_their_tombstones() -> None:
    key, value = offset_record("g", TopicPartition("t", 3), OffsetAndMetadata(17, 2, "m", 1000))
    found = readable_record(OFFSETS_TOPIC, key, value)
    assert found is not None
    assert found.key == {"type": "offset", "group": "g", "topic": "t", "partition": 3}
    assert found.value == {
        "offset": 17,
        "leader_epoch": 2,
        "metadata": "m",
        "commit_timestamp_ms": 1000,
        "expire_timestamp_ms": -1,
        "topic_id": None,
    }
    assert readable_record(OFFSETS_TOPIC, key, None) == (found.key, None)


def test_a_classic_group_with_the_metadata_of_its_members() -> None:
    subscription, assignment = write_subscription(["t"], [("t", 1)]), write_assignment(1, [("t", 1)])
    member = MemberValue("m", None, "c", "/h", 10, 20, subscription, assignment)
    broken = member._replace(member_id="n", subscription=b"\xff", assignment=b"")
    key, value = classic_group_record("g", GroupMetadataValue("consumer", 4, "range", "m", 5, (member, broken)))
    found = readable_record(OFFSETS_TOPIC, key, value)
    assert found is not None and found.key == {"type": "classic group", "group": "g"}
    assert (found.value["generation"], found.value["protocol"]) == (4, "range")
    first, second = found.value["members"]
    assert first["subscription"]["topics"] == ["t"] and first["assignment"] == [["t", 1]]
    assert (second["subscription"], second["assignment"]) == ("/w==", None)


def test_the_records_of_a_consumer_group() -> None:
    group = ConsumerGroupKey(RecordType.GROUP, "g")
    found = readable_record(OFFSETS_TOPIC, *epoch_record(group, EpochValue(3, 9)))
    assert found == ({"type": "consumer group", "group": "g"}, {"epoch": 3, "metadata_hash": 9})
    metadata = MemberMetadataValue(None, None, "c", "/h", ("t",), None, 10, "uniform")
    found = readable_record(OFFSETS_TOPIC, *member_metadata_record("g", "m", metadata))
    assert found is not None and found.key["member"] == "m" and found.value["topic_names"] == ["t"]
    found = readable_record(OFFSETS_TOPIC, *target_record("g", "m", ((TOPIC_ID, 1),)))
    assert found is not None and found.value == {"assigned": [[str(TOPIC_ID), 1]]}
    current = CurrentAssignmentValue(3, 2, 0, ((TOPIC_ID, 1),), ())
    found = readable_record(OFFSETS_TOPIC, *current_record("g", "m", current))
    assert found is not None and found.value["member_epoch"] == 3
    found = readable_record(OFFSETS_TOPIC, *tombstone(ConsumerGroupKey(RecordType.MEMBER, "g", "m")))
    assert found == ({"type": "consumer group member", "group": "g", "member": "m"}, None)


def test_a_transactional_id() -> None:
    state = TransactionMetadata(7, 1, 60_000, TransactionState.ONGOING, frozenset({TopicPartition("t", 2)}), 5, 6)
    found = readable_record(TRANSACTIONS_TOPIC, *transaction_record("x", state, 2))
    assert found is not None and found.key == {"transactional_id": "x"}
    assert (found.value["state"], found.value["partitions"], found.value["producer_id"]) == ("Ongoing", ["t-2"], 7)
    key, _ = transaction_record("x", None, 2)
    assert readable_record(TRANSACTIONS_TOPIC, key, None) == ({"transactional_id": "x"}, None)


@given(st.sampled_from([OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "t"]), st.binary(max_size=40), st.binary(max_size=60))
def test_bytes_that_are_no_such_record_are_none(topic: str, key: bytes, value: bytes) -> None:
    found = readable_record(topic, key, value)
    assert found is None or (topic != "t" and found.key)
    assert readable_record(topic, None, value) is None
