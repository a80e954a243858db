"""What the committed records of one partition of `__consumer_offsets` say, replayed for the simulator alone.

Of each offset the record with the highest position counts, among plain commits, tombstones and the commits of committed
transactions, whenever these were committed. Group records are kept by key, the last one of each, as compaction does.
Nothing is forgotten of what was written: answers to clients are compared with it.

The invariants of the records themselves, checked after each batch, are "generations of a group do not fall", "no
partition is in two assignments", "no member is ahead of its group", "a group with members is not removed" and "an epoch
of a group begins with a change".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from uuid import UUID

from .....broker.groups.records.consumer_group_records import (
    ConsumerGroupKey,
    CurrentAssignmentValue,
    EpochValue,
    MemberMetadataValue,
    RecordType,
    decode_consumer_key,
    decode_current,
    decode_epoch,
    decode_member_metadata,
    decode_target,
)
from .....broker.groups.records.offset_and_classic_records import (
    GroupMetadataValue,
    OffsetAndMetadata,
    OffsetKey,
    decode_classic_group,
    decode_key,
    decode_offset,
)
from .....wire.records import BatchHeader, ControlRecordType, Record, control_record_type
from ..invariant_broken import InvariantBroken

V = TypeVar("V")
Parts = tuple[tuple[UUID, int], ...]


class WrittenOffset(NamedTuple):
    """A record of an offset: its position in the log, None for a tombstone, and the producer of its transaction."""

    position: int
    value: OffsetAndMetadata | None
    producer_id: int = -1


class OffsetInForce(NamedTuple):
    """What is committed from a position of the log on: that of a record, or of a marker."""

    since: int
    value: OffsetAndMetadata | None


class Removal(NamedTuple):
    """A tombstone, and the commit whose place it takes."""

    key: OffsetKey
    removed: OffsetAndMetadata
    timestamp_ms: int
    is_subscribed: bool = False
    """Whether a member of a consumer group subscribes to the topic by its name."""
    empty_since_ms: int = -1
    """When its classic group was left by its last member, by the record of that; -1 if there is none."""


@dataclass(slots=True)
class ConsumerRecords:
    """The records of one consumer group, the last one of each key."""

    group: EpochValue | None = None
    target_epoch: int = 0
    members: dict[str, MemberMetadataValue] = field(default_factory=dict)
    target: dict[str, Parts] = field(default_factory=dict)
    current: dict[str, CurrentAssignmentValue] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        """Whether there is such a group."""
        return self.group is not None or bool(self.members)

    def copy(self) -> ConsumerRecords:
        """The same records, whatever follows."""
        members, target, current = dict(self.members), dict(self.target), dict(self.current)
        return ConsumerRecords(self.group, self.target_epoch, members, target, current)

    @property
    def epoch(self) -> int:
        """The group epoch; -1 before it has one."""
        return -1 if self.group is None else self.group.epoch

    @property
    def shown_state(self) -> str:
        """The state that the admin APIs show."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        currents = [self.current.get(one) for one in self.members]
        settled = (one is not None and one.state == 0 and one.member_epoch == self.target_epoch for one in currents)
        return "Stable" if all(settled) else "Reconciling"


class GroupLog:
    """The committed records of one partition, from the beginning on. `end_offset` is up to where they were read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.end_offset = 0
        self.written: dict[OffsetKey, list[WrittenOffset]] = {}
        """All records of offsets."""
        self.in_force: dict[OffsetKey, list[OffsetInForce]] = {}
        """What was committed at which time."""
        self.pending: dict[int, dict[OffsetKey, WrittenOffset]] = {}
        """The commits of open transactions, by producer."""
        self.classic: dict[str, GroupMetadataValue] = {}
        self.consumer: dict[str, ConsumerRecords] = {}
        self.generations: dict[str, list[tuple[int, GroupMetadataValue | None]]] = {}
        """All records of classic groups, with their positions; None for a tombstone."""
        self.assignments: dict[tuple[str, str], list[tuple[int, CurrentAssignmentValue | None]]] = {}
        """All current assignments by group and member, with their positions; None for a tombstone."""
        self.epochs: dict[str, list[tuple[int, EpochValue | None]]] = {}
        """All records of group epochs, with their positions; None for a tombstone."""
        self.states: dict[str, list[tuple[int, ConsumerRecords | None]]] = {}
        """What the records of a consumer group were after each batch, with its position; None for no such group."""
        self.topics: dict[str, None] = {}
        """The topics with offsets."""
        self._newest: dict[OffsetKey, int] = {}
        """The position of the record in force."""
        self.targeted: dict[str, None] = {}
        """The groups of which the last batch has a new target assignment."""
        self._subscribed: dict[str, None] = {}
        """The groups of which the present batch changes who subscribes to what."""
        self._living: dict[str, tuple[int, bool]] = {}
        """Of each group that exists: its generation or epoch, and whether it has members."""
        self.emptied: dict[str, None] = {}
        """The groups that all members have left while records were refused: a coordinator does not write that again."""
        self.joined_while_removed: dict[str, None] = {}
        """Removed groups that a coordinator holds on to, as somebody joined before the tombstones were committed."""

    # ---------------------------------------------------------------- replay

    def feed(self, header: BatchHeader, records: Iterable[Record]) -> list[Removal]:
        """The next batch; returns the offsets that it removes. Raises `InvariantBroken`."""
        producer_id = header.producer_id if header.is_transactional else -1
        removals: list[Removal] = []
        groups: dict[str, None] = {}
        self._subscribed.clear()
        self.targeted.clear()
        for record in records:
            if header.is_control:
                kind = control_record_type(record.key)
                if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
                    self._end(header.producer_id, record.offset, is_committed=kind == ControlRecordType.COMMIT)
            elif record.key is not None:
                group_id = self._replay(record, record.key, producer_id, removals)
                if group_id is not None:
                    groups[group_id] = None
        self.end_offset = header.next_offset
        for group_id in groups:
            self._check(group_id)
            self._note_state(group_id, header.last_offset)
        return removals

    def _note_state(self, group_id: str, position: int) -> None:
        if group_id not in self.consumer:
            return
        found = self.group_of(group_id)
        state = found.copy() if isinstance(found, ConsumerRecords) else None
        self.states.setdefault(group_id, []).append((position, state))

    def _replay(self, record: Record, key: bytes, producer_id: int, removals: list[Removal]) -> str | None:
        """Replay a record; returns its group if it is one of a group."""
        found = decode_key(key)
        if isinstance(found, OffsetKey):
            value = None if record.value is None else decode_offset(record.value)
            self._replay_offset(found, WrittenOffset(record.offset, value, producer_id), record.timestamp, removals)
            return None
        if found is not None:
            group = None if record.value is None else decode_classic_group(record.value)
            _put(self.classic, found.group_id, group)
            self.generations.setdefault(found.group_id, []).append((record.offset, group))
            return found.group_id
        consumer_key = decode_consumer_key(key)
        if consumer_key is None:
            return None
        self._replay_consumer(consumer_key, record.value, record.offset)
        return consumer_key.group_id

    def _replay_offset(
        self, key: OffsetKey, written: WrittenOffset, timestamp_ms: int, removals: list[Removal]
    ) -> None:
        self.written.setdefault(key, []).append(written)
        self.topics[key.topic_partition.topic] = None
        if written.producer_id >= 0 and written.value is not None:
            self.pending.setdefault(written.producer_id, {})[key] = written
            return
        removed = self.committed(key)
        if written.value is None:
            if removed is not None:
                members = self.consumer.get(key.group_id, ConsumerRecords()).members.values()
                is_subscribed = any(key.topic_partition.topic in one.topic_names for one in members)
                removals.append(Removal(key, removed, timestamp_ms, is_subscribed, self._empty_since_ms(key.group_id)))
            for producer_id in [one for one, commits in self.pending.items() if key in commits]:
                del self.pending[producer_id][key]
        self._newest[key] = written.position
        self.in_force.setdefault(key, []).append(OffsetInForce(written.position, written.value))

    def _empty_since_ms(self, group_id: str) -> int:
        group = self.classic.get(group_id)
        return -1 if group is None or group.members or not group.protocol_type else group.state_timestamp_ms

    def _end(self, producer_id: int, position: int, *, is_committed: bool) -> None:
        for key, written in self.pending.pop(producer_id, {}).items():
            if is_committed and written.position > self._newest.get(key, -1):
                self._newest[key] = written.position
                self.in_force.setdefault(key, []).append(OffsetInForce(position, written.value))

    def _replay_consumer(self, key: ConsumerGroupKey, value: bytes | None, position: int) -> None:
        group = self.consumer.setdefault(key.group_id, ConsumerRecords())
        if key.kind is RecordType.GROUP:
            epoch = None if value is None else decode_epoch(value)
            self.epochs.setdefault(key.group_id, []).append((position, epoch))
            self._replay_epoch(key.group_id, group, epoch)
        elif key.kind is RecordType.TARGET:
            group.target_epoch = 0 if value is None else decode_epoch(value).epoch
            self.targeted[key.group_id] = None
        elif key.kind is RecordType.MEMBER:
            member = None if value is None else decode_member_metadata(value)
            if _subscription(member) != _subscription(group.members.get(key.member_id)):
                self._subscribed[key.group_id] = None
            _put(group.members, key.member_id, member)
        elif key.kind is RecordType.TARGET_MEMBER:
            _put(group.target, key.member_id, None if value is None else decode_target(value))
        elif key.kind is RecordType.CURRENT_MEMBER:
            current = None if value is None else decode_current(value)
            _put(group.current, key.member_id, current)
            self.assignments.setdefault((key.group_id, key.member_id), []).append((position, current))

    def _replay_epoch(self, group_id: str, group: ConsumerRecords, value: EpochValue | None) -> None:
        """A new group epoch follows a change of the members or of their topics, in the same batch."""
        before, group.group = group.group, value
        if before is None or value is None or value.epoch <= before.epoch:
            return
        if group_id not in self._subscribed and value.metadata_hash == before.metadata_hash:
            detail = f"{self._name}: {group_id} from {before.epoch} to {value.epoch}"
            raise InvariantBroken("an epoch of a group begins with a change", detail)

    # ---------------------------------------------------------------- what is committed

    def committed(self, key: OffsetKey) -> OffsetAndMetadata | None:
        """The committed offset; None if there is none."""
        known = self.in_force.get(key)
        return known[-1].value if known else None

    def offsets(self) -> dict[OffsetKey, OffsetAndMetadata]:
        """All committed offsets."""
        return {key: known[-1].value for key, known in self.in_force.items() if known[-1].value is not None}

    def offsets_if_all_commit(self) -> dict[OffsetKey, OffsetAndMetadata]:
        """The committed offsets when all open transactions have been committed, in any order."""
        newest, found = dict(self._newest), self.offsets()
        for commits in self.pending.values():
            for key, written in commits.items():
                if written.value is not None and written.position > newest.get(key, -1):
                    newest[key] = written.position
                    found[key] = written.value
        return found

    def values_since(self, key: OffsetKey, end_offset: int) -> list[OffsetAndMetadata | None]:
        """The values that may be answered now to a request that was sent when `end_offset` was the committed end."""
        known = self.in_force.get(key, [])
        before = [one.value for one in known if one.since < end_offset][-1:] or [None]
        return before + [one.value for one in known if one.since >= end_offset]

    def is_unstable(self, key: OffsetKey, end_offset: int) -> bool:
        """Whether a transaction that is open has committed this offset below a position."""
        return any(commits[key].position < end_offset for commits in self.pending.values() if key in commits)

    def why_not_allowed(self, group_id: str, member_id: str, epoch: int, position: int) -> str | None:
        """Why a member may not commit in this epoch or generation at a position of the log; None if it may.

        The records before the position decide: of a consumer group the member's last assignment, of a classic group
        the generation. That of a classic group may be ahead of its record.
        """
        assigned = _last_before(self.assignments.get((group_id, member_id), []), position)
        classic = _last_before(self.generations.get(group_id, []), position)
        if assigned is not None and (classic is None or assigned[0] > classic[0]):
            current = assigned[1]
            if current is None:
                return "it has left"
            return None if current.member_epoch == epoch else f"its epoch is {current.member_epoch}"
        group = None if classic is None else classic[1]
        # A group that was a consumer group and must rebalance has its next generation in the log.
        ahead = group_id in self.consumer
        return None if group is None or group.generation <= epoch + ahead else f"generation is {group.generation}"

    def group_of(self, group_id: str) -> GroupMetadataValue | ConsumerRecords | None:
        """The records of a group; None if there are none. A consumer group without members gives way to a classic."""
        consumer, classic = self.consumer.get(group_id), self.classic.get(group_id)
        if consumer is not None and consumer.exists and (consumer.members or classic is None):
            return consumer
        return classic

    def groups(self) -> Iterable[str]:
        """The groups of which there are records."""
        return self._living

    def knows(self, group_id: str) -> bool:
        """Whether there are or were records of the group."""
        return group_id in self.generations or group_id in self.consumer

    def states_since(self, group_id: str, end_offset: int) -> list[ConsumerRecords | None]:
        """What a consumer group may be described as now, if that was asked when `end_offset` was the committed end."""
        known = self.states.get(group_id, [])
        before = [state for position, state in known if position < end_offset][-1:] or [None]
        return before + [state for position, state in known if position >= end_offset]

    def incarnation(self, group_id: str) -> int:
        """How often a group of this id was removed or has become a consumer group."""
        return sum(group is None for _, group in self.generations.get(group_id, ()))

    # ---------------------------------------------------------------- invariants of the records

    def _check(self, group_id: str) -> None:
        found, before = self.group_of(group_id), self._living.pop(group_id, None)
        if found is None:
            if before is not None and before[1] and group_id not in self.emptied:
                raise InvariantBroken("a group with members is not removed", f"{self._name}: {group_id} at {before[0]}")
            return
        if isinstance(found, ConsumerRecords):
            generation = found.group.epoch if found.group is not None else 0
            self._check_members(group_id, found)
        else:
            generation = found.generation
        if before is not None and generation < before[0] and before[1]:
            detail = f"{self._name}: {group_id} from {before[0]} to {generation}"
            raise InvariantBroken("generations of a group do not fall", detail)
        self._living[group_id] = generation, bool(found.members)
        self.emptied.pop(group_id, None)

    def _check_members(self, group_id: str, group: ConsumerRecords) -> None:
        epoch = -1 if group.group is None else group.group.epoch
        where = f"{self._name}: {group_id} in epoch {epoch}"
        if group.target_epoch > epoch:
            raise InvariantBroken("no member is ahead of its group", f"{where} has a target of {group.target_epoch}")
        owners: dict[tuple[UUID, int], str] = {}
        for member_id, current in group.current.items():
            if max(current.member_epoch, current.previous_epoch) > group.target_epoch:
                detail = f"{where}, target {group.target_epoch}: {member_id} has {current}"
                raise InvariantBroken("no member is ahead of its group", detail)
            for part in (*current.assigned, *current.revoking):
                if owners.setdefault(part, member_id) != member_id:
                    detail = f"{where}: {part[0]}-{part[1]} of {owners[part]} and {member_id}"
                    raise InvariantBroken("no partition is in two assignments", detail)


def in_force_since(written: list[tuple[int, V]], end_offset: int) -> list[V]:
    """The last value before a position, if there is one, and all that follow."""
    before = [value for position, value in written if position < end_offset][-1:]
    return before + [value for position, value in written if position >= end_offset]


def _last_before(written: list[tuple[int, V]], position: int) -> tuple[int, V] | None:
    return next((one for one in reversed(written) if one[0] < position), None)


def _subscription(member: MemberMetadataValue | None) -> object:
    return None if member is None else (member.topic_names, member.topic_regex, member.assignor)


def _put(values: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
