"""Slips in the coordinator of groups that do harm only by a rare coincidence: its specification tells of the step."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from support.chaos.mutants import Mutant, replacing

from raftwerk.broker.apis.groups import offset_delete
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.classic.classic_group_members import ClassicGroupState
from raftwerk.broker.groups.classic.classic_group_view import ClassicGroupView
from raftwerk.broker.groups.consumer import consumer_group
from raftwerk.broker.groups.consumer.topics import Topics, compile_regex
from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.broker.groups.group_coordinator import GroupCoordinator
from raftwerk.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from raftwerk.broker.groups.member_session_expiry import MemberSession
from raftwerk.broker.groups.pending_transactional_offsets import PendingTransactionalOffsets
from raftwerk.isr.leader.read_confirmations import ReadConfirmations
from raftwerk.isr.leader.transaction_markers import TransactionMarker
from raftwerk.isr.purgatory.delayed_operations import DelayedOperations
from raftwerk.isr.replica import Replica
from raftwerk.wire.types import TopicPartition

ORIGINAL_ADD_ALL = PendingTransactionalOffsets.add_all
ORIGINAL_HEARTBEAT = ClassicGroup.heartbeat
ORIGINAL_ON_TIMER = ClassicGroup.on_timer
ORIGINAL_ON_WRITTEN = ClassicGroup._on_assignment_written
ORIGINAL_WRITE_MARKER = GroupCoordinator.write_marker
ORIGINAL_WHEN_COMMITTED = DelayedOperations.when_committed


def ask_the_known_isr(self: ReadConfirmations, replica: Replica) -> set[int]:
    """A replica that the controller may have taken into the ISR already, and may elect, is not asked."""
    leader = replica.partition.leader
    if leader is None:
        return set()
    return {*leader.isr_state.isr, *self._elr_of(replica.topic_partition)} - {leader.config.local_id}


def ask_the_isr_alone(self: ReadConfirmations, replica: Replica) -> set[int]:
    """Eligible leader replicas, which may be elected too, do not confirm reads."""
    leader = replica.partition.leader
    return set() if leader is None else {*leader.isr_state.maximal_isr} - {leader.config.local_id}


def commit_at_the_time_out(
    self: DelayedOperations, topic_partition: TopicPartition, offset: int, timeout_ms: int, done: Any
) -> None:
    """What is not committed in time counts as committed."""
    replica = self._hosted.replicas.get(topic_partition)
    settled = lambda _: done(replica is not None and replica.is_leader)  # noqa: E731
    ORIGINAL_WHEN_COMMITTED(self, topic_partition, offset, timeout_ms, settled)


def keep_the_first_place(
    self: PendingTransactionalOffsets, producer_id: int, group_id: str, offsets: Iterable[Any]
) -> None:
    """A producer's second commit of an offset does not go behind those of others."""
    before = {key: list(producers) for key, producers in self._producers.get(group_id, {}).items()}
    ORIGINAL_ADD_ALL(self, producer_id, group_id, offsets)
    for key, order in before.items():
        added = [one for one in self._producers[group_id][key] if one not in order]
        self._producers[group_id][key] = dict.fromkeys((*order, *added))


def take_any_assignment(self: ClassicGroup, tag: Any, error: Any, now_ms: int, wall_ms: int) -> None:
    """The assignments of a former generation are taken."""
    if self.state is ClassicGroupState.COMPLETING_REBALANCE:
        tag = replace(tag, generation=self.generation)
    ORIGINAL_ON_WRITTEN(self, tag, error, now_ms, wall_ms)


def take_markers_while_it_loads(
    self: GroupCoordinator, partition: int, marker: TransactionMarker, timeout_ms: int, done: Any
) -> None:
    """The end of a transaction is told to a coordinator that has not read the transaction's offsets yet."""
    shard = self.partitions.shards.get(partition)
    if shard is None or not shard.is_loading:
        ORIGINAL_WRITE_MARKER(self, partition, marker, timeout_ms, done)
        return

    def committed(_: Any) -> None:
        if self.partitions.is_current(shard):
            shard.end_transaction(marker.producer_id, is_committed=marker.is_commit)

    entry = TopicPartition(OFFSETS_TOPIC, partition), marker
    self._replicas.write_markers(timeout_ms, [entry], lambda codes: done(codes[0]), committed)


def keep_the_timer(self: MemberSession) -> None:
    """The next session of the member believes that a timer runs for it."""
    self.deadline_ms = 0


def answer_any_generation(self: ClassicGroup, member_id: str, instance_id: Any, generation: int, now_ms: int) -> Any:
    """The heartbeat of a member that was away looks like one of the present generation."""
    return ORIGINAL_HEARTBEAT(self, member_id, instance_id, self.generation, now_ms)


def topics_with_a_match(pattern: str, topics: Topics) -> list[str]:
    """A regular expression of a subscription matches parts of names."""
    compiled = compile_regex(pattern)
    return [] if compiled is None else [name for name in topics.names() if compiled.search(name)]


def never_subscribed(group: Any, topic: str) -> bool:
    """OffsetDelete takes offsets from members that will read on from them."""
    return False


def remove_who_waits(self: ClassicGroup, member_id: str, now_ms: int, wall_ms: int) -> None:
    """A member that waits in JoinGroup or SyncGroup sends no heartbeats, and is removed."""
    member = self.members.members.get(member_id)
    if member is not None and not member.session.has_expired(now_ms):
        self._set_session_timer(member)
    elif member is not None:
        self._drop(member)
        self._rebalance_or_complete(now_ms, wall_ms)


def wait_on(self: ClassicGroup, name: Any, now_ms: int, wall_ms: int) -> None:
    """The others wait until the rebalance time-out, though the newcomer that has vanished is not expected any more."""
    if name.kind == "pending":
        self.members.pending.pop(name.member_id, None)
        return
    ORIGINAL_ON_TIMER(self, name, now_ms, wall_ms)


def names_and_sizes(self: consumer_group.ConsumerGroup) -> int:
    """A topic that was created anew with as many partitions looks like the former one."""
    found = [(name, self.topics.find(name)) for name in self.subscribed_topics() or ()]
    return zlib.crc32(repr([(name, topic and topic[1]) for name, topic in found]).encode())


def tell_what_is_not_committed(self: GroupCoordinatorShard, group_id: str) -> Any:
    """Administrators are told of changes of consumer groups before these are committed."""
    group = self.groups.get(group_id)
    if isinstance(group, consumer_group.ConsumerGroup):
        return group.current
    return None if group is None else ClassicGroupView(group, group.state)


GROUP_MUTANTS = (
    Mutant(
        "a static member that came back has no session",
        replacing(MemberSession, "end", keep_the_timer),
        ("static-members",),
    ),
    Mutant(
        "a coordinator of groups that loads takes markers",
        replacing(GroupCoordinator, "write_marker", take_markers_while_it_loads),
        ("loading-coordinators",),
    ),
    Mutant(
        "replicas that are proposed for the ISR do not confirm reads",
        replacing(ReadConfirmations, "candidates", ask_the_known_isr),
        ("kill",),
    ),
    Mutant(
        "eligible leader replicas do not confirm reads",
        replacing(ReadConfirmations, "candidates", ask_the_isr_alone),
        ("lone-coordinators",),
    ),
    Mutant(
        "what is not committed in 10 s counts",
        replacing(DelayedOperations, "when_committed", commit_at_the_time_out),
        ("lone-coordinators",),
    ),
    Mutant(
        "a second commit in a transaction keeps its old place",
        replacing(PendingTransactionalOffsets, "add_all", keep_the_first_place),
        ("passing-topics",),
    ),
    Mutant(
        "an assignment of a former generation is taken",
        replacing(ClassicGroup, "_on_assignment_written", take_any_assignment),
        ("slow-assignments",),
    ),
    Mutant(
        "heartbeats of a former generation are answered",
        replacing(ClassicGroup, "heartbeat", answer_any_generation),
        ("careless-members",),
    ),
    Mutant(
        "a regular expression matches parts of names",
        replacing(consumer_group, "matching", topics_with_a_match),
        ("subscriptions",),
    ),
    Mutant(
        "offsets of subscribed topics are deleted",
        replacing(offset_delete, "_is_subscribed", never_subscribed),
        ("administered-groups",),
    ),
    Mutant(
        "a member that waits for longer than its session is removed",
        replacing(ClassicGroup, "_on_session_timer", remove_who_waits),
        ("slow-rebalances",),
    ),
    Mutant(
        "a rebalance waits for a newcomer that has vanished",
        replacing(ClassicGroup, "on_timer", wait_on),
        ("slow-rebalances",),
    ),
    Mutant(
        "a topic that was created anew looks like the former one",
        replacing(consumer_group.ConsumerGroup, "_hash_topics", names_and_sizes),
        ("subscriptions",),
    ),
    Mutant(
        "groups are described before they are committed",
        replacing(GroupCoordinatorShard, "committed_group", tell_what_is_not_committed),
        ("slow-assignments",),
    ),
)
