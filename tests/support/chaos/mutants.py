"""Known bugs of replicated logs, as patches on whole nodes: the simulator must find each of them.

Each mutant says which scenarios it is run in. The search begins with the run in `tests/chaos/mutant_seeds.txt`, which
showed the bug when it was last looked for, and goes on from seed 0: a change that moves the order of events makes it
take longer, and does no more. A bug that shows only in a coincidence which hardly any seed has is driven into just that
interleaving instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.isr.minimum_changes import higher_minimum_with_a_smaller_isr, lower_minimum_for_a_former_leader

from raftwerk.broker.coordinators import coordinator_partition_writer
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.consumer import consumer_group
from raftwerk.broker.groups.consumer.consumer_group_member import reconcile
from raftwerk.broker.groups.consumer.migration import upgraded_members
from raftwerk.broker.to_controller.broker_lifecycle_manager import BrokerLifecycleManager
from raftwerk.chaos.sim.disk.sim_file import SimFile
from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.controller.configs import alter_configs
from raftwerk.controller.metadata import features
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.controller.metadata.metadata_records import PartitionChangeRecord
from raftwerk.controller.partitions import (
    alter_partition,
    broker_departures,
    partition_change,
    reassignment,
    replica_directories,
)
from raftwerk.isr.directories.directory_assignments import Place
from raftwerk.isr.follower import fetch_request_timeout
from raftwerk.isr.follower.fetcher_state import FetcherState
from raftwerk.isr.leader import appends
from raftwerk.isr.leader.follower_progress import FollowerProgress
from raftwerk.isr.leader.isr_state import PendingExpandIsr, PendingShrinkIsr
from raftwerk.isr.leader.leader_state import LeaderState
from raftwerk.isr.leader.refused_batches import RefusedBatches
from raftwerk.isr.partition import Partition
from raftwerk.isr.replica import Replica
from raftwerk.isr.roles import local_replicas
from raftwerk.isr.roles.local_replicas import LocalReplicas
from raftwerk.isr.roles.metadata_delta_applier import MetadataDeltaApplier
from raftwerk.log.durability import Durability
from raftwerk.log.manager.log_directory import LogDirectory
from raftwerk.log.manager.log_loading import LogLoader
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.producer_state import ProducerStateManager
from raftwerk.raft.driver.quorum_state_store import QuorumStateStore, format_quorum_state
from raftwerk.raft.replication.replica_progress import ProgressTracker
from raftwerk.raft.roles import Leader
from raftwerk.runtime.ports import File
from raftwerk.wire.errors import ErrorCode

Patch = Callable[[pytest.MonkeyPatch], None]
Interleaving = Callable[[], str | None]
MUTANT_SEEDS = Path(__file__).parents[2] / "chaos" / "mutant_seeds.txt"


@dataclass(frozen=True)
class Mutant:
    """One bug; `apply` patches it in."""

    name: str
    apply: Patch
    scenarios: tuple[str, ...] = ()
    interleaving: Interleaving | None = None
    """Run instead of scenarios. It says what is broken; None if nothing is."""


def replacing(owner: Any, name: str, value: Any) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def truncate_by_high_watermark(self: Replica, registration: Any) -> bool:
    changed = ORIGINAL_MAKE_FOLLOWER(self, registration)
    if changed:
        self.truncate_to(self.high_watermark)
    return changed


def leave_divergence(self: Replica, diverging: object) -> None:
    """Append after records that the leader does not have."""


def vote_without_sync(self: QuorumStateStore, state: Any) -> None:
    disk: Any = self._disk
    file: File = disk.open(self.path, create=True)
    file.truncate(0)
    file.append([format_quorum_state(state)])
    file.close()


def high_watermark_of_the_leader_alone(self: LeaderState, log_end_offset: int, now_ms: int) -> bool:
    """Advance although fewer than min ISR replicas are in sync."""
    offsets = [follower.log_end_offset for id, follower in self.followers.items() if id in self.isr_state.maximal_isr]
    lowest = min([log_end_offset, *offsets])
    return self.watermark.advance(lowest)


async def at_once(self: BrokerLifecycleManager) -> None:
    """Take the roles that the metadata gave to a former incarnation of the broker."""


def unclean_goal(self: Any, *arguments: Any) -> Any:
    goal = ORIGINAL_GOAL(self, *arguments)
    return type(goal)(
        goal.isr, goal.acceptable, goal.min_insync_replicas, goal.elr_enabled, partition_change.Election.UNCLEAN
    )


def read_uncommitted(self: Replica, params: Any, request: Any, max_bytes: int, **options: bool) -> Any:
    """Read what the leader has, even if its followers do not have it."""
    found = ORIGINAL_READ(self, params, request, max_bytes, **options)
    end_offset = self.log.log_end_offset
    if params.replica_id >= 0 or found.diverging_epoch is not None or request.fetch_offset >= end_offset:
        return found
    return replace(found, records=self.log.read(request.fetch_offset, max_bytes, end_offset=end_offset))


def ignore_broker_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        LeaderState, "check_follower", lambda self, replica_id, broker_epoch: self.followers[replica_id]
    )
    monkeypatch.setattr(alter_partition, "_check_eligible", lambda *_: None)
    monkeypatch.setattr(LeaderState, "_is_eligible", lambda self, follower: follower.broker_epoch is not None)
    monkeypatch.setattr(broker_departures, "remove_broker", lambda *_, **__: [])


def fenced_in_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "_check_eligible", lambda *_: None)
    monkeypatch.setattr(LeaderState, "_is_eligible", lambda self, follower: follower.broker_epoch is not None)


def every_shutdown_is_clean(image: Any, settings: Any, broker_id: int, *, unclean: bool = False, **_: Any) -> Any:
    return ORIGINAL_LEAVES(image, settings, broker_id)


def believe_a_failed_fsync(self: Durability, target: int) -> None:
    try:
        ORIGINAL_SYNC(self, target)
    except OSError:
        self._synced_up_to(target)


def believe_failed_fsyncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Durability, "sync", believe_a_failed_fsync)
    monkeypatch.setattr(SimFile, "finish_sync", _sync_or_drop)


def _sync_or_drop(file: Any, operations: Any) -> None:
    try:
        ORIGINAL_FINISH(file, operations)
    except OSError:
        return


def trust_before_the_fsync(self: Durability, end: int, producers: bytes, result: Any) -> None:
    """The recovery point moves into the segment while its records are only in the page cache."""
    self._files.segments.active.save_indexes()
    self._files.snapshots.write(end, producers)
    self._synced_up_to(end)
    result.set_result(end)


def move_at_once(partition: Any, target: Any) -> Any:
    """The new replicas take over before they have any records."""
    return partition_change.ReplicaSets(target, (), ())


def no_fencing(self: Partition, requested_epoch: int) -> None:
    """Every fetch is answered, whatever leader epoch it has."""


def look_at_offsets_only(self: Replica, request: Any) -> Any:
    """A follower's log counts as a prefix of the leader's log unless it is longer."""
    end = ORIGINAL_DIVERGENCE(self, request)
    return None if end is not None and end.end_offset >= request.fetch_offset else end


def names_for_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is identified by its name, as before there were topic ids."""
    monkeypatch.setattr(LocalReplicas, "_log_for", log_by_name)
    monkeypatch.setattr(LogManager, "set_strays_aside", strays_by_name)


def strays_by_name(self: LogManager, wanted: Any) -> Any:
    """Only logs for which there is no topic of that name."""

    def own(topic_partition: Any) -> Any:
        log = self.get(topic_partition)
        return None if wanted(topic_partition) is None or log is None else log.topic_id

    return ORIGINAL_STRAYS(self, own)


def log_by_name(self: LocalReplicas, topic_partition: Any, topic_id: Any, *rest: Any) -> Any:
    """The log of this name, whatever topic id it has."""
    log = self._logs.get(topic_partition)
    if log is not None:
        log.set_topic_id(topic_id)
    return ORIGINAL_LOG_FOR(self, topic_partition, topic_id, *rest)


def commit_before_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_partition_writer, "ACKS_ALL", 1)


ORIGINAL_STRAYS = LogManager.set_strays_aside
ORIGINAL_LOG_FOR = LocalReplicas._log_for
ORIGINAL_DIVERGENCE = Replica._divergence
ORIGINAL_MAKE_FOLLOWER = Replica.make_follower
ORIGINAL_GOAL = partition_change.PartitionRules.goal
ORIGINAL_READ = Replica.read
ORIGINAL_LEAVES = broker_departures.remove_broker
ORIGINAL_SYNC = Durability.sync
ORIGINAL_TAKE_MARK = LogDirectory.take_clean_shutdown_mark
ORIGINAL_BEGIN_LOAD = LogLoader.begin
ORIGINAL_FINISH = SimFile.finish_sync
ORIGINAL_FOLLOWER_APPEND = PartitionLog.append_as_follower


def forget_producers(self: PartitionLog, *arguments: Any, **named: Any) -> Any:
    info = ORIGINAL_FOLLOWER_APPEND(self, *arguments, **named)
    self.producers.clear()
    return info


def ack_uncommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "ACKS_ALL", -2)


def take_no_notice_of_an_exchanged_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean stop of the other disks counts for the empty one too, and its replicas are created without notice."""
    marks: list[int] = []

    def take_mark(self: LogDirectory) -> int | None:
        epoch = ORIGINAL_TAKE_MARK(self)
        marks.append(-1 if epoch is None else epoch)
        return epoch

    def begin_load(self: LogLoader) -> None:
        marks.clear()
        ORIGINAL_BEGIN_LOAD(self)
        self.previous_broker_epoch = max(marks)

    monkeypatch.setattr(LogDirectory, "take_clean_shutdown_mark", take_mark)
    monkeypatch.setattr(LogLoader, "begin", begin_load)
    monkeypatch.setattr(local_replicas, "place_of", lambda *state, **more: Place.ANYWHERE)


def give_at_once(member: Any, target_epoch: int, target: Any, owned: Any, is_free: Any, new_topics: Any) -> Any:
    """A partition is given to its next owner before the last one has revoked it."""
    return ORIGINAL_RECONCILE(member, target_epoch, target, owned, lambda part: True, new_topics)


def forget_who_reads(group: Any, topics: Any) -> Any:
    return [replace(member, assigned=()) for member in ORIGINAL_UPGRADE(group, topics)]


def wait_at_half_open_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower waits on a half-open connection, and its leader waits for it, until replica.*.ms are over."""
    monkeypatch.setattr(fetch_request_timeout, "_GRACE_S", 30.0)
    monkeypatch.setattr(FollowerProgress, "has_fetched_within", lambda *_: True)
    monkeypatch.setattr(FollowerProgress, "leave_isr", lambda _: None)


def expire_by_timestamps(self: ProducerStateManager, now_ms: int, expiration_ms: int) -> int:
    """As in Apache Kafka, a producer expires by the timestamp of its newest record."""
    newest_ms = max((entry.last_timestamp for _, entry in self.items()), default=0)
    old = [one for one, entry in self.items() if newest_ms - entry.last_timestamp >= expiration_ms]
    for producer_id in old:
        del self._entries[producer_id]
    return len(old)


def begin_at_the_end(self: FetcherState, key: Any, start_offset: int, end_offset: int, now_ms: int) -> None:
    """A follower whose offset is out of range skips all records of the leader."""
    ORIGINAL_RESTART(self, key, end_offset if start_offset else start_offset, end_offset, now_ms)


def empty_every_elr(topics: Any) -> Any:
    return [
        PartitionChangeRecord(topic.topic_id, index, elr=(), last_known_elr=())
        for topic in topics
        for index, partition in topic.partitions.items()
        if partition.elr or partition.last_known_elr
    ]


def settings_come_last(self: MetadataDeltaApplier, image: MetadataImage, delta: Any) -> None:
    changed, delta.changed_configs = delta.changed_configs, {}
    ORIGINAL_APPLY(self, image, delta)
    delta.changed_configs = changed
    if changed:
        self._apply_configs(delta)


def patch_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataDeltaApplier, "apply", settings_come_last)
    monkeypatch.setattr(MetadataDeltaApplier, "_take_minimum", lambda *_: None)


def higher_minimum() -> str | None:
    replica, _ = higher_minimum_with_a_smaller_isr()
    return _committed_too_much(replica)


def lower_minimum() -> str | None:
    return _committed_too_much(lower_minimum_for_a_former_leader(3))


def _committed_too_much(replica: Replica) -> str | None:
    return f"records below {replica.high_watermark} are committed, 0 may be" if replica.high_watermark else None


ORIGINAL_RESTART = FetcherState.restart
ORIGINAL_APPLY = MetadataDeltaApplier.apply
ORIGINAL_RECONCILE = reconcile
ORIGINAL_UPGRADE = upgraded_members

MUTANTS = (
    Mutant(
        "commits of any generation are taken",
        replacing(ClassicGroup, "check_commit", lambda *_: ErrorCode.NONE),
        ("classic-groups",),
    ),
    Mutant(
        "commits of fenced members are taken",
        replacing(consumer_group.ConsumerGroup, "check_commit", lambda *_: ErrorCode.NONE),
        ("groups",),
    ),
    Mutant(
        "a partition has two readers while it moves",
        replacing(consumer_group, "reconcile", give_at_once),
        ("groups",),
    ),
    Mutant(
        "an upgraded group forgets what its members read",
        replacing(consumer_group, "upgraded_members", forget_who_reads),
        ("migrations",),
    ),
    Mutant(
        "a controller that ignores failed directories",
        replacing(replica_directories, "newly_failed_directories", lambda *_: []),
        ("dirs",),
    ),
    Mutant("an exchanged disk goes unnoticed", take_no_notice_of_an_exchanged_disk, ("lost-dir",)),
    Mutant(
        "logs that somebody removed go unnoticed",
        replacing(LogManager, "_displace_lost_logs", lambda *_: None),
        ("lost-dir",),
    ),
    Mutant(
        "a leader counts that was removed (KAFKA-16530)",
        replacing(ProgressTracker, "leader_is_voter", True),
        ("voters",),
    ),
    Mutant("acks before the followers have it", ack_uncommitted, ("kill",)),
    Mutant(
        "truncation by high watermark (KIP-101)",
        replacing(Replica, "make_follower", truncate_by_high_watermark),
        ("chase", "kill"),
    ),
    Mutant(
        "append before truncation (KAFKA-14704)",
        replacing(Replica, "truncate_to_divergence", leave_divergence),
        ("chase", "mixed"),
    ),
    Mutant(
        "a vote that is not synced", replacing(QuorumStateStore, "write", vote_without_sync), ("power", "leader-crash")
    ),
    Mutant(
        "high watermark below min ISR (KAFKA-15583)",
        replacing(LeaderState, "maybe_advance_high_watermark", high_watermark_of_the_leader_alone),
        ("kill", "mixed"),
    ),
    Mutant(
        "high watermark past a joining replica (KAFKA-12686)",
        replacing(PendingExpandIsr, "maximal_isr", property(lambda self: self.committed.isr)),
        ("kill", "mixed"),
    ),
    Mutant(
        "leading for a former incarnation", replacing(BrokerLifecycleManager, "registered", at_once), ("leader-crash",)
    ),
    Mutant(
        "a leader counts a diverging fetch (KAFKA-13141)",
        replacing(Replica, "_divergence", lambda *_: None),
        ("chase", "mixed"),
    ),
    Mutant(
        "dedupe lost at a leader change",
        replacing(PartitionLog, "append_as_follower", forget_producers),
        ("kill", "stop"),
    ),
    Mutant(
        "a batch that overtakes others at a change of leader is out of order",
        replacing(RefusedBatches, "check_gap", lambda *_: None),
        ("pipelined-producers",),
    ),
    Mutant("a fenced replica back in the ISR (KAFKA-13916)", fenced_in_isr, ("kill", "roles")),
    Mutant("no broker epochs (KAFKA-14617)", ignore_broker_epochs, ("leader-crash", "lost-disk")),
    Mutant(
        "a cut-off leader never resigns (KAFKA-15489)",
        replacing(Leader, "check_quorum_deadline_ms", lambda self: None),
        ("isolation",),
    ),
    Mutant(
        "last replica standing after an unclean shutdown (KIP-966)",
        replacing(broker_departures, "remove_broker", every_shutdown_is_clean),
        ("elr",),
    ),
    Mutant("a failed fsync is believed", believe_failed_fsyncs, ("disk",)),
    Mutant(
        "a recovery point before its fsync",
        replacing(Durability, "checkpoint_soon", trust_before_the_fsync),
        ("leader-crash",),
    ),
    Mutant("consumers read what is not committed", replacing(Replica, "read", read_uncommitted), ("kill",)),
    Mutant(
        "a partition moves before its new replicas have it",
        replacing(reassignment, "plan", move_at_once),
        ("moves",),
    ),
    Mutant(
        "a stale fetch is not fenced (KIP-320)",
        replacing(Partition, "check_leader_epoch", no_fencing),
        ("elections",),
    ),
    Mutant(
        "divergence after a fast double failover (KIP-279)",
        replacing(Replica, "_divergence", look_at_offsets_only),
        ("elections",),
    ),
    Mutant("a topic made anew takes up the old one's log (KIP-516)", names_for_ids, ("churn",)),
    Mutant("half-open connections are waited for", wait_at_half_open_connections, ("network",)),
    Mutant("offsets answered before they are replicated", commit_before_replication, ("groups",)),
    Mutant(
        "a form of records is finalized that a controller does not know",
        replacing(features, "_check_voters", lambda image, update, voter_ids: None),
        ("upgrades-apart",),
    ),
    Mutant(
        "a form of records is finalized that a broker does not know",
        replacing(features, "_check_range", lambda update, who, levels: None),
        ("upgrades",),
    ),
    Mutant(
        "no snapshot in the older form before the older software",
        replacing(MetadataLoader, "_snapshot_if_due", lambda self, sink, timestamp_ms: None),
        ("upgrades",),
    ),
    Mutant(
        "the new form is written before it is finalized",
        replacing(MetadataImage, "record_level", 1),
        ("upgrades",),
    ),
    Mutant(
        "producers are forgotten by the age of their records",
        replacing(ProducerStateManager, "expire", expire_by_timestamps),
        ("trims",),
    ),
    Mutant(
        "a follower that is out of range begins at the leader's end",
        replacing(FetcherState, "restart", begin_at_the_end),
        ("trims",),
    ),
    Mutant(
        "high watermark past a replica that is still in the ISR (KIP-497)",
        replacing(PendingShrinkIsr, "maximal_isr", property(lambda self: self.proposed_isr)),
        ("sessions", "min-isr"),
    ),
    Mutant(
        "another min.insync.replicas leaves nobody to lead",
        replacing(alter_configs, "clear_elr", empty_every_elr),
        ("min-isr",),
    ),
    Mutant("roles are taken up before settings", patch_settings, interleaving=higher_minimum),
    Mutant(
        "who leads no more commits by a lower minimum",
        replacing(MetadataDeltaApplier, "_awaits_role", lambda *_: False),
        interleaving=lower_minimum,
    ),
    Mutant("unclean elections", replacing(partition_change.PartitionRules, "goal", unclean_goal), ("few-alive",)),
)


class Caught(NamedTuple):
    """How many runs it took to find a bug, the last one's scenario and seed, and what it found."""

    runs: int
    scenario: str
    seed: int
    failure: str


def first_to_catch(mutant: Mutant, runs: Iterable[tuple[str, int]]) -> Caught | None:
    """The first of the runs, each a scenario and a seed, that finds the bug."""
    if mutant.interleaving is not None:
        broken = mutant.interleaving()
        return None if broken is None else Caught(1, "", 0, broken)
    for count, (scenario, seed) in enumerate(runs, 1):
        failure = Run(SCENARIOS[scenario], seed).execute().failure
        if failure is not None:
            if any(text in failure for text in ("TypeError", "AttributeError", "positional argument")):
                raise ValueError(f"the patch does not fit the code: {failure}")
            return Caught(count, scenario, seed, failure)
    return None


def runs_to_try(mutant: Mutant, remembered: tuple[str, int] | None = None) -> Iterator[tuple[str, int]]:
    """A remembered run first, then every seed with each of the mutant's scenarios.

    A bug that none of them shows goes unnoticed.
    """
    if remembered is not None:
        yield remembered
    yield from ((scenario, seed) for seed in range(200) for scenario in mutant.scenarios)


def remembered_runs() -> dict[str, tuple[str, int]]:
    """By the name of a mutant, the scenario and seed that showed it when it was last looked for."""
    rows = (line.split(maxsplit=2) for line in MUTANT_SEEDS.read_text(encoding="utf-8").splitlines())
    return {name: (scenario, int(seed)) for scenario, seed, name in rows}
