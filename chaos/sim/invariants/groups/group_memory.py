"""What a coordinator of groups holds in memory is what the committed records of its partition say.

It is compared when nothing is on its way: the leader's log ends at its high watermark, and the records up to there were
replayed (`GroupLog`). A classic group is written when it has its assignments, and while it rebalances it is ahead of
its record. A removed one stays in memory if a member joined before its tombstones were committed.
"""

from __future__ import annotations

import copy

from .....broker.groups.classic.classic_group import ClassicGroup
from .....broker.groups.classic.classic_group_members import ClassicGroupState
from .....broker.groups.consumer.consumer_group import ConsumerGroup
from .....broker.groups.group_coordinator_shard import GroupCoordinatorShard
from .....broker.groups.records.offset_and_classic_records import GroupMetadataValue, OffsetAndMetadata, OffsetKey
from .group_log import ConsumerRecords, GroupLog


def difference(shard: GroupCoordinatorShard, log: GroupLog, *, may_have_refused: bool) -> str | None:
    """What a coordinator holds that differs from its log; None if nothing does.

    `may_have_refused`: whether the log may have refused a record since the coordinator is active, for which it goes on
    without the record: of a group that has become empty, or that a classic group has replaced.
    """
    found = _of_offsets(shard, log) or _of_pending(shard, log)
    return found or _of_groups(shard, log, may_have_refused=may_have_refused)


def _held(shard: GroupCoordinatorShard) -> dict[OffsetKey, OffsetAndMetadata]:
    return {OffsetKey(group, key): value for group, known in shard.offsets.items() for key, value in known.items()}


def _of_offsets(shard: GroupCoordinatorShard, log: GroupLog) -> str | None:
    return _between(_held(shard), log.offsets(), "")


def _between(
    held: dict[OffsetKey, OffsetAndMetadata], written: dict[OffsetKey, OffsetAndMetadata], when: str
) -> str | None:
    if held == written:
        return None
    for key in dict.fromkeys((*held, *written)):
        one, other = held.get(key), written.get(key)
        if one != other:
            return f"{key.group_id} {key.topic_partition}{when}: {one}, the log has {other}"
    return None


def _of_pending(shard: GroupCoordinatorShard, log: GroupLog) -> str | None:
    """Compare which offsets are unstable, and what is committed when all transactions commit, in two orders."""
    unstable = {key for commits in log.pending.values() for key in commits}
    held = {OffsetKey(group, key) for group in shard.pending.groups for key in shard.pending.partitions_of(group)}
    if held != unstable:
        return f"pending are {sorted(held)}, the log has {sorted(unstable)}"
    if not unstable:
        return None
    expected = log.offsets_if_all_commit()
    for order in (list(log.pending), list(reversed(log.pending))):
        pending, offsets = copy.deepcopy(shard.pending), _held(shard)
        for producer_id in order:
            offsets |= dict(pending.end(producer_id, is_committed=True))
        found = _between(offsets, expected, f" when {order} commit")
        if found is not None:
            return found
    return None


def _of_groups(shard: GroupCoordinatorShard, log: GroupLog, *, may_have_refused: bool) -> str | None:
    for group_id in dict.fromkeys((*shard.groups, *log.groups())):
        held, written = shard.groups.get(group_id), log.group_of(group_id)
        if isinstance(held, ConsumerGroup):
            found = _of_consumer_group(held, written)
        elif held is not None:
            if written is not None:
                log.joined_while_removed.pop(group_id, None)
            elif held.members.pending:
                log.joined_while_removed[group_id] = None
            is_ahead = may_have_refused or group_id in log.joined_while_removed
            found = _of_classic_group(held, written, may_have_refused=is_ahead)
        else:
            found = f"there is none, the log has {written}"
        if found is not None:
            return f"{group_id}: {found}"
    return None


def _of_consumer_group(group: ConsumerGroup, written: GroupMetadataValue | ConsumerRecords | None) -> str | None:
    if not isinstance(written, ConsumerRecords):
        is_new = written is None and not group.members
        return None if is_new else f"a consumer group in epoch {group.epoch}, the log has {written}"
    members = {one.member_id: one.subscription for one in group.members.values()}
    current = {one.member_id: one.current() for one in group.members.values()}
    epoch = -1 if written.group is None else written.group.epoch
    metadata_hash = 0 if written.group is None else written.group.metadata_hash
    pairs = {
        "epoch": (group.epoch, epoch),
        "target epoch": (group.target_epoch, written.target_epoch),
        "hash of its topics": (group.metadata_hash, metadata_hash),
        "members": (members, written.members),
        "target": (dict(group.target), written.target),
        "current assignments": (current, written.current),
    }
    for what, (held, known) in pairs.items():
        if held != known:
            return f"{what}: {held}, the log has {known}"
    return None


def _of_classic_group(
    group: ClassicGroup, written: GroupMetadataValue | ConsumerRecords | None, *, may_have_refused: bool
) -> str | None:
    state, what = group.state, f"a classic group, {group.state.value}, in generation {group.generation}"
    if isinstance(written, ConsumerRecords):
        is_replaced = not written.members and may_have_refused
        return None if is_replaced else f"{what}; the log has a consumer group in epoch {written.group}"
    if state is not ClassicGroupState.STABLE:
        # A group that was a consumer group and must rebalance has its next generation in the log.
        ahead = state is ClassicGroupState.PREPARING_REBALANCE
        if written is not None and written.generation > group.generation + ahead:
            return f"{what}; the log has generation {written.generation}"
        if state is ClassicGroupState.EMPTY and not may_have_refused:
            is_known = written is not None and not written.members and written.generation == group.generation
            is_new = written is None and group.generation == 0
            return None if is_known or is_new else f"{what}; the log has {written}"
        return None
    held = group.protocol_type, group.generation, group.protocol, group.members.leader
    assigned = {one.member_id: (one.instance_id, one.assignment) for one in group.members.members.values()}
    if written is None:
        return f"{what}; the log has none"
    known = written.protocol_type, written.generation, written.protocol, written.leader
    if held != known:
        return f"{what}: {held}, the log has {known}"
    in_log = {one.member_id: (one.instance_id, one.assignment) for one in written.members}
    return None if assigned == in_log else f"{what}: {assigned}, the log has {in_log}"
