"""Slips in what nodes answer, note and make of metadata: the bytes of connections and devices tell of them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from support.chaos.mutants import Mutant, replacing

from raftwerk.broker.groups.consumer.consumer_group_heartbeat import HeartbeatRequest
from raftwerk.controller.metadata.metadata_image import PartitionRegistration
from raftwerk.controller.metadata.metadata_records import PartitionChangeRecord
from raftwerk.controller.partitions import reassignment
from raftwerk.controller.partitions.partition_change import ReplicaSets
from raftwerk.raft.driver.raft_driver import RaftDriver
from raftwerk.raft.messages.messages import Vote
from raftwerk.raft.roles.role import Role

ORIGINAL_ON_VOTE, ORIGINAL_PLAN = Role.on_vote, reassignment.plan


def compare_epoch_and_offset_apart(self: Role, vote: Vote, now_ms: int) -> bool:
    """The log of a candidate must be as long as the voter's, whatever its last epoch is."""
    log = self.quorum.log
    is_up_to_date = vote.last_epoch >= log.last_epoch and vote.last_offset >= log.end_offset
    return ORIGINAL_ON_VOTE(self, vote if is_up_to_date else replace(vote, last_epoch=-1), now_ms)


def leave_directories_where_they_are(self: PartitionRegistration, change: PartitionChangeRecord) -> tuple[UUID, ...]:
    """Other replicas get the directories of those that had their places."""
    return self.directories if change.directories is None else change.directories


def sort_the_target(partition: PartitionRegistration, target: tuple[int, ...]) -> ReplicaSets:
    """A partition moves to the replicas that were asked for, in the order of their ids."""
    return ORIGINAL_PLAN(partition, tuple(sorted(target)))


ANSWER_MUTANTS = (
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
