"""The groups and offsets of one partition of `__consumer_offsets`: what its records add up to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...wire.types import TopicPartition
from .classic_group import ClassicGroup
from .classic_members import GroupState
from .config import GroupConfig
from .packing import BadRecord
from .records import (
    GroupKey,
    GroupRecord,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
    group_record,
    offset_record,
)

Group: TypeAlias = ClassicGroup
GroupOffsets: TypeAlias = dict[TopicPartition, OffsetValue]


class Shard:
    """Loading: records are replayed, in order; `finish_loading` makes groups of them. Then it is active."""

    def __init__(self, partition: int, leader_epoch: int, config: GroupConfig) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self._config = config
        self._classic: dict[str, GroupValue] = {}

    # ---------------------------------------------------------------- loading

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record of the log; keys of other types are passed over. `BadRecord`."""
        if key is None:
            raise BadRecord("no key")
        found = decode_key(key)
        if isinstance(found, OffsetKey):
            self._replay_offset(found, value)
        elif isinstance(found, GroupKey):
            if value is None:
                self._classic.pop(found.group_id, None)
            else:
                self._classic[found.group_id] = decode_group(value)

    def finish_loading(self, now_ms: int) -> None:
        """Everything is replayed: make the groups."""
        for group_id, value in self._classic.items():
            self.groups[group_id] = ClassicGroup.restored(group_id, self._config.classic, value, now_ms)
        self._classic.clear()
        for group_id in self.offsets:
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id, self._config.classic)
        self.is_loading = False

    # ---------------------------------------------------------------- groups

    def classic(self, group_id: str) -> ClassicGroup:
        """The classic group, made if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._config.classic)
        return group

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """What the group has committed."""
        return self.offsets.get(group_id, {})

    def store(self, group_id: str, offsets: Iterable[tuple[TopicPartition, OffsetValue]]) -> None:
        """Take offsets over that are in the log."""
        self.offsets.setdefault(group_id, {}).update(offsets)

    def forget(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Drop offsets whose tombstones are in the log."""
        offsets = self.offsets.get(group_id)
        if offsets is None:
            return
        for topic_partition in partitions:
            offsets.pop(topic_partition, None)
        if not offsets:
            del self.offsets[group_id]

    def forget_group(self, group_id: str) -> None:
        """Drop a group whose tombstone is in the log, with its offsets."""
        self.groups.pop(group_id, None)
        self.offsets.pop(group_id, None)

    def tombstones(self, group_id: str) -> list[GroupRecord]:
        """The end of a group in the log."""
        records = [offset_record(group_id, topic_partition, None) for topic_partition in self.offsets_of(group_id)]
        group = self.groups.get(group_id)
        if group is not None and not group.is_simple:
            records.append(group_record(group_id, None))
        return records

    def _replay_offset(self, key: OffsetKey, value: bytes | None) -> None:
        if value is None:
            self.forget(key.group_id, (key.topic_partition,))
        else:
            self.store(key.group_id, ((key.topic_partition, decode_offset(value)),))


def expired_offsets(
    group: Group | None, offsets: GroupOffsets, wall_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Whose time is over (KIP-211): nobody reads them, and nobody has for `retention_ms`.

    A group without members counts from its becoming empty, a stable consumer group from the last commit and only for
    topics it no longer subscribes to, offsets without a group from their commit.
    """
    if group is not None and group.state is GroupState.EMPTY and not group.is_simple:
        candidates = offsets
        idle_since_ms = group.state_timestamp_ms
    elif group is None or group.state is GroupState.EMPTY:
        candidates, idle_since_ms = offsets, -1
    elif group.state is GroupState.STABLE:
        topics = group.subscribed_topics()
        candidates = {} if topics is None else {key: one for key, one in offsets.items() if key.topic not in topics}
        idle_since_ms = -1
    else:
        return []
    return [
        key
        for key, value in candidates.items()
        if (
            value.expire_timestamp_ms <= wall_ms
            if value.expire_timestamp_ms >= 0
            else max(value.commit_timestamp_ms, idle_since_ms) + retention_ms <= wall_ms
        )
    ]
