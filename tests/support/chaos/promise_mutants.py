"""Slips that break a promise at once and do harm only by a rare coincidence: the simulator sees the broken promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from support.chaos.access_mutants import ACCESS_MUTANTS
from support.chaos.answer_mutants import ANSWER_MUTANTS
from support.chaos.group_mutants import GROUP_MUTANTS
from support.chaos.mutants import MUTANTS, Mutant, replacing
from support.chaos.transaction_mutants import TRANSACTION_MUTANTS

from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.controller.metadata import metadata_snapshot
from raftwerk.controller.metadata.metadata_image import PartitionRegistration, TopicImage
from raftwerk.controller.metadata.metadata_records import PartitionChangeRecord
from raftwerk.controller.partitions import alter_partition, broker_departures, reassignment
from raftwerk.controller.partitions.partition_change import Goal
from raftwerk.controller.quorum_controller import QuorumController
from raftwerk.controller.term import PendingRequest, Term
from raftwerk.isr.directories import log_dir_moves
from raftwerk.isr.leader.appends import Appends
from raftwerk.isr.leader.isr_state import CommittedIsr, PendingExpandIsr
from raftwerk.isr.leader.leader_state import LeaderState
from raftwerk.isr.partition import Partition
from raftwerk.isr.replica import Replica
from raftwerk.log import partition_log
from raftwerk.log.cleaner import batch_filter, compaction, log_cleaner
from raftwerk.log.cleaner.cleaned_transactions import CleanedTransactions
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.recovery import log_recovery, segment_recovery
from raftwerk.log.segment import rolling_and_retention
from raftwerk.log.segment.segment import Segment
from raftwerk.log.state.producer_state import ProducerStateManager
from raftwerk.raft.driver.commit_publisher import CommitPublisher
from raftwerk.raft.replication.partition_raft_log import PartitionRaftLog
from raftwerk.raft.voters.voter_change_handler import VoterChangeHandler
from raftwerk.raft.voters.voter_set import VoterHistory
from raftwerk.runtime.ports import Buffer
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import BatchHeader, iter_headers
from raftwerk.wire.types import SnapshotId

_MARK_SUFFIX = ".swap"
_LONG_LOG = 150
ORIGINAL_APPEND_VOTERS = VoterChangeHandler._append
ORIGINAL_CHECK_COMMIT = ConsumerGroup.check_commit
ORIGINAL_CHECK_MEMBER = ClassicGroup._check_member
ORIGINAL_CHECK_EPOCHS = alter_partition._check_epochs
ORIGINAL_PLAN = reassignment.plan
ORIGINAL_CUT = PartitionRaftLog.truncate_to
ORIGINAL_COUNT_EXPIRED = rolling_and_retention.count_expired
ORIGINAL_COPY_BATCHES = log_dir_moves.copy_batches
ORIGINAL_RESUME = segment_recovery.resume
ORIGINAL_LOAD = log_recovery.load
ORIGINAL_MEASURE = log_cleaner.measure
ORIGINAL_RUN_GROUP = compaction._GroupCopy.run
ORIGINAL_DECIDE = broker_departures._DecisionCache.decide
ORIGINAL_REBUILD = batch_filter.rebuild
ORIGINAL_APPEND_VALIDATED = Appends._append_validated
ORIGINAL_MAKE_LEADER = Replica.make_leader
ORIGINAL_TRUNCATE = PartitionLog.truncate_to
ORIGINAL_APPEND_AS_FOLLOWER = PartitionLog.append_as_follower
ORIGINAL_MAKE_PART = QuorumController._make_part
ORIGINAL_PUBLISH_SNAPSHOT = CommitPublisher._publish_snapshot


def take_added_replicas_for_old_ones(partition: Any, target: tuple[int, ...]) -> Any:
    """The replicas that another reassignment is still adding count as those that are there."""
    return ORIGINAL_PLAN(partition._replace(adding_replicas=()), target)


def tell_of_what_is_there(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, None]:
    """What a snapshot does not have any more is not told to the parts of the node that loads it."""
    return {key: None for key in new if old.get(key) != new[key]}


def answer_at_once_without_records(self: QuorumController, term: Term, pending: PendingRequest) -> bool:
    offset = term.image.offset
    has_more = ORIGINAL_MAKE_PART(self, term, pending)
    waits = not has_more and bool(term.pending_responses) and not pending.future.done()
    if waits and term.image.offset == offset and term.pending_responses[-1].future is pending.future:
        pending.answer(term.pending_responses.pop().response)
    return has_more


def answer_before_the_commit(self: VoterChangeHandler, change: Any, voters: Any, now_ms: int) -> None:
    ORIGINAL_APPEND_VOTERS(self, change, voters, now_ms)
    self._answer(change, ErrorCode.NONE)


def take_whoever_fetches(self: LeaderState, follower: Any) -> Any:
    """A replica is proposed for the ISR before it has what is committed."""
    state = self.isr_state
    if follower.replica_id in state.isr or not isinstance(state, CommittedIsr) or not self._is_eligible(follower):
        return None
    return self._propose(PendingExpandIsr(state, follower.replica_id))


def take_any_partition_epoch(partition: Any, broker_id: int, data: Any) -> None:
    try:
        ORIGINAL_CHECK_EPOCHS(partition, broker_id, data)
    except ProtocolError as refusal:
        if refusal.code != ErrorCode.INVALID_UPDATE_VERSION:
            raise


def keep_producers(self: PartitionLog, offset: int) -> None:
    """A truncation leaves what the truncated batches said of their producers."""
    kept = self.producers.encode_snapshot()
    ORIGINAL_TRUNCATE(self, offset)
    self.producers.load_snapshot(kept)


def commit_in_the_epoch_before(self: ConsumerGroup, member_id: str, instance_id: Any, epoch: int, now_ms: int) -> Any:
    """As for a heartbeat, the epoch before is taken: the answer with the present one may have been lost."""
    member = self.members.get(member_id)
    if member is not None and epoch == member.previous_epoch:
        return ErrorCode.NONE
    return ORIGINAL_CHECK_COMMIT(self, member_id, instance_id, epoch, now_ms)


def commit_while_it_rebalances(self: ClassicGroup, member_id: str, instance_id: Any, generation: int) -> ErrorCode:
    """The generation counts as current until its assignments are there."""
    error = ORIGINAL_CHECK_MEMBER(self, member_id, instance_id, generation)
    is_last = generation == self.generation - 1
    return ErrorCode.NONE if error == ErrorCode.ILLEGAL_GENERATION and is_last else error


def no_leader_meanwhile(self: Replica, registration: Any, now_ms: int) -> bool:
    """Who leads on has had no other leader before it, also where it has missed an epoch."""
    refused, leads_on = self._refused_batches, self.partition.leader is not None
    became_leader = ORIGINAL_MAKE_LEADER(self, registration, now_ms)
    self._refused_batches = refused if leads_on else self._refused_batches
    return became_leader


def stay_durable(self: PartitionRaftLog, offset: int) -> None:
    """What was durable before the metadata log was cut counts as durable when other records stand there."""
    durable_offset = self._durable_offset
    ORIGINAL_CUT(self, offset)
    self._durable_offset = durable_offset


def delete_one_more(segments: Any, config: Any, log_start_offset: int, high_watermark: int, now_ms: int) -> int:
    """A segment goes as soon as the log is larger than retention.bytes, also if it is too small without it."""
    count = ORIGINAL_COUNT_EXPIRED(segments, config, log_start_offset, high_watermark, now_ms)
    left_bytes = sum(segment.size_bytes for segment in segments[count:])
    if not 0 <= config.retention_bytes < left_bytes or segments[count].next_offset > high_watermark:
        return count
    return count + 1


def look_at_first_records(segment: Any, retention_ms: int, now_ms: int) -> bool:
    """A segment is as old as its first record."""
    return bool(0 <= retention_ms < now_ms - segment.first_timestamp)


def believe_the_recovery_point(segment: Any, offset: int, epoch: int) -> bool:
    """A segment has what is below the recovery point, whether or not it is there."""
    if ORIGINAL_RESUME(segment, offset, epoch):
        return True
    segment.next_offset, segment.size_bytes, segment.uncounted_bytes = offset, segment.file.size(), 0
    return bool(segment.base_offset < offset)


def leave_a_batch_out(log: PartitionLog, copy: PartitionLog, *, allow_blocking_io: bool = False) -> int:
    """A copy of a long log lacks its second batch."""
    start, end = copy.log_end_offset, log.log_end_offset
    data = memoryview(log.read(start, 1 << 20, end_offset=end)) if start == 0 and end > _LONG_LOG else memoryview(b"")
    batches = list(iter_headers(data))
    if len(batches) < 3:
        return ORIGINAL_COPY_BATCHES(log, copy, allow_blocking_io=allow_blocking_io)
    position, header = batches[1]
    copy.append_as_follower(data[:position], may_skip=True)
    copy.append_as_follower(data[position + header.size_bytes :], may_skip=True)
    return len(data)


def write_no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original is touched, and nothing on the disk says that the copy is complete."""
    write, remove = SimDisk.write_atomic, SimDisk.remove

    def write_others(self: SimDisk, path: str, data: Buffer) -> None:
        if not path.endswith(_MARK_SUFFIX):
            write(self, path, data)

    def remove_others(self: SimDisk, path: str) -> None:
        if not path.endswith(_MARK_SUFFIX):
            remove(self, path)

    monkeypatch.setattr(SimDisk, "write_atomic", write_others)
    monkeypatch.setattr(SimDisk, "remove", remove_others)


def keep_voters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter whose record was cut off the metadata log stays one."""
    monkeypatch.setattr(VoterHistory, "truncate_to", lambda self, end_offset: None)


def count_followers_before(self: LeaderState, config: Any) -> None:
    """The minimum is limited by the followers that were known before the registration; a new leader knows none."""
    self.config = config
    known = len(self.followers) + 1 if self.followers else 0
    self.effective_min_isr = min(config.min_isr, known)


def believe_what_was_read(*arguments: Any, **keywords: Any) -> Any:
    """What recovery has checked counts as synced, though it may be in the page cache only."""
    loaded = yield from ORIGINAL_LOAD(*arguments, **keywords)
    loaded.durable_offset = loaded.segments[-1].next_offset
    return loaded


def compact_what_is_open(log: PartitionLog, *arguments: Any) -> Any:
    """Compaction does not ask where the first open transaction begins."""
    producers, log.producers = log.producers, ProducerStateManager()
    try:
        return ORIGINAL_MEASURE(log, *arguments)
    finally:
        log.producers = producers


def go_on_with_the_former_snapshot(self: CommitPublisher, snapshot_id: SnapshotId) -> None:
    """What is left of a snapshot is handed over under the id of the one that has replaced it."""
    if self._loading is not None:
        self._loading = snapshot_id, self._loading[1]
    ORIGINAL_PUBLISH_SNAPSHOT(self, snapshot_id)


def append_gaps_without_a_note(self: PartitionLog, *arguments: Any, **options: Any) -> Any:
    """A compacted log counts as noted, though only the next checkpoint says so."""
    self._has_gaps = self._has_gaps or self.may_have_gaps
    return ORIGINAL_APPEND_AS_FOLLOWER(self, *arguments, **options)


def append_by_the_time_of_the_request(self: Appends, *arguments: Any) -> None:
    """What was looked into in a thread is stamped with a time from before that."""
    now = self._now
    self._now = lambda: (now()[0], now()[1] - 1)
    try:
        ORIGINAL_APPEND_VALIDATED(self, *arguments)
    finally:
        self._now = now


def age_of_the_first(log: PartitionLog, *arguments: Any) -> Any:
    """Compaction takes a segment whose first record is old enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "largest_timestamp", Segment.earliest_timestamp)
        return ORIGINAL_MEASURE(log, *arguments)


def horizon_from_the_record(header: BatchHeader, body: Any, kept: Any, horizon_ms: int | None) -> Any:
    """A tombstone stays for a time since it was written, not since it was first compacted."""
    return ORIGINAL_REBUILD(header, body, kept, None if horizon_ms is None else header.max_timestamp + 200)


def look_for_transactions_anew(self: compaction._GroupCopy, group: Sequence[Segment]) -> Any:
    """A marker is taken for idle when the records of its transaction went into the segment before."""
    aborted = self._watch.log.aborted_transactions(group[0].base_offset, group[-1].next_offset)
    self._transactions = CleanedTransactions(aborted)
    return ORIGINAL_RUN_GROUP(self, group)


def remember_for_any_elr(
    self: broker_departures._DecisionCache, topic: TopicImage, index: int, partition: PartitionRegistration, goal: Goal
) -> PartitionChangeRecord | None:
    """As if the eligible leader replicas were missing from the key of what is remembered."""
    known: dict[Any, PartitionRegistration] = self.__dict__.setdefault("first_of_a_kind", {})
    first = known.setdefault((partition._replace(elr=(), leader_epoch=0, partition_epoch=0), goal.isr), partition)
    is_alike = not (partition.adding_replicas or partition.removing_replicas)
    return ORIGINAL_DECIDE(self, topic, index, first if is_alike else partition, goal)


PROMISE_MUTANTS = (
    Mutant("a log takes another one's place, and no mark says so", write_no_marks, ("dirs-power",)),
    Mutant(
        "a move between log directories leaves a batch out",
        replacing(log_dir_moves, "copy_batches", leave_a_batch_out),
        ("dirs",),
    ),
    Mutant(
        "a change of the voters is answered before it is committed",
        replacing(VoterChangeHandler, "_append", answer_before_the_commit),
        ("voters",),
    ),
    Mutant(
        "metadata records count as durable when they are written",
        replacing(PartitionRaftLog, "durable_offset", property(lambda self: self.end_offset)),
        ("kill",),
    ),
    Mutant(
        "a replica enters the ISR before it has what is committed",
        replacing(LeaderState, "propose_expand", take_whoever_fetches),
        ("mixed", "kill"),
    ),
    Mutant(
        "an ISR of a former partition epoch is taken",
        replacing(alter_partition, "_check_epochs", take_any_partition_epoch),
        ("chase",),
    ),
    Mutant(
        "a truncation leaves producers as they were",
        replacing(PartitionLog, "truncate_to", keep_producers),
        ("kill",),
    ),
    Mutant(
        "a commit of the epoch before is taken",
        replacing(ConsumerGroup, "check_commit", commit_in_the_epoch_before),
        ("late-commits",),
    ),
    Mutant(
        "a commit of the generation before is taken",
        replacing(ClassicGroup, "_check_member", commit_while_it_rebalances),
        ("late-commits",),
    ),
    Mutant(
        "a leader that has missed an epoch refuses batches that overtook others",
        replacing(Replica, "make_leader", no_leader_meanwhile),
        ("stalled-metadata",),
    ),
    Mutant(
        "what was durable stays durable when the metadata log is cut",
        replacing(PartitionRaftLog, "truncate_to", stay_durable),
        ("kept-metadata",),
    ),
    Mutant(
        "the high watermark of a log that is cut stays where it was",
        replacing(Partition, "on_truncated", lambda self, log_end_offset: None),
        ("unclean",),
    ),
    Mutant(
        "a node that loads a snapshot is not told of what is gone",
        replacing(metadata_snapshot, "_changed", tell_of_what_is_there),
        ("skipped-metadata",),
    ),
    Mutant(
        "a decision without records is answered before what it saw is committed",
        replacing(QuorumController, "_make_part", answer_at_once_without_records),
        ("leader-crash",),
    ),
    Mutant(
        "a reassignment that is asked for again forgets which replicas it adds",
        replacing(reassignment, "plan", take_added_replicas_for_old_ones),
        ("throttled",),
    ),
    Mutant(
        "retention.bytes leaves less than that",
        replacing(partition_log, "count_expired", delete_one_more),
        ("retention",),
    ),
    Mutant(
        "a segment is as old as its first record",
        replacing(rolling_and_retention, "_is_too_old", look_at_first_records),
        ("retention",),
    ),
    Mutant(
        "recovery believes that all below the recovery point is there",
        replacing(log_recovery, "resume", believe_the_recovery_point),
        ("lying-disk",),
    ),
    Mutant("voters stay when their record is cut off the log", keep_voters, ("voters",)),
    Mutant(
        "a new leader counts min.insync.replicas by no replicas",
        replacing(LeaderState, "update_config", count_followers_before),
        ("min-isr",),
    ),
    Mutant(
        "what recovery has read counts as synced",
        replacing(log_recovery, "load", believe_what_was_read),
        ("kill",),
    ),
    Mutant(
        "compaction passes open transactions",
        replacing(log_cleaner, "measure", compact_what_is_open),
        ("exactly-once",),
    ),
    Mutant(
        "a snapshot goes on as the one that replaces it while it is loaded",
        replacing(CommitPublisher, "_publish_snapshot", go_on_with_the_former_snapshot),
        ("kept-metadata",),
    ),
    Mutant(
        "a follower of a compacted log does not note its gaps at once",
        replacing(PartitionLog, "append_as_follower", append_gaps_without_a_note),
        ("compaction",),
    ),
    Mutant(
        "a batch has the time of its request",
        replacing(Appends, "_append_validated", append_by_the_time_of_the_request),
        ("stamped-topics",),
    ),
    Mutant(
        "a tombstone stays from when it was written",
        replacing(compaction, "rebuild", horizon_from_the_record),
        ("kept-keys",),
    ),
    Mutant(
        "a segment may be compacted when its first record may",
        replacing(log_cleaner, "measure", age_of_the_first),
        ("kept-keys",),
    ),
    Mutant(
        "compaction looks for transactions anew in each segment that it makes",
        replacing(compaction._GroupCopy, "run", look_for_transactions_anew),
        ("cleaned-transactions",),
    ),
    Mutant(
        "a remembered decision ignores the eligible replicas",
        replacing(broker_departures._DecisionCache, "decide", remember_for_any_elr),
        ("alike-partitions",),
    ),
)

ALL_MUTANTS = (
    *MUTANTS,
    *TRANSACTION_MUTANTS,
    *GROUP_MUTANTS,
    *ACCESS_MUTANTS,
    *PROMISE_MUTANTS,
    *ANSWER_MUTANTS,
)
