"""Which classic groups may become consumer groups, and what their members keep."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from support.broker.consumer_transcript import FakeTopics

from raftwerk.broker.coordinators.record_fields import FieldWriter
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.classic.consumer_protocol import write_assignment
from raftwerk.broker.groups.consumer.consumer_group_member import ConsumerGroupMember, MemberState
from raftwerk.broker.groups.consumer.migration import check_upgrade, upgraded_members
from raftwerk.broker.groups.group_config import ClassicConfig, ConsumerConfig, MigrationPolicy
from raftwerk.broker.groups.records.consumer_group_records import ClassicMemberMetadata, MemberMetadataValue
from raftwerk.broker.groups.records.offset_and_classic_records import GroupMetadataValue, MemberValue
from raftwerk.wire.errors import ErrorCode, ProtocolError

SUBSCRIPTION = bytes(
    FieldWriter().int16(3).count(2).string("u").string("t").blob(b"").count(0).int32(7).string("rack-a").data
)
ASSIGNMENT = write_assignment(1, [("t", 1), ("t", 0), ("gone", 0)])
WITH_USER_DATA = bytes(FieldWriter().int16(1).count(1).string("t").count(1).int32(0).blob(b"user data").data)
MEMBER = MemberValue("m", "i", "c", "/h", 60_000, 10_000, SUBSCRIPTION, ASSIGNMENT)


def group(*members: MemberValue, protocol: str = "range", protocol_type: str = "consumer") -> ClassicGroup:
    """A stable group in generation 5."""
    value = GroupMetadataValue(protocol_type, 5, protocol, members[0].member_id, 0, members)
    return ClassicGroup.restored("g", ClassicConfig(), value, 0)


def test_a_member_keeps_its_subscription_its_partitions_and_its_place() -> None:
    """Partitions of topics that do not exist any more are left out."""
    (member,) = upgraded_members(group(MEMBER), FakeTopics())
    classic = ClassicMemberMetadata(10_000, (("range", SUBSCRIPTION),))
    subscription = MemberMetadataValue("i", "rack-a", "c", "/h", ("t", "u"), None, 60_000, None, classic)
    topic_id = UUID(int=ord("t"))
    assert member == ConsumerGroupMember(
        "m", subscription, 5, 5, MemberState.STABLE, ((topic_id, 0), (topic_id, 1)), ()
    )


@pytest.mark.parametrize(("protocol", "assignment", "is_good"), [
    ("range", WITH_USER_DATA, True), ("cooperative-sticky", WITH_USER_DATA, True),
    ("custom", ASSIGNMENT, True), ("custom", WITH_USER_DATA, False), ("range", b"\xff", False),
])  # fmt: skip
def test_the_user_data_of_a_custom_assignor_cannot_be_kept(protocol: str, assignment: bytes, is_good: bool) -> None:
    members = group(MEMBER._replace(assignment=assignment), protocol=protocol)
    if is_good:
        assert len(upgraded_members(members, FakeTopics())) == 1
    else:
        with pytest.raises(ProtocolError) as refused:
            upgraded_members(members, FakeTopics())
        assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_subscription_that_cannot_be_read_keeps_the_group_classic() -> None:
    with pytest.raises(ProtocolError, match="malformed"):
        upgraded_members(group(MEMBER._replace(subscription=b"\0")), FakeTopics())


def test_the_policy_the_protocol_type_and_the_size_decide() -> None:
    allowed, other = ConsumerConfig(max_size=2), MEMBER._replace(member_id="n", instance_id=None)
    check_upgrade(group(MEMBER, other), allowed)
    check_upgrade(group(MEMBER), replace(allowed, migration_policy=MigrationPolicy.UPGRADE))
    for refused, config, reason in (
        (group(MEMBER), replace(allowed, migration_policy=MigrationPolicy.DOWNGRADE), "online upgrade is disabled"),
        (group(MEMBER, protocol_type="connect"), allowed, "does not use the consumer embedded protocol"),
        (group(MEMBER, other), replace(allowed, max_size=1), "exceeds the consumer group maximum size"),
    ):
        with pytest.raises(ProtocolError, match=reason):
            check_upgrade(refused, config)
