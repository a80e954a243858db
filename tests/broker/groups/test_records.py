from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.broker.coordinators.partition_for import java_string_hash, partition_for
from raftwerk.broker.coordinators.record_fields import EPOCH_MAX, BadRecord, CoordinatorRecord, FieldWriter
from raftwerk.broker.groups.classic.consumer_protocol import subscribed_topics
from raftwerk.broker.groups.records.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupKey,
    CurrentAssignmentValue,
    EpochValue,
    MemberMetadataValue,
    RecordType,
    current_record,
    decode_consumer_key,
    decode_current,
    decode_epoch,
    decode_member_metadata,
    decode_target,
    epoch_record,
    member_metadata_record,
    target_record,
)
from raftwerk.broker.groups.records.offset_and_classic_records import (
    ClassicGroupKey,
    GroupMetadataValue,
    MemberValue,
    OffsetAndMetadata,
    OffsetKey,
    check_classic_group,
    classic_group_record,
    decode_classic_group,
    decode_key,
    decode_offset,
    offset_record,
)
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("flights", 3)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
topic_ids = st.none() | st.uuids()
int64s = st.integers(-(2**63), 2**63 - 1)
members = st.builds(
    MemberValue, texts, st.none() | texts, texts, texts, int32s, int32s, st.binary(max_size=9), st.binary(max_size=9)
)
groups = st.builds(
    GroupMetadataValue,
    texts,
    int32s,
    st.none() | texts,
    st.none() | texts,
    int64s,
    st.lists(members, max_size=3).map(tuple),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("console-consumer-1", 35782224),
        ("gröp", 3185765),
        ("😀", 1772899),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_smallest_hash_has_a_partition() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@given(texts, st.integers(1, 100))
def test_every_group_has_a_partition(group_id: str, count: int) -> None:
    assert 0 <= partition_for(group_id, count) < count


def test_an_offset_is_written_as_kafka_does() -> None:
    record = offset_record("g", TP, OffsetAndMetadata(42, 7, "m", 1000))
    assert record.key.hex() == "00010001670007666c696768747300000003"
    assert record.value is not None
    assert record.value.hex() == "0004000000000000002a00000007026d00000000000003e800"
    named = offset_record("g", TP, OffsetAndMetadata(1, -1, "m", 0, -1, UUID(int=7))).value
    assert named is not None  # the bytes that Apache Kafka 4.2's own class gives
    assert named.hex() == "00040000000000000001ffffffff026d000000000000000001001000000000000000000000000000000007"
    expiring = offset_record("g", TP, OffsetAndMetadata(42, 7, "m", 1000, 2000)).value
    assert expiring is not None
    assert expiring.hex() == "0001000000000000002a00016d00000000000003e800000000000007d0"


def test_a_group_is_written_as_kafka_does() -> None:
    member = MemberValue("m", "i", "c", "/h", 1, 2, b"s", b"a")
    record = classic_group_record("g", GroupMetadataValue("consumer", 5, "range", "m", 1000, (member,)))
    assert record.key.hex() == "0002000167"
    assert record.value is not None
    assert record.value.hex() == (
        "0003" "0008636f6e73756d6572" "00000005" "000572616e6765" "00016d" "00000000000003e8" "00000001"
        "00016d" "000169" "000163" "00022f68" "00000001" "00000002" "0000000173" "0000000161"
    )  # fmt: skip


@given(texts, texts, int32s, st.builds(OffsetAndMetadata, int64s, int32s, texts, int64s, st.just(-1), topic_ids))
def test_offsets_round_trip(group_id: str, topic: str, partition: int, value: OffsetAndMetadata) -> None:
    record = offset_record(group_id, TopicPartition(topic, partition), value)
    assert decode_key(record.key) == OffsetKey(group_id, TopicPartition(topic, partition))
    assert record.value is not None
    assert decode_offset(record.value) == value


@given(texts, groups)
def test_groups_round_trip(group_id: str, value: GroupMetadataValue) -> None:
    record = classic_group_record(group_id, value)
    assert decode_key(record.key) == ClassicGroupKey(group_id)
    assert record.value is not None
    assert decode_classic_group(record.value) == value


def test_older_and_newer_versions_are_read() -> None:
    v0 = FieldWriter().int16(0).int64(9).string("m").int64(1000).data
    assert decode_offset(bytes(v0)) == OffsetAndMetadata(9, -1, "m", 1000)
    v1 = FieldWriter().int16(1).int64(9).string("m").int64(1000).int64(2000).data
    assert decode_offset(bytes(v1)) == OffsetAndMetadata(9, -1, "m", 1000, 2000)
    v2 = FieldWriter().int16(2).int64(9).string("m").int64(1000).data
    assert decode_offset(bytes(v2)) == OffsetAndMetadata(9, -1, "m", 1000)
    v3 = FieldWriter().int16(3).int64(9).int32(3).string("m").int64(1000).data
    assert decode_offset(bytes(v3)) == OffsetAndMetadata(9, 3, "m", 1000)
    v4 = FieldWriter(compact=True).int16(4).int64(9).int32(3).string("m").int64(1000)
    v4.data += b"\x01\x00\x10" + bytes(16)  # a topic id, tagged
    assert decode_offset(bytes(v4.data)) == OffsetAndMetadata(9, 3, "m", 1000)
    g0 = FieldWriter().int16(0).string("consumer").int32(1).string(None).string(None).count(1)
    g0.string("m").string("c").string("/h").int32(10).blob(b"s").blob(b"a")
    member = MemberValue("m", None, "c", "/h", 10, 10, b"s", b"a")
    assert decode_classic_group(bytes(g0.data)) == GroupMetadataValue("consumer", 1, None, None, -1, (member,))
    g1 = FieldWriter().int16(1).string("consumer").int32(1).string(None).string(None).count(1)
    g1.string("m").string("c").string("/h").int32(20).int32(10).blob(b"s").blob(b"a")
    member = MemberValue("m", None, "c", "/h", 20, 10, b"s", b"a")
    assert decode_classic_group(bytes(g1.data)) == GroupMetadataValue("consumer", 1, None, None, -1, (member,))
    g2 = FieldWriter().int16(2).string("consumer").int32(1).string(None).string(None).int64(5).count(0)
    assert decode_classic_group(bytes(g2.data)) == GroupMetadataValue("consumer", 1, None, None, 5, ())
    g4 = FieldWriter(compact=True).int16(4).string("consumer").int32(1).string("range").string("m").int64(5).count(1)
    g4.string("m").string("i").string("c").string("/h").int32(20).int32(10).blob(b"s").blob(b"a").tags().tags()
    member = MemberValue("m", "i", "c", "/h", 20, 10, b"s", b"a")
    assert decode_classic_group(bytes(g4.data)) == GroupMetadataValue("consumer", 1, "range", "m", 5, (member,))


@pytest.mark.parametrize("version", [-1, 5])
@pytest.mark.parametrize("decode", [decode_offset, decode_classic_group])
def test_values_of_versions_that_are_not_known_are_refused(version: int, decode: Callable[[bytes], object]) -> None:
    """They may have other fields at the same places."""
    with pytest.raises(BadRecord, match=f"version {version}"):
        decode(bytes(FieldWriter(compact=version > 0).int16(version).data) + bytes(100))


def test_unknown_keys_are_skipped() -> None:
    assert decode_key(bytes(FieldWriter().int16(99).string("g").data)) is None


@given(st.binary(max_size=40))
def test_corrupt_records_raise_bad_record(data: bytes) -> None:
    for decode in (decode_key, decode_offset, decode_classic_group):
        try:
            decode(data)
        except BadRecord:
            pass
    subscribed_topics(data)


def test_topics_of_a_subscription() -> None:
    subscription = FieldWriter().int16(3).count(2).string("a").string("b").blob(b"").count(0).data
    assert subscribed_topics(bytes(subscription)) == ("a", "b")
    assert subscribed_topics(b"\x00") is None


def test_a_classic_member_of_a_consumer_group_may_have_several_protocols() -> None:
    classic = ClassicMemberMetadata(7, (("range", b"\x01"), ("sticky", b""), ("custom", b"\x02\x03")))
    said = MemberMetadataValue("i", "r", "c", "/h", ("t", "u"), "t.*", 5, "uniform", classic)
    written = member_metadata_record("g", "m", said).value
    assert written is not None
    assert decode_member_metadata(written) == said


@pytest.mark.parametrize(("kind", "number", "member_id"), [
    (RecordType.GROUP, 3, ""), (RecordType.PARTITIONS, 4, ""), (RecordType.MEMBER, 5, "m"),
    (RecordType.TARGET, 6, ""), (RecordType.TARGET_MEMBER, 7, "m"), (RecordType.CURRENT_MEMBER, 8, "m"),
])  # fmt: skip
def test_keys_of_consumer_groups_have_the_numbers_of_apache_kafka(
    kind: RecordType, number: int, member_id: str
) -> None:
    """Its other kinds, such as those of share groups, are passed over."""
    writer = FieldWriter().int16(number).string("g")
    data = bytes((writer.string(member_id) if member_id else writer).data)
    assert decode_consumer_key(data) == ConsumerGroupKey(kind, "g", member_id)
    for other in (2, 9, 16):
        assert decode_consumer_key(bytes(FieldWriter().int16(other).string("g").data)) is None


@pytest.mark.parametrize(("decode", "record"), [
    (decode_member_metadata, member_metadata_record("g", "m", MemberMetadataValue("", "", "", "", (), "", 5, ""))),
    (decode_target, target_record("g", "m", ())),
    (decode_current, current_record("g", "m", CurrentAssignmentValue(1, 1, 0, (), ()))),
    (decode_epoch, epoch_record(ConsumerGroupKey(RecordType.GROUP, "g"), EpochValue(1, 2))),
])  # fmt: skip
def test_values_of_consumer_groups_have_version_0(decode: Callable[[bytes], object], record: CoordinatorRecord) -> None:
    """Another version may have other fields at the same places."""
    assert record.value is not None and record.value[:2] == b"\0\0"
    decode(record.value)
    for version in (b"\0\1", b"\xff\xff"):
        with pytest.raises(BadRecord):
            decode(version + record.value[2:])


def test_the_epoch_of_a_group_has_the_hash_of_its_topics_if_there_is_one() -> None:
    """As Apache Kafka writes it: a tagged field that has its default is left out. A target assignment has none."""
    group, target = ConsumerGroupKey(RecordType.GROUP, "g"), ConsumerGroupKey(RecordType.TARGET, "g")
    plain, hashed = "0000" + "00000007" + "00", "0000" + "00000007" + "010008" + "0000000000000102"
    for key, value, written in (
        (group, EpochValue(7), plain), (group, EpochValue(7, 0x102), hashed), (target, EpochValue(7), plain),
    ):  # fmt: skip
        record = epoch_record(key, value)
        assert record.value is not None and record.value.hex() == written
        assert decode_epoch(record.value) == value
    with pytest.raises(BadRecord):
        decode_epoch(bytes.fromhex("0000" + "00000007" + "010004" + "00000102"))


@pytest.mark.parametrize(("generation", "is_good"), [(-1, False), (0, True), (EPOCH_MAX, True), (EPOCH_MAX + 1, False)])
def test_a_classic_group_with_a_generation_that_none_can_have_is_bad(generation: int, is_good: bool) -> None:
    """The next one after it might not fit into the field."""
    value = GroupMetadataValue("consumer", generation, "range", None, 0, ())
    if is_good:
        check_classic_group(value)
    else:
        with pytest.raises(BadRecord):
            check_classic_group(value)


def test_members_of_a_classic_group_have_a_protocol_and_ids_of_their_own() -> None:
    one, other = MemberValue("m", None, "c", "/h", 1, 1, b"", b""), MemberValue("n", None, "c", "/h", 1, 1, b"", b"")
    check_classic_group(GroupMetadataValue("consumer", 1, None, None, 0, ()))
    check_classic_group(GroupMetadataValue("consumer", 1, "range", "m", 0, (one, other)))
    for protocol, members in ((None, (one,)), ("range", (one, one))):
        with pytest.raises(BadRecord):
            check_classic_group(GroupMetadataValue("consumer", 1, protocol, "m", 0, members))


def test_a_classic_member_of_a_consumer_group_as_kafka_writes_it() -> None:
    """The bytes that Apache Kafka 4.2's own class gives for these values."""
    classic = ClassicMemberMetadata(7, (("range", b"\x01\x02"),))
    said = MemberMetadataValue("", "", "c", "/h", ("t",), "", 5, "", classic)
    written = member_metadata_record("g", "m", said).value
    assert written is not None
    assert written.hex() == "000001010263032f680202740100000005010100110100000007020672616e67650301020000"
    assert decode_member_metadata(written) == said
