"""The groups and offsets of one partition of `__consumer_offsets`, as its records say (Kafka's class of that name)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ...runtime.invariants import sometimes
from ...wire.types import TopicPartition
from ..coordinators.record_fields import BadRecord
from .classic.classic_group import ClassicGroup
from .classic.classic_group_members import ClassicGroupState
from .classic.classic_group_view import ClassicGroupView
from .consumer.consumer_group import ConsumerGroup
from .consumer.consumer_group_member import ConsumerGroupMember, MemberState
from .consumer.group_view import ConsumerGroupView
from .consumer.topics import Topics
from .group_config import GroupConfig
from .offset_commits_in_flight import OffsetCommitsInFlight
from .pending_transactional_offsets import PendingTransactionalOffsets
from .records.consumer_group_records import (
    ConsumerGroupKey,
    CurrentAssignmentValue,
    RecordType,
    decode_consumer_key,
    decode_current,
    decode_epoch,
    decode_member_metadata,
    decode_target,
)
from .records.offset_and_classic_records import (
    ClassicGroupKey,
    GroupMetadataValue,
    OffsetAndMetadata,
    OffsetKey,
    check_classic_group,
    decode_classic_group,
    decode_key,
    decode_offset,
)

Group: TypeAlias = "ClassicGroup | ConsumerGroup"
_REBALANCING = (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE)
GroupOffsets: TypeAlias = dict[TopicPartition, OffsetAndMetadata]


class GroupCoordinatorShard:
    """While it loads, it replays records in order; `finish_loading` makes the groups. From then on it is active.

    It belongs to one leader epoch.
    """

    def __init__(
        self, partition: int, leader_epoch: int, config_of: Callable[[str], GroupConfig], topics: Topics
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self._config_of = config_of
        self._topics = topics
        self._downgraded: dict[str, ConsumerGroup] = {}
        """The consumer groups whose classic successors are not committed yet."""
        self.pending = PendingTransactionalOffsets()
        self.in_flight = OffsetCommitsInFlight()
        self._classic: dict[str, GroupMetadataValue] = {}
        self._consumer: dict[str, ConsumerGroup] = {}
        self._current: dict[str, dict[str, CurrentAssignmentValue]] = {}
        """Current assignments by group and member: compaction may leave one in front of its member's metadata."""

    @property
    def name(self) -> str:
        """The shard in log lines."""
        return f"group partition {self.partition}"

    # ---------------------------------------------------------------- loading

    def replay(self, key: bytes | None, value: bytes | None, *, transaction_of: int = -1) -> None:
        """Replay one record; keys of other types are skipped. Raises `BadRecord`.

        `transaction_of` is the producer id of its transaction, -1 for none.
        """
        if key is None:
            raise BadRecord("no key")
        found = decode_key(key)
        if isinstance(found, OffsetKey):
            if transaction_of >= 0 and value is not None:
                self.pending.add(transaction_of, found, decode_offset(value))
            elif value is None:
                self.forget(found.group_id, (found.topic_partition,))
            else:
                self.store(found.group_id, ((found.topic_partition, decode_offset(value)),))
        elif isinstance(found, ClassicGroupKey):
            if value is None:
                self._classic.pop(found.group_id, None)
            else:
                group = decode_classic_group(value)
                check_classic_group(group)
                self._classic[found.group_id] = group
        else:
            consumer_key = decode_consumer_key(key)
            if consumer_key is not None:
                self._replay_consumer(consumer_key, value)

    def finish_loading(self, now_ms: int, pass_over: Callable[[str, Exception], None]) -> None:
        """All records are replayed: make the groups, and start their sessions.

        `pass_over` is called with a group that cannot be made of its records; only its offsets are kept.
        """
        for group_id, group in self._consumer.items():
            if group.members or (group.epoch and group_id not in self._classic):
                self._classic.pop(group_id, None)
                try:
                    self._give_current_assignments(group)
                    group.restore(now_ms)
                except Exception as error:  # its records are valid one by one, and do not fit together
                    pass_over(f"group {group_id}", error)
                else:
                    self.groups[group_id] = group
        for group_id, value in self._classic.items():
            config = self._config_of(group_id).classic
            try:
                self.groups[group_id] = ClassicGroup.restored(group_id, config, value, now_ms)
            except Exception as error:  # as above
                pass_over(f"group {group_id}", error)
        self._classic.clear()
        self._consumer.clear()
        self._current.clear()
        for group_id in (*self.offsets, *self.pending.groups):
            if group_id not in self.groups:
                self.new_classic(group_id)
        self.is_loading = False

    # ---------------------------------------------------------------- groups

    def new_classic(self, group_id: str) -> ClassicGroup:
        """A new classic group without members. It replaces a group of that id."""
        group = self.groups[group_id] = ClassicGroup(group_id, self._config_of(group_id).classic)
        return group

    def new_consumer(self, group_id: str) -> ConsumerGroup:
        """A new consumer group without members. It replaces a group of that id."""
        group = self.groups[group_id] = ConsumerGroup(group_id, self._config_of(group_id), self._topics)
        return group

    def note_downgrade(self, group: ConsumerGroup) -> None:
        """A classic group has taken the group's place, whose records may not be committed yet."""
        if group.has_uncommitted:
            self._downgraded[group.group_id] = group

    def note_written(self, group: Group) -> None:
        """A write of the group is committed, or has failed."""
        is_downgraded = self._downgraded.get(group.group_id) is group
        if is_downgraded and isinstance(group, ConsumerGroup) and not group.has_uncommitted:
            del self._downgraded[group.group_id]

    def committed_group(self, group_id: str) -> ConsumerGroupView | ClassicGroupView | None:
        """The group for administrators; None for none.

        A consumer group, and of which protocol a group is, is shown as the committed records say. What a classic group
        does is not in the log until it has its assignments, here as in Apache Kafka.
        """
        group = self._downgraded.get(group_id) or self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.committed()
        return None if group is None else ClassicGroupView(group, group.state)

    def apply_configs(self) -> None:
        """Give each group its settings again, after a change of settings."""
        for group_id, group in self.groups.items():
            config = self._config_of(group_id)
            if isinstance(group, ConsumerGroup):
                group.config = config
            else:
                group.config = config.classic

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """The committed offsets of the group."""
        return self.offsets.get(group_id, {})

    def store(self, group_id: str, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]) -> None:
        """Store offsets whose commit is in the log."""
        self._ensure_group(group_id)
        stored = self.offsets.setdefault(group_id, {})
        for topic_partition, value in offsets:
            stored[topic_partition] = value
            if self.pending:
                self.pending.replace(OffsetKey(group_id, topic_partition))

    def store_pending(
        self, producer_id: int, group_id: str, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]
    ) -> None:
        """Store offsets whose commit is in the log, in a transaction of the producer that is open."""
        self._ensure_group(group_id)
        self.pending.add_all(producer_id, group_id, offsets)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """The marker of a transaction is in the log: its offsets take effect, or are forgotten."""
        for key, value in self.pending.end(producer_id, is_committed=is_committed):
            self._ensure_group(key.group_id)
            self.offsets.setdefault(key.group_id, {})[key.topic_partition] = value

    def _ensure_group(self, group_id: str) -> None:
        """Offsets have a group: it shows them, and they expire with it. It may have been removed before their commit.

        While the shard loads, `finish_loading` sees to that.
        """
        if not self.is_loading and group_id not in self.groups:
            sometimes(True, "a commit followed the tombstones of its group")
            self.new_classic(group_id)

    def forget(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Drop offsets whose tombstones are in the log."""
        offsets = self.offsets.get(group_id, {})
        for topic_partition in partitions:
            offsets.pop(topic_partition, None)
            self.pending.forget(OffsetKey(group_id, topic_partition))
        if not offsets:
            self.offsets.pop(group_id, None)

    def forget_group(self, group: Group, partitions: Iterable[TopicPartition]) -> None:
        """Drop a group and these offsets of it, whose tombstones are in the log.

        Only the offsets go where a member has joined the group meanwhile, or another group has taken its place.
        """
        group_id = group.group_id
        self.forget(group_id, partitions)
        if self.groups.get(group_id) is group:
            sometimes(not group.is_empty, "a member joined a group while it was being removed")
            if group.is_empty:
                del self.groups[group_id]

    def partitions_with_offsets(self, group_id: str) -> list[TopicPartition]:
        """The partitions of which the log may hold an offset of the group: also those that may change at any time."""
        return list(dict.fromkeys((*self.offsets_of(group_id), *self.unsettled_partitions(group_id))))

    def unsettled_partitions(self, group_id: str) -> list[TopicPartition]:
        """The partitions of the group with an offset that is pending or on its way to the log."""
        return [*self.pending.partitions_of(group_id), *self.in_flight.partitions_of(group_id)]

    @property
    def groups_with_offsets(self) -> list[str]:
        """The groups of which the log may hold an offset."""
        return list(dict.fromkeys((*self.offsets, *self.pending.groups, *self.in_flight.groups)))

    def _replay_consumer(self, key: ConsumerGroupKey, value: bytes | None) -> None:
        group = self._consumer.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self._consumer[key.group_id] = ConsumerGroup(
                key.group_id, self._config_of(key.group_id), self._topics
            )
        if key.kind is RecordType.GROUP:
            if value is None:
                del self._consumer[key.group_id]
                self._current.pop(key.group_id, None)
            else:
                group.epoch, group.metadata_hash = decode_epoch(value)
        elif key.kind is RecordType.TARGET:
            group.target_epoch = 0 if value is None else decode_epoch(value).epoch
        elif key.kind is RecordType.PARTITIONS:
            return
        elif key.kind is RecordType.TARGET_MEMBER:
            if value is None:
                group.target.pop(key.member_id, None)
            else:
                group.target[key.member_id] = decode_target(value)
        elif key.kind is RecordType.MEMBER:
            if value is None:
                group.members.pop(key.member_id, None)
            else:
                group.members[key.member_id] = ConsumerGroupMember(key.member_id, decode_member_metadata(value))
        else:
            current = self._current.setdefault(key.group_id, {})
            if value is None:
                current.pop(key.member_id, None)
            else:
                current[key.member_id] = _valid_current(value)

    def _give_current_assignments(self, group: ConsumerGroup) -> None:
        for member_id, current in self._current.get(group.group_id, {}).items():
            member = group.members.get(member_id)
            if member is not None:
                epoch, previous_epoch, state, assigned, revoking = current
                group.members[member_id] = ConsumerGroupMember(
                    member_id, member.subscription, epoch, previous_epoch, MemberState(state), assigned, revoking
                )


def _valid_current(value: bytes) -> CurrentAssignmentValue:
    current = decode_current(value)
    try:
        MemberState(current.state)
    except ValueError as error:
        raise BadRecord(str(error)) from error
    return current


def expired_offsets(
    group: Group | None, offsets: GroupOffsets, wall_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """The partitions whose committed offsets have expired (KIP-211).

    Offsets of an empty group expire `retention_ms` after it became empty. Offsets of a group with members expire
    `retention_ms` after the commit, and only for topics that the group does not subscribe to. Offsets without a group
    expire `retention_ms` after the commit.
    """
    candidates: GroupOffsets = offsets
    idle_since_ms = -1
    if group is not None and group.is_empty:
        idle_since_ms = group.state_timestamp_ms if not group.is_simple else -1
    elif group is not None:
        topics = group.subscribed_topics() if group.state not in _REBALANCING else None
        candidates = {} if topics is None else {key: one for key, one in offsets.items() if key.topic not in topics}
    return [
        key
        for key, value in candidates.items()
        if (
            value.expire_timestamp_ms <= wall_ms
            if value.expire_timestamp_ms >= 0
            else max(value.commit_timestamp_ms, idle_since_ms) + retention_ms <= wall_ms
        )
    ]
