"""Slips in what nodes answer, note and make of metadata: the bytes of connections and devices tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from support.chaos.mutants import Mutant, replacing

from raftwerk.broker.groups.consumer.consumer_group_heartbeat import HeartbeatRequest
from raftwerk.controller.metadata.metadata_image import PartitionRegistration
from raftwerk.controller.metadata.metadata_records import PartitionChangeRecord
from raftwerk.controller.partitions import reassignment
from raftwerk.controller.partitions.partition_change import ReplicaSets
from raftwerk.controller.topics import replica_placement
from raftwerk.isr.fetching import offset_lookup, partition_reader, replica_selector
from raftwerk.isr.fetching.dirty_partitions import DirtyPartitionTracker
from raftwerk.isr.fetching.leader_fetch_sessions import CachedPartition
from raftwerk.isr.leader.leader_state import LeaderState
from raftwerk.isr.partition import Partition
from raftwerk.isr.purgatory.delayed_operations import DelayedOperations
from raftwerk.isr.replica import Replica
from raftwerk.isr.results import EpochEndResult
from raftwerk.log.partition_log import PartitionLog
from raftwerk.raft.driver.raft_driver import RaftDriver
from raftwerk.raft.messages.messages import Vote
from raftwerk.raft.roles.role import Role
from raftwerk.wire.fetch import FetchPartitionResponse

ORIGINAL_PLAN = reassignment.plan
ORIGINAL_CHECK_LEADER_EPOCH = Partition.check_leader_epoch
ORIGINAL_ON_HIGH_WATERMARK = DelayedOperations._on_high_watermark
ORIGINAL_ON_VOTE = Role.on_vote
ORIGINAL_PREFERRED = replica_selector.preferred_read_replica
ORIGINAL_TRUNCATE_FULLY = PartitionLog.truncate_fully_and_start_at
ORIGINAL_PLACE = replica_placement._Placer.__init__


def compare_epoch_and_offset_apart(self: Role, vote: Vote, now_ms: int) -> bool:
    """The log of a candidate must be as long as the voter's, whatever its last epoch is."""
    log = self.quorum.log
    is_up_to_date = vote.last_epoch >= log.last_epoch and vote.last_offset >= log.end_offset
    return ORIGINAL_ON_VOTE(self, vote if is_up_to_date else replace(vote, last_epoch=-1), now_ms)


def begin_anew_with_producers(self: PartitionLog, offset: int) -> None:
    known = dict(self.producers._entries)
    ORIGINAL_TRUNCATE_FULLY(self, offset)
    self.producers._entries.update(known)


def leave_directories_where_they_are(self: PartitionRegistration, change: PartitionChangeRecord) -> tuple[UUID, ...]:
    """Other replicas get the directories of those that had their places."""
    return self.directories if change.directories is None else change.directories


def sort_the_target(partition: PartitionRegistration, target: tuple[int, ...]) -> ReplicaSets:
    """A partition moves to the replicas that were asked for, in the order of their ids."""
    return ORIGINAL_PLAN(partition, tuple(sorted(target)))


def check_leaders_alone(self: Partition, epoch: int) -> None:
    """A follower serves consumers whatever leader epoch they name."""
    if self.leader is not None:
        ORIGINAL_CHECK_LEADER_EPOCH(self, epoch)


def wake_at_leaders_alone(self: DelayedOperations, replica: Replica) -> None:
    """Consumers that wait at a follower are not told of what is committed meanwhile."""
    if replica.partition.leader is not None:
        ORIGINAL_ON_HIGH_WATERMARK(self, replica)


def forget_racks(self: Any, line: Any, fenced: Any, replication_factor: int, rng: Any) -> None:
    line, fenced = ([replace(broker, rack=None) for broker in brokers] for brokers in (line, fenced))
    ORIGINAL_PLACE(self, line, fenced, replication_factor, rng)


def take_a_divergence_for_told(self: CachedPartition, answer: FetchPartitionResponse) -> bool:
    """A follower that was told to cut its log counts as told of the high watermark, too."""
    is_news = self.is_news(answer)
    self.log_start_offset, self.high_watermark = answer.log_start_offset, answer.high_watermark
    return is_news


def tell_ends_of_any_replica(replica: Replica, current_leader_epoch: int, leader_epoch: int) -> EpochEndResult:
    """Followers, too, tell where leader epochs end in their logs."""
    replica.check_online()
    replica.partition.check_leader_epoch(current_leader_epoch)
    end = replica.end_offset_for_epoch(leader_epoch)
    return EpochEndResult(0, end.epoch, end.end_offset)


def name_whoever_is_in_the_rack(
    select: Any, leader: LeaderState, brokers: Mapping[int, Any], client_rack: str, fetch_offset: int
) -> int:
    """Consumers are sent to replicas that are not in sync, too."""
    near = (one for one in leader.followers if one in brokers and brokers[one].rack == client_rack)
    return next(near, -1) if brokers[leader.config.local_id].rack != client_rack else -1


def keep_those_at_the_end(
    select: Any, leader: LeaderState, brokers: Mapping[int, Any], client_rack: str, fetch_offset: int
) -> int:
    """A consumer that has read all that its replica has stays at the leader."""
    return ORIGINAL_PREFERRED(select, leader, brokers, client_rack, fetch_offset + 1)


ANSWER_MUTANTS = (
    Mutant(
        "consumers are told to read from a replica that is not in sync (KIP-392)",
        replacing(partition_reader, "preferred_read_replica", name_whoever_is_in_the_rack),
        ("near-replicas",),
    ),
    Mutant(
        "consumers at the end of a replica stay at the leader (KIP-392)",
        replacing(partition_reader, "preferred_read_replica", keep_those_at_the_end),
        ("near-replicas",),
    ),
    Mutant(
        "a follower that cuts its log is not told the high watermark again (KIP-227)",
        replacing(CachedPartition, "has_news", take_a_divergence_for_told),
        ("elections",),
    ),
    Mutant(
        "a fetch session does not notice that the high watermark has moved (KIP-227)",
        replacing(DirtyPartitionTracker, "on_changed", lambda self, replica: None),
        ("elections",),
    ),
    Mutant(
        "followers answer where leader epochs end (KIP-320)",
        replacing(offset_lookup, "offset_for_leader_epoch", tell_ends_of_any_replica),
        ("follower-sessions",),
    ),
    Mutant(
        "followers serve fetches of former leader epochs (KIP-392)",
        replacing(Partition, "check_leader_epoch", check_leaders_alone),
        ("near-replicas",),
    ),
    Mutant(
        "consumers that wait at a follower are not woken (KIP-392)",
        replacing(DelayedOperations, "_on_high_watermark", wake_at_leaders_alone),
        ("near-replicas",),
    ),
    Mutant(
        "replicas are placed without a look at racks (KIP-36)",
        replacing(replica_placement._Placer, "__init__", forget_racks),
        ("moving-racks",),
    ),
    Mutant(
        "a vote is refused to a shorter log of a later epoch",
        replacing(Role, "on_vote", compare_epoch_and_offset_apart),
        ("parted-quorum",),
    ),
    Mutant(
        "a voter notes committed records that it has not fsynced",
        replacing(RaftDriver, "_durably_committed", lambda self: self.high_watermark),
        ("full-disks",),
    ),
    Mutant(
        "a heartbeat with all fields is not answered with the assignment",
        replacing(HeartbeatRequest, "is_full", property(lambda self: self.member_epoch == 0)),
        ("groups",),
    ),
    Mutant(
        "a new leader says that there is no record of a time (KIP-207)",
        replacing(offset_lookup, "_check_settled", lambda replica, for_consumer: None),
        ("times-at-new-leaders",),
    ),
    Mutant(
        "a log that begins anew keeps its producers",
        replacing(PartitionLog, "truncate_fully_and_start_at", begin_anew_with_producers),
        ("trims",),
    ),
    Mutant(
        "directories do not follow their replicas",
        replacing(PartitionRegistration, "_directories_after", leave_directories_where_they_are),
        ("elections",),
    ),
    Mutant(
        "a reassignment forgets the order of preference",
        replacing(reassignment, "plan", sort_the_target),
        ("moves",),
    ),
)
