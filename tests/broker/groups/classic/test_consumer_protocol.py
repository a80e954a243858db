"""The consumers' embedded protocol in all its versions, which ConsumerProtocolSubscription of Apache Kafka defines."""

from __future__ import annotations

import pytest

from raftwerk.broker.coordinators.record_fields import BadRecord, FieldWriter
from raftwerk.broker.groups.classic.consumer_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
    write_subscription,
)
from raftwerk.broker.groups.consumer.migration import version_of

TOPICS = ("flights", "hotels")
OWNED = (("flights", 3), ("flights", 4))


def subscription(version: int) -> bytes:
    """The subscription of a client that speaks this version: each version has one more field at the end."""
    writer = FieldWriter().int16(version).count(len(TOPICS)).string(TOPICS[0]).string(TOPICS[1]).blob(b"user data")
    if version >= 1:
        writer.count(1).string("flights").count(2).int32(3).int32(4)
    if version >= 2:
        writer.int32(7)  # the generation
    if version >= 3:
        writer.string("rack-a")
    if version >= 4:
        writer.string("of a version that is not there yet")
    return bytes(writer.data)


@pytest.mark.parametrize("version", range(5))
def test_subscriptions_of_every_version_are_read(version: int) -> None:
    owned = OWNED if version >= 1 else ()
    rack_id = "rack-a" if version >= 3 else None
    assert read_subscription(subscription(version)) == Subscription(version, TOPICS, owned, rack_id)
    assert subscribed_topics(subscription(version)) == TOPICS
    assert version_of(subscription(version)) == version


def test_what_is_no_subscription_is_refused_and_shows_no_topics() -> None:
    negative = FieldWriter().int16(-1).count(1).string("flights").blob(b"").data
    for metadata in (bytes(negative), b"", subscription(0)[:6]):
        with pytest.raises(BadRecord):
            read_subscription(metadata)
        assert subscribed_topics(metadata) is None
        assert version_of(metadata) == 0
    for version in range(4):
        with pytest.raises(BadRecord):
            read_subscription(subscription(version)[:-1])


def test_a_subscription_that_is_written_has_the_first_version_with_owned_partitions() -> None:
    assert read_subscription(write_subscription(TOPICS, OWNED)) == Subscription(1, TOPICS, OWNED, None)


@pytest.mark.parametrize(("version", "written"), [(0, 0), (1, 1), (3, 3), (4, 3)])
def test_an_assignment_has_the_version_of_the_members_subscription_if_that_is_known(version: int, written: int) -> None:
    data = write_assignment(version, OWNED)
    assert data[:2] == written.to_bytes(2, "big")
    assert read_assignment(data) == (OWNED, b"")


def test_the_user_data_of_an_assignment_is_read_and_no_bytes_assign_nothing() -> None:
    data = FieldWriter().int16(0).count(1).string("hotels").count(1).int32(2).blob(b"user data").data
    assert read_assignment(bytes(data)) == ((("hotels", 2),), b"user data")
    assert read_assignment(b"") == ((), b"")
    with pytest.raises(BadRecord):
        read_assignment(b"\xff\xff")
