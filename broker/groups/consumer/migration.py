"""Online migration of a group between the two protocols, in both directions (KIP-848, "Upgrade" and "Downgrade").

A classic group becomes a consumer group when a member joins with the consumer protocol. The generation becomes the
epoch, and the assignments of the members become both their current and their target assignments. Each member keeps its
classic metadata (`ClassicMemberMetadata`) and is served in the classic protocol. The new member then begins the next
epoch. When the last member with the consumer protocol leaves, the epoch becomes the generation again, and all members
are told to join again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....wire.errors import ErrorCode, ProtocolError
from ...coordinators.record_fields import BadRecord, CoordinatorRecord
from ..classic.classic_group import ClassicGroup
from ..classic.classic_group_members import ClassicGroupMember, ClassicGroupState
from ..classic.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    NamedPartitions,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
)
from ..group_config import ClassicConfig, ConsumerConfig
from ..records.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupKey,
    EpochValue,
    MemberMetadataValue,
    RecordType,
    current_record,
    epoch_record,
    member_metadata_record,
    target_record,
)
from .assignors import PartitionId, PartitionIds
from .consumer_group_member import ConsumerGroupMember
from .topics import Topics

_KNOWN_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Their user data may be dropped: librdkafka sends back a member's own. Apache Kafka refuses a group with any."""


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """What a downgrade needs of a consumer group. `target` is the target assignment of each member."""

    group_id: str
    epoch: int
    members: Iterable[ConsumerGroupMember]
    target: Mapping[str, PartitionIds]


def check_upgrade(group: ClassicGroup, config: ConsumerConfig) -> None:
    """Raise `ProtocolError(GROUP_ID_NOT_FOUND)` where the group must stay classic."""
    reason = None
    if not config.migration_policy.upgrades:
        reason = "online upgrade is disabled."
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol."
    elif len(group.members) > config.max_size:
        reason = "the group size exceeds the consumer group maximum size."
    if reason is not None:
        raise _cannot_upgrade(group, reason)


def upgraded_members(group: ClassicGroup, topics: Topics) -> list[ConsumerGroupMember]:
    """The members of a classic group as members of a consumer group. Raises `ProtocolError(GROUP_ID_NOT_FOUND)`."""
    try:
        return [_upgraded(group, member, topics) for member in group.members.members.values()]
    except BadRecord as error:
        raise _cannot_upgrade(group, f"the embedded consumer protocol is malformed: {error}.") from error


def upgraded_records(
    group: ClassicGroup, epoch: EpochValue, members: Sequence[ConsumerGroupMember]
) -> list[CoordinatorRecord]:
    """The records of a group that was upgraded, in Kafka's order: its members have their target assignments.

    `epoch` is that of the consumer group: a new one if the classic group was rebalancing, so that its members get a new
    target. Otherwise no member would read the partitions of one that has left, where the one who joins is a static
    member that comes back and changes nothing.
    """
    group_id = group.group_id
    return [
        *(member_metadata_record(group_id, one.member_id, one.subscription) for one in members),
        epoch_record(ConsumerGroupKey(RecordType.GROUP, group_id), epoch),
        *(target_record(group_id, one.member_id, one.assigned) for one in members),
        epoch_record(ConsumerGroupKey(RecordType.TARGET, group_id), EpochValue(group.generation)),
        *(current_record(group_id, one.member_id, one.current()) for one in members),
    ]


def _cannot_upgrade(group: ClassicGroup, reason: str) -> ProtocolError:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    return ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _upgraded(group: ClassicGroup, member: ClassicGroupMember, topics: Topics) -> ConsumerGroupMember:
    subscribed = read_subscription(member.metadata(group.protocol or member.protocols[0][0]))
    given, assignor_data = read_assignment(member.assignment)
    if assignor_data and group.protocol not in _KNOWN_ASSIGNORS:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    subscription = MemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=subscribed.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(sorted(subscribed.topics)),
        topic_regex=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
    )
    parts = by_id(given, topics)
    return ConsumerGroupMember(member.member_id, subscription, group.generation, group.generation, assigned=parts)


def downgraded(state: ConsumerState, config: ClassicConfig, topics: Topics, wall_ms: int) -> ClassicGroup:
    """The classic group that a consumer group of classic members becomes. Raises `ProtocolError`."""
    group = ClassicGroup(state.group_id, config)
    group.state = ClassicGroupState.STABLE
    group.state_timestamp_ms = wall_ms
    group.generation = state.epoch
    group.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in state.members:
        metadata, classic = member.subscription, member.subscription.classic
        if classic is None:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"{member.member_id} speaks the consumer protocol only")
        group.members.add(
            ClassicGroupMember(
                member_id=member.member_id,
                instance_id=metadata.instance_id,
                client_id=metadata.client_id,
                client_host=metadata.client_host,
                rebalance_timeout_ms=metadata.rebalance_timeout_ms,
                session_timeout_ms=classic.session_timeout_ms,
                protocols=classic.protocols,
            )
        )
    group.protocol = group.members.elect_protocol()
    for one in group.members.members.values():
        embedded = one.metadata(group.protocol)
        parts = by_name(state.target.get(one.member_id, ()), topics)
        one.assignment = write_assignment(version_of(embedded), parts)
    return group


def reopen(group: ClassicGroup, state: ClassicGroupState, now_ms: int, wall_ms: int) -> None:
    """The classic group goes on in this state, since the consumer group in its place could not be written.

    The requests of its members were answered meanwhile; a rebalance that was under way begins anew.
    """
    group.state = state
    group.members.pending.clear()
    must_rebalance = state not in (ClassicGroupState.EMPTY, ClassicGroupState.STABLE)
    group.begin_after_conversion(now_ms, wall_ms, must_rebalance=must_rebalance)


def version_of(metadata: bytes) -> int:
    """The version of the consumers' embedded protocol that a member uses."""
    return int.from_bytes(metadata[:2], "big") if subscribed_topics(metadata) is not None else 0


def by_id(parts: NamedPartitions, topics: Topics) -> PartitionIds:
    """Partitions by topic id, sorted; those of unknown topics are left out."""
    found: list[PartitionId] = []
    for name, partition in parts:
        topic = topics.find(name)
        if topic is not None:
            found.append((topic[0], partition))
    return tuple(sorted(found))


def by_name(parts: PartitionIds, topics: Topics) -> list[tuple[str, int]]:
    """Partitions by topic name; those of unknown topics are left out."""
    names = {topic_id: topics.name_of(topic_id) for topic_id in dict.fromkeys(topic_id for topic_id, _ in parts)}
    return [(name, partition) for topic_id, partition in parts if (name := names[topic_id]) is not None]
