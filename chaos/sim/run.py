"""One run of a scenario with one seed: start, load, faults, heal, judge."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from ...broker.groups.group_config import OFFSETS_TOPIC
from ...broker.transactions.transaction_config import TRANSACTION_TOPIC
from ...cluster.client.admin_client import AdminClient, NewTopic
from ...cluster.client.cluster_client import ClusterClient
from ...runtime.invariants import recording
from ...runtime.loop import TaskSet
from .cluster_config import ClusterConfig
from .faults.fault import Fault, FaultKind
from .faults.fault_drawing import draw_faults
from .faults.nemesis import Nemesis
from .faults.target_cluster import LOG_DIR
from .invariants.client_invariants import History, check_history
from .invariants.invariant_broken import InvariantBroken
from .kernel.clock import SimClock
from .kernel.drawn_constants import DRAWN, frequent_log_end_notes, small_snapshot_batches
from .kernel.event_loop import ProcessLoop, SimulationError
from .kernel.world import World
from .scenario import Scenario
from .simulated_cluster import SimulatedCluster
from .workloads.access.access_changes import AccessChanges
from .workloads.access.login_settings import allows_without_acl
from .workloads.acks_one import AcksOneLoad
from .workloads.alike_partitions import AlikePartitions
from .workloads.clients import ClientContext, IdempotentProducer, TopicConsumer
from .workloads.compacted_topic import CompactedTopicLoad
from .workloads.deletion.deleted_records import DeletedRecordsLoad
from .workloads.deletion.retained_topic import RetainedTopicLoad
from .workloads.fetching.nearby_consumers import NearbyConsumers
from .workloads.groups.administered_groups import AdministeredGroups
from .workloads.groups.careless_group import CarelessGroup
from .workloads.groups.changing_subscriptions import ChangingSubscriptions
from .workloads.groups.consumer_groups import PROTOCOLS, GroupLoad
from .workloads.groups.hasty_group import HastyGroup
from .workloads.groups.offset_register import OffsetRegister
from .workloads.groups.quiet_group import QuietGroup
from .workloads.groups.slow_rebalances import SlowRebalances
from .workloads.offset_lookups import EpochLookups, OffsetLookups, TimeLookups
from .workloads.partition_changes import (
    CancelledReassignments,
    LogDirMoves,
    MinIsrChanges,
    PreferredLeaderChanges,
    Reassignments,
    ThrottledReassignments,
    TransactionMoves,
)
from .workloads.producers.passing_producers import PassingProducersLoad
from .workloads.producers.pipelined_producers import PipelinedProducersLoad
from .workloads.producers.silent_producers import SilentProducersLoad
from .workloads.producers.wrapping_producers import WrappingProducer
from .workloads.quota_changes import QuotaChanges
from .workloads.registration_changes import RegistrationChanges
from .workloads.rolling_upgrade import RollingUpgrade
from .workloads.settings.changing_topic import ChangingTopicLoad, KeptKeysLoad
from .workloads.topic_changes import WIDE, TopicChanges
from .workloads.transactions.contested_transactions import ContestedTransactions
from .workloads.transactions.grouped_processors import GroupedProcessors
from .workloads.transactions.keyed_transactions import KeyedTransactions
from .workloads.transactions.mixed_commits import MixedCommits
from .workloads.transactions.read_process_write import ReadProcessWrite
from .workloads.transactions.transaction_administrator import TransactionAdministrator
from .workloads.transactions.transaction_version_changes import TransactionVersionChanges
from .workloads.transactions.transactional_producer import ClientStyle
from .workloads.transactions.transactional_writers import TransactionalWriters
from .workloads.transactions.transactions_of_passing_topics import TransactionsOfPassingTopics
from .workloads.transactions.two_phase_writers import TwoPhaseWriters
from .workloads.unclean_topic import UncleanTopicLoad
from .workloads.voter_changes import VoterChanges
from .workloads.workload import ClientTask, Workload

TOPIC = "t"
CLIENT_HOST = "client"
_START_LIMIT_S = 10.0
_HEAL_LIMIT_S = 30.0
_REST_LIMIT_S = 45.0
"""A leader that does not know a producer refuses it for 30 s, and preferred leaders are elected some seconds later."""
_DRAIN_LIMIT_S = 15.0
_ACK_LIMIT_S = 8.0
"""Writes resume within a second or two. A wait for a session's or a request's time-out would take longer than this."""
_LOSING_POWER = (FaultKind.POWER_LOSS, FaultKind.POWER_LOSS_AT_OPERATION, FaultKind.LYING_DISK)
_ASSIGNED = "churn of assigned partitions"
_PRODUCERS = 2
_PRODUCE_EVERY_S = (0.02, 0.3)
"""Bounds of a producer's mean pause. It is drawn on a logarithmic scale: some seeds are busy, some almost idle."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. `failure` is None if no invariant was broken."""

    scenario: str
    seed: int
    digest: str
    failure: str | None
    timeline: tuple[str, ...]
    faults: tuple[str, ...]
    virtual_s: float
    events: int
    acked: int
    longest_ack_gap_s: float
    seen: tuple[str, ...]
    """The statements of what happens sometimes that the run confirmed."""

    @property
    def broken(self) -> str:
        """The name of the broken invariant; empty if there is none."""
        return (self.failure or "").partition(":")[0]


class Run:
    """A run of one scenario with one seed. `faults` replaces the faults that the seed would draw."""

    def __init__(self, scenario: Scenario, seed: int, faults: Sequence[Fault] | None = None) -> None:
        self.seed = seed
        self.world = World(seed)
        self.scenario = scenario = scenario.with_draws(self.world.rng_for("shape"))
        self.history = History()
        self._tasks = TaskSet()
        self._workloads: list[Workload] = []
        config = ClusterConfig(
            scenario.nodes,
            scenario.controllers,
            (CLIENT_HOST,),
            {**self._recovery_points(), **self._without_acl(), **scenario.properties},
            extra_log_dirs=scenario.extra_log_dirs,
            is_old=RollingUpgrade.name in scenario.workloads,
            first_voters=scenario.first_voters,
            has_logins=AccessChanges.name in scenario.workloads,
            racks=[*scenario.racks[0]] if scenario.racks else (),
            may_choose_replicas=any(name in scenario.workloads for name in (_ASSIGNED, AlikePartitions.name)),
        )
        self.cluster = SimulatedCluster(self.world, config)
        self.faults = list(faults) if faults is not None else self._draw()

    def _recovery_points(self) -> dict[str, str]:
        """For losses of power: recovery points are often so frequent that a loss meets each of their steps."""
        if not any(kind in self.scenario.kinds for kind in _LOSING_POWER):
            return {}
        interval_ms = self.world.rng_for("recovery points").choice((20, 100, 400, 60_000))
        return {
            "log.flush.offset.checkpoint.interval.ms": str(interval_ms),
            "log.flush.offset.checkpoint.min.bytes": "1",
            "log.index.interval.bytes": "200",
        }

    @contextmanager
    def _drawn_constants(self) -> Iterator[None]:
        """What the scenario names; and metadata snapshots that are often made may have many batches.

        Where snapshots are often made, voters may also often note how far their logs reach.
        """
        with ExitStack() as drawn:
            if self.scenario.has_many_snapshots:
                drawn.enter_context(small_snapshot_batches(self.world.rng_for("snapshot batches")))
                drawn.enter_context(frequent_log_end_notes(self.world.rng_for("log end notes")))
            for name in self.scenario.constants:
                drawn.enter_context(DRAWN[name](self.world.rng_for(name)))
            yield

    def _without_acl(self) -> dict[str, str]:
        """With an authorizer: what holds for resources without an access control list."""
        if AccessChanges.name not in self.scenario.workloads:
            return {}
        allows = allows_without_acl(self.world.rng_for("without acl"))
        return {"allow.everyone.if.no.acl.found": "true" if allows else "false"}

    def _draw(self) -> list[Fault]:
        scenario = self.scenario
        faults = draw_faults(
            self.world.rng_for("faults"),
            scenario.kinds,
            scenario.targets,
            start_s=0.3,
            end_s=scenario.faults_s,
            mean_gap_s=scenario.mean_gap_s,
            mean_duration_s=scenario.mean_duration_s,
        )
        return [replace(fault, target=scenario.fixed_targets.get(fault.kind, fault.target)) for fault in faults]

    def execute(self) -> Outcome:
        """Run to the end. A broken invariant or another error is in the outcome; it is not raised."""
        failure = None
        gc_was_on = gc.isenabled()
        gc.disable()  # so that memory use does not decide when objects are finalized
        try:
            with self.world, self._drawn_constants(), self.cluster.lone_decisions.watching(), recording() as seen:
                try:
                    self._phases()
                except (InvariantBroken, SimulationError) as error:
                    failure = str(error)
                except Exception as error:  # such as a check that what it read did not allow for
                    failure = f"{type(error).__name__} in a check or a workload: {error}"
                    for line in traceback.format_exc().splitlines():
                        self.world.trace.note("simulator", line)
                if self.world.errors:
                    first = self.world.errors[0]
                    failure = str(first.error if isinstance(first.error, InvariantBroken) else first)
                outcome = self._outcome(failure, tuple(sorted(seen)))
        finally:
            if gc_was_on:
                gc.enable()
        return outcome

    def _outcome(self, failure: str | None, seen: tuple[str, ...]) -> Outcome:
        return Outcome(
            scenario=self.scenario.name,
            seed=self.seed,
            digest=self.world.trace.digest(),
            failure=failure,
            timeline=tuple(self.world.trace.timeline(400)),
            faults=tuple(str(fault) for fault in self.faults),
            virtual_s=self.world.now_s,
            events=self.world.scheduler.events_run,
            acked=len(self.history.acked),
            longest_ack_gap_s=self.history.longest_ack_gap_s,
            seen=seen,
        )

    # -- the phases of a run

    def _phases(self) -> None:
        cluster, world = self.cluster, self.world
        world.scheduler.stop_at_first_error = True
        client = self._start_client()
        cluster.start_all()
        self._until(cluster.is_healthy, _START_LIMIT_S, "the cluster starts", cluster.why_not_healthy)
        client.run_until_complete(self._create_topic(), _START_LIMIT_S)
        producers, consumer = self._start_load(client)
        self._run_faults()
        self._until_acked("writes go on soon after healing")
        self._until_healed()
        self._until_acked("writes go on after healing")
        for producer in producers:
            producer.stop()
        for actor in self._workloads:
            actor.stop()
        self._until(lambda: all(each.finished for each in producers), _DRAIN_LIMIT_S, "all that was sent is acked")
        self._until(cluster.is_healthy, _HEAL_LIMIT_S, "the replicas agree in the end", cluster.why_not_healthy)
        self._until(consumer.caught_up, _DRAIN_LIMIT_S, "the consumer reads to the end", consumer.describe)
        check_history(self.history)
        for actor in self._workloads:
            settled = lambda actor=actor: actor.why_not_settled() is None  # noqa: E731
            self._until(settled, _REST_LIMIT_S, f"{actor.name} comes to rest", actor.why_not_settled)
            actor.check()
        if self._workloads:
            self._until(cluster.is_healthy, _HEAL_LIMIT_S, "the replicas agree in the end", cluster.why_not_healthy)
            what = "no transaction stays open in the end"
            self._until(
                lambda: cluster.why_transactions_open() is None, _REST_LIMIT_S, what, cluster.why_transactions_open
            )
        cluster.partitions.check_whole_logs()
        cluster.check_metadata_in_force()

    def _until_acked(self, what: str) -> None:
        acked = len(self.history.acked)
        self._until(lambda: len(self.history.acked) > acked, _ACK_LIMIT_S, what)

    def _until_healed(self) -> None:
        is_healthy, why_not = self.cluster.healthy_again()
        self._until(is_healthy, _HEAL_LIMIT_S, "the cluster is whole after healing", why_not)

    def _until(
        self, condition: Callable[[], bool], limit_s: float, what: str, why_not: Callable[[], str | None] | None = None
    ) -> None:
        if not self.world.scheduler.run_until(condition, limit_s):
            reason = why_not() if why_not is not None else None
            raise InvariantBroken(what, f"not within {limit_s:g} s: {reason or 'it does not'}")

    def _start_client(self) -> ProcessLoop:
        self.world.network.add_host(CLIENT_HOST)
        process = ProcessLoop(self.world.scheduler, CLIENT_HOST, self.world.network)
        self.world.processes.append(process)
        return process

    async def _create_topic(self) -> None:
        scenario = self.scenario
        topic = NewTopic(TOPIC, scenario.partitions, -1, dict(scenario.topic_configs))
        async with ClusterClient(self.cluster.bootstrap, timeout_s=3.0, probe_timeout_s=None) as client:
            await AdminClient(client).create_topic(topic)

    def _context(self, purpose: str, topic: str = TOPIC, history: History | None = None) -> ClientContext:
        return ClientContext(
            self.cluster.bootstrap,
            topic,
            self.world.rng_for(purpose),
            self.cluster.partitions,
            self.history if history is None else history,
            SimClock(lambda: self.world.now_s).wall_ms,
        )

    def _start_load(self, client: ProcessLoop) -> tuple[list[IdempotentProducer], TopicConsumer]:
        context = self._context
        low_s, high_s = _PRODUCE_EVERY_S
        pause_s = low_s * (high_s / low_s) ** self.world.rng_for("load").random()
        producers = [IdempotentProducer(context(f"producer {n}"), f"p{n}", pause_s) for n in range(_PRODUCERS)]
        consumer = TopicConsumer(context("consumer"))
        made = self._transactional_workloads() | self._group_workloads() | self._other_workloads()
        self._workloads = [made[name]() for name in self.scenario.workloads]
        runners: list[ClientTask] = [*producers, consumer, *self._workloads]
        for each in runners:
            client.call_soon(self._tasks.spawn, each.run(), each.name)
        return producers, consumer

    def _transactional_workloads(self) -> dict[str, Callable[[], Workload]]:
        """How each of them is made, by name."""
        context, versions = self._context, self.world.rng_for("transaction version")
        any_style = lambda: ClientStyle(versions.choice((1, 2)))  # noqa: E731 (old clients meet new brokers)
        changing_style = lambda: ClientStyle(versions.choice((None, None, None, 1, 2)))  # noqa: E731
        repeating_style = lambda: ClientStyle(  # noqa: E731
            versions.choice((1, 2)), is_careless=versions.random() < 0.3, repeats_itself=True
        )
        transactions = context("transactions", "transactions", History())
        effects, processor = context("read-process-write", "effects", History()), context("processor", TOPIC, History())
        return {
            "transactions": lambda: TransactionalWriters(transactions, any_style),
            "late transactions": lambda: TransactionalWriters(transactions, lambda: ClientStyle(2, is_impatient=True)),
            "careless transactions": lambda: TransactionalWriters(
                transactions, lambda: ClientStyle(versions.choice((1, 2)), is_careless=True)
            ),
            "expiring transactions": lambda: TransactionalWriters(
                transactions,
                lambda: ClientStyle(versions.choice((1, 2)), is_careless=versions.random() < 0.5, is_often_idle=True),
                ids_expire=True,
            ),
            "repeated transactions": lambda: TransactionalWriters(transactions, repeating_style),
            "repeated read-process-write": lambda: ReadProcessWrite(effects, processor, repeating_style),
            TransactionAdministrator.name: lambda: TransactionAdministrator(
                context("transaction administrator", "transactions", History())
            ),
            ContestedTransactions.name: lambda: ContestedTransactions(
                context("contested transactions", "contested", History()), any_style
            ),
            KeyedTransactions.name: lambda: KeyedTransactions(context("keyed", "keyed", History()), any_style),
            "mixed commits": lambda: MixedCommits(context("mixed commits")),
            "late old transactions": lambda: TransactionalWriters(
                transactions, lambda: ClientStyle(1, is_impatient=True)
            ),
            "late old batches": lambda: TransactionalWriters(
                transactions, lambda: ClientStyle(1, is_impatient_with_leaders=True)
            ),
            "transactions of changing versions": lambda: TransactionalWriters(transactions, changing_style),
            "transaction versions": lambda: TransactionVersionChanges(context("transaction versions")),
            "read-process-write": lambda: ReadProcessWrite(effects, processor, any_style),
            "read-process-write by any broker": lambda: ReadProcessWrite(
                effects, processor, lambda: ClientStyle(versions.choice((1, 2)), asks_any_broker=True)
            ),
            "two-phase commits": lambda: TwoPhaseWriters(context("two-phase commits", "prepared", History())),
            "grouped processors": lambda: GroupedProcessors(effects, processor),
            "read-process-write of changing versions": lambda: ReadProcessWrite(effects, processor, changing_style),
            "transactions of passing topics": lambda: TransactionsOfPassingTopics(
                context("passing topics", "lasting", History()),
                lambda: ClientStyle(versions.choice((1, 2)), is_easily_put_off=True),
            ),
        }

    def _group_workloads(self) -> dict[str, Callable[[], Workload]]:
        """How those of groups are made, by name."""
        context = self._context
        return {
            "group": lambda: GroupLoad(context("group", TOPIC, History()), self.history),
            "classic-group": lambda: GroupLoad(context("group", TOPIC, History()), self.history, ("classic",)),
            "mixed-group": lambda: GroupLoad(context("group", TOPIC, History()), self.history, PROTOCOLS),
            "hasty group": lambda: HastyGroup(context("hasty group")),
            ChangingSubscriptions.name: lambda: ChangingSubscriptions(context("changing subscriptions")),
            AdministeredGroups.name: lambda: AdministeredGroups(
                context("administered groups"), self.cluster.jump_clocks
            ),
            SlowRebalances.name: lambda: SlowRebalances(context(SlowRebalances.name)),
            CarelessGroup.name: lambda: CarelessGroup(context("careless group")),
            "offset register": lambda: OffsetRegister(context("offset register")),
            "group that commits behind": lambda: GroupLoad(
                context("group", TOPIC, History()),
                self.history,
                self.world.rng_for("protocols").choice((("consumer",), ("classic",), PROTOCOLS)),
                commits_behind=True,
            ),
            "static group": lambda: GroupLoad(
                context("group", TOPIC, History()),
                self.history,
                self.world.rng_for("protocols").choice((("consumer",), *(("classic",),) * 2, PROTOCOLS)),
                commits_behind=self.world.rng_for("commits behind").random() < 0.5,
                has_static_members=True,
            ),
        }

    def _other_workloads(self) -> dict[str, Callable[[], Workload]]:
        """How each of them is made, by name."""
        context, cluster = self._context, self.cluster
        return {
            "min isr": lambda: MinIsrChanges(context("min isr")),
            "keys": lambda: CompactedTopicLoad(context("keys", "keys", History())),
            "trims of many keys": lambda: DeletedRecordsLoad(
                context("trims of many keys", "trimmed", History()), is_compacted=True
            ),
            "trims": lambda: DeletedRecordsLoad(context("trims", "trimmed", History())),
            "retained": lambda: RetainedTopicLoad(context("retained", "retained", History())),
            **self._producer_workloads(),
            "plain": lambda: AcksOneLoad(context("plain", "plain", History())),
            "unclean": lambda: UncleanTopicLoad(context("unclean", "unclean", History())),
            "churn": lambda: TopicChanges(context("churn", "churn"), lambda: cluster.topic_views("churn")),
            "wide churn": lambda: TopicChanges(
                context("churn", "churn"), lambda: cluster.topic_views("churn"), sizes=WIDE
            ),
            "nearby consumers": lambda: NearbyConsumers(
                context("nearby consumers"), (TOPIC, "transactions"), cluster.config.racks
            ),
            "churn of another min ISR": lambda: TopicChanges(
                context("churn", "churn"), lambda: cluster.topic_views("churn"), (None, "3")
            ),
            _ASSIGNED: lambda: TopicChanges(
                context("churn", "churn"), lambda: cluster.topic_views("churn"), assigned_to=cluster.brokers
            ),
            "elections": lambda: PreferredLeaderChanges(context("elections"), cluster.brokers),
            "elections to and fro": lambda: PreferredLeaderChanges(
                context("elections"), cluster.brokers, to_and_fro=True
            ),
            "elections for keys": lambda: PreferredLeaderChanges(
                context("elections for keys", "keys"), cluster.brokers
            ),
            "coordinator elections": lambda: PreferredLeaderChanges(
                context("coordinator elections", TRANSACTION_TOPIC), cluster.brokers
            ),
            "group coordinator elections": lambda: PreferredLeaderChanges(
                context("group coordinator elections", OFFSETS_TOPIC), cluster.brokers
            ),
            AccessChanges.name: lambda: AccessChanges(
                context("access"), cluster, without_acl=allows_without_acl(self.world.rng_for("without acl"))
            ),
            QuietGroup.name: lambda: QuietGroup(context("quiet group"), cluster.jump_clocks),
            "quotas": lambda: QuotaChanges(context("quotas")),
            "upgrade": lambda: RollingUpgrade(context("upgrade"), cluster),
            "offset lookups": lambda: OffsetLookups(context("offset lookups")),
            "epoch lookups": lambda: EpochLookups(context("epoch lookups")),
            "epoch lookups of trims": lambda: EpochLookups(context("epoch lookups of trims", "trimmed")),
            **self._settings_workloads(),
            "unregistrations": lambda: RegistrationChanges(context("unregistrations"), cluster.brokers),
            "voters": lambda: VoterChanges(context("voters"), cluster),
            "hasty voters": lambda: VoterChanges(context("voters"), cluster, is_hasty=True),
            "dir moves": lambda: LogDirMoves(context("dir moves"), cluster.brokers, (LOG_DIR, *cluster.extra_log_dirs)),
            "moves": lambda: Reassignments(context("moves"), cluster.brokers, cluster.why_reassigning),
            "moves of transactions": lambda: TransactionMoves(
                context("moves", "transactions"), cluster.brokers, cluster.why_reassigning
            ),
            AlikePartitions.name: lambda: AlikePartitions(
                context("alike partitions", "alike"), cluster.brokers, cluster.why_reassigning
            ),
            "cancelled moves": lambda: CancelledReassignments(
                context("moves"), cluster.brokers, cluster.why_reassigning
            ),
            "throttled moves": lambda: ThrottledReassignments(
                context("throttled moves"), cluster.brokers, cluster.why_reassigning
            ),
        }

    def _producer_workloads(self) -> dict[str, Callable[[], Workload]]:
        """How those of idempotent producers are made, by name."""
        context, cluster = self._context, self.cluster
        return {
            "pipelined producers": lambda: PipelinedProducersLoad(context("pipelined", "pipelined", History())),
            "passing producers": lambda: PassingProducersLoad(context("passing", "passing", History())),
            "wrapping producers": lambda: PassingProducersLoad(
                context("wrapping", "wrapping", History()), WrappingProducer
            ),
            "elections for wrapping producers": lambda: PreferredLeaderChanges(
                context("elections for wrapping producers", "wrapping"), cluster.brokers
            ),
            "silent producers": lambda: SilentProducersLoad(context("silent", "silent", History())),
            "elections for pipelined producers": lambda: PreferredLeaderChanges(
                context("elections for pipelined producers", "pipelined"), cluster.brokers
            ),
        }

    def _settings_workloads(self) -> dict[str, Callable[[], Workload]]:
        """How those of topics with settings of their own are made, by name."""
        context, cluster, checker = self._context, self.cluster, self.cluster.topic_settings
        return {
            "changing topic": lambda: ChangingTopicLoad(context("changing topic", "changing", History()), checker),
            "kept keys": lambda: KeptKeysLoad(context("kept keys", "kept", History()), checker),
            "time lookups": lambda: TimeLookups(context("time lookups", "changing"), checker),
            "elections of a changing topic": lambda: PreferredLeaderChanges(
                context("elections of a changing topic", "changing"), cluster.brokers, to_and_fro=True
            ),
            "lookups of new times": lambda: TimeLookups(context("new times", "changing"), checker, of_newest=True),
            "time lookups of kept keys": lambda: TimeLookups(context("time lookups", "kept"), checker),
        }

    def _run_faults(self) -> None:
        world, cluster = self.world, self.cluster
        start_s = world.now_s
        if self.scenario.one_at_a_time:
            world.scheduler.run_for(self.faults[0].at_s if self.faults else 0.0)
            for fault in self.faults:
                nemesis = Nemesis(cluster, [replace(fault, at_s=world.now_s)])
                nemesis.run(world.now_s + fault.duration_s)
                nemesis.heal_all()
                self._until_healed()
            return
        nemesis = Nemesis(cluster, [replace(fault, at_s=fault.at_s + start_s) for fault in self.faults])
        nemesis.run(start_s + self.scenario.faults_s)
        nemesis.heal_all()
        if nemesis.has_failed_dirs:
            is_healthy, why_not = cluster.healthy_again()
            self._until(is_healthy, _HEAL_LIMIT_S, "all that is sound is in use", why_not)
            acked = len(self.history.acked)
            self._until(lambda: len(self.history.acked) > acked, _DRAIN_LIMIT_S, "writes go on beside a failed disk")
            nemesis.repair_dirs()
