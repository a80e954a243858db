"""Scenarios by name, and one run of a scenario with one seed: start, load, faults, heal, judge.

A partition's records are durable by replication, not by fsync. So a scenario may kill processes as it likes, since
their hosts keep the page cache; but the power goes out on one host at a time, while all others are in sync, or else the
topic asks for a flush at every append. One host alone may lose power at any time while others stop cleanly ("elr"):
what is committed is on min.insync.replicas nodes, and one that may have lost its tail is not eligible to lead
(KIP-966). A SIGKILL looks like a loss of power to the controller; two of either, at the wrong time, may lose records,
as in Kafka.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...cluster.client.cluster_client import ClusterClient, NewTopic
from ...runtime.loop import TaskSet
from .faults import Fault, FaultKind, Nemesis, draw_faults
from .invariants.quorum_invariants import InvariantBroken
from .kernel.clock import SimClock
from .kernel.event_loop import ProcessLoop, SimulationError
from .kernel.world import World
from .simulated_cluster import LOG_DIR, ClusterConfig, SimCluster
from .workloads.acks_one import PlainLoad
from .workloads.actors import Actor, Runner
from .workloads.administrators import DirMover, LeaderMover, MinIsrMover, PartitionMover, ThrottledMover, TopicChurn
from .workloads.clients import History, SimConsumer, SimProducer, Surroundings, check_history
from .workloads.compacted_topic import SETTINGS as KEYS_SETTINGS
from .workloads.compacted_topic import KeysLoad
from .workloads.consumer_groups import PROTOCOLS, GroupLoad
from .workloads.consumer_groups import SETTINGS as GROUP_SETTINGS
from .workloads.deleted_records import SETTINGS as TRIM_SETTINGS
from .workloads.deleted_records import TrimmedLoad
from .workloads.rolling_upgrade import Upgrader
from .workloads.voter_changes import VoterMover

TOPIC = "t"
CLIENT_HOST = "client"
_START_LIMIT_S = 10.0
_HEAL_LIMIT_S = 30.0
_DRAIN_LIMIT_S = 15.0
_ACK_LIMIT_S = 8.0
"""It takes a second or two; what rests until a session or a request times out takes longer than this."""
_PRODUCERS = 2
_PRODUCE_EVERY_S = (0.02, 0.3)
"""Bounds of a producer's mean pause, drawn evenly by orders of magnitude: some seeds are busy, some nearly idle."""

_PROCESS_FAULTS = (FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE)
_NETWORK_FAULTS = (FaultKind.ISOLATE, FaultKind.CUT, FaultKind.CUT_ONE_WAY, FaultKind.RESET, FaultKind.SLOW_LINK)
_SHAPED_CUTS = (
    FaultKind.BRIDGE,
    FaultKind.RING,
    FaultKind.SPLIT,
    FaultKind.CLIENTS_CUT,
    FaultKind.CUT_OFF,
    FaultKind.RESET,
)
_HALF_OPEN = (FaultKind.LOSE_ENDS, FaultKind.REJECT)
_FIVE_CONTROLLERS = ("c101", "c102", "c103", "c104", "c105")
_SHORT_TIMES = {
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "150",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "150",
}
"""So that replicas fall behind, and brokers are fenced and come back, within one life and several times a run."""
_ALL_NODES = ("n1", "n2", "n3", "n4", "n5", "c101", "c102", "c103")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a run is made of. Times in virtual seconds."""

    name: str
    kinds: Sequence[FaultKind]
    targets: Sequence[str] = ("leader", "controller", "n1", "n2", "n3")
    nodes: int = 3
    partitions: int = 2
    faults_s: float = 6.0
    mean_gap_s: float = 1.0
    mean_duration_s: float = 1.0
    one_at_a_time: bool = False
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    controllers: int = 0
    shapes: Sequence[tuple[int, int]] = ()
    """Numbers of nodes and of controllers to draw from, instead of `nodes` and `controllers`."""
    first_voters: int = 0
    """With it the voters are dynamic, and at first so many of the controllers."""
    actors: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of the nodes."""
    only_at: Mapping[FaultKind, str] = field(default_factory=dict)
    """Faults of these kinds have this target, whatever was drawn."""
    extra_dirs: Sequence[str] = ()
    """Log directories of each node beside the first."""

    def drawn(self, rng: random.Random) -> Scenario:
        """With one of the shapes."""
        if not self.shapes:
            return self
        nodes, controllers = rng.choice(self.shapes)
        return replace(self, nodes=nodes, controllers=controllers)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "leader-crash",
            kinds=(FaultKind.POWER_LOSS,),
            targets=("leader",),
            faults_s=1.0,
            mean_gap_s=0.5,
            mean_duration_s=0.6,
            one_at_a_time=True,
        ),
        Scenario("kill", kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.KILL_ALL)),
        Scenario(
            "chase",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.KILL, FaultKind.PAUSE, FaultKind.RESET),
            targets=("leader", "leader", "controller"),
            mean_gap_s=0.15,
            mean_duration_s=0.1,
            faults_s=4.0,
        ),
        Scenario(
            "failover",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.SLOW_LINK),
            targets=("leader", "leader", "n1", "n2", "n3"),
            mean_gap_s=0.08,
            mean_duration_s=0.2,
            faults_s=3.0,
        ),
        Scenario(
            "few-alive",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.STOP),
            targets=("n1", "n2", "n3"),
            mean_gap_s=0.2,
            mean_duration_s=0.5,
        ),
        Scenario("stop", kinds=(FaultKind.STOP,), mean_gap_s=1.5),
        Scenario("pause", kinds=(FaultKind.PAUSE,), mean_duration_s=2.0),
        Scenario("network", kinds=(*_NETWORK_FAULTS, *_HALF_OPEN), mean_duration_s=1.5),
        Scenario("mixed", kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.SLOW_DISK, FaultKind.KILL_ALL)),
        Scenario(
            "power",
            kinds=(FaultKind.POWER_LOSS, FaultKind.POWER_LOSS, FaultKind.POWER_LOSS_ALL, FaultKind.KILL),
            topic_configs={"flush.messages": "1"},
        ),
        Scenario(
            "disk",
            kinds=(FaultKind.FSYNC_FAILS, FaultKind.DISK_FULL, FaultKind.SLOW_DISK, FaultKind.KILL),
            topic_configs={"flush.messages": "1"},
        ),
        Scenario(
            "lost-disk",
            kinds=(FaultKind.WIPED_DISK, FaultKind.OLD_DISK, FaultKind.KILL, FaultKind.KILL_ALL),
            mean_duration_s=0.5,
        ),
        Scenario(
            "dirs",
            kinds=(FaultKind.DIR_FAILS, FaultKind.DIR_FAILS, FaultKind.WIPED_DIR, FaultKind.KILL, FaultKind.STOP),
            partitions=6,
            actors=("dir moves",),
            extra_dirs=("/disk2", "/disk3"),
        ),
        Scenario(
            "lost-dir",
            kinds=(FaultKind.STOP, FaultKind.STOP, FaultKind.EXCHANGED_DIR),
            targets=("n1", "n2", "n3"),
            controllers=3,
            mean_gap_s=0.3,
            mean_duration_s=0.5,
            only_at={FaultKind.EXCHANGED_DIR: "n1"},
            extra_dirs=("/disk2", "/disk3"),
        ),
        Scenario(
            "sendfile",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.SLOW_DISK),
            targets=("leader", "leader", "n1", "n2", "n3"),
            mean_gap_s=0.3,
            mean_duration_s=0.5,
            actors=("plain",),
            properties={"fetch.sendfile.min.bytes": "1"},
        ),
        Scenario("rot", kinds=(FaultKind.BIT_ROT,), targets=("leader", "n1", "n2", "n3"), one_at_a_time=True),
        Scenario(
            "clocks",
            kinds=(FaultKind.CLOCK_JUMP, FaultKind.CLOCK_DRIFT, FaultKind.KILL, FaultKind.PAUSE),
        ),
        Scenario(
            "roles",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, *_SHAPED_CUTS),
            targets=("leader", "controller", "n1", "n2", "n3", "c101", "c102", "c103"),
            controllers=3,
            mean_gap_s=0.7,
        ),
        Scenario(
            "isolation",
            kinds=(FaultKind.ISOLATE,),
            targets=("controller",),
            faults_s=16.0,
            mean_gap_s=20.0,
            mean_duration_s=30.0,
        ),
        Scenario(
            "cuts",
            kinds=(*_SHAPED_CUTS, *_HALF_OPEN),
            targets=("leader", "controller", "n1", "n2", "n3", "n4", "n5"),
            nodes=5,
            mean_gap_s=1.5,
            mean_duration_s=2.0,
        ),
        Scenario(
            "clients",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.KILL_ALL),
            actors=("plain", "group"),
            properties=GROUP_SETTINGS,
        ),
        Scenario("churn", kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.KILL_ALL), actors=("churn",)),
        Scenario(
            "moves",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS),
            targets=("leader", "controller", "n1", "n2", "n3", "n4", "n5"),
            nodes=5,
            actors=("moves",),
        ),
        Scenario(
            "throttled",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS),
            targets=("leader", "controller", "n1", "n2", "n3", "n4", "n5"),
            nodes=5,
            actors=("throttled moves",),
        ),
        Scenario(
            "elections",
            kinds=(FaultKind.SLOW_LINK, FaultKind.SLOW_LINK, FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT_ONE_WAY),
            targets=("leader", "n1", "n2", "n3"),
            mean_gap_s=0.2,
            mean_duration_s=0.4,
            faults_s=4.0,
            actors=("elections",),
        ),
        Scenario(
            "groups",
            kinds=(FaultKind.SLOW_LINK, FaultKind.ISOLATE, FaultKind.CUT, FaultKind.KILL, FaultKind.KILL),
            targets=("coordinator", "coordinator", "n1", "n2", "n3"),
            mean_gap_s=0.3,
            actors=("group",),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "classic-groups",
            kinds=(FaultKind.SLOW_LINK, FaultKind.ISOLATE, FaultKind.CUT, FaultKind.KILL, FaultKind.KILL),
            targets=("coordinator", "coordinator", "n1", "n2", "n3"),
            mean_gap_s=0.3,
            actors=("classic-group",),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "migrations",
            kinds=(FaultKind.SLOW_LINK, FaultKind.ISOLATE, FaultKind.CUT, FaultKind.KILL, FaultKind.KILL),
            targets=("coordinator", "coordinator", "n1", "n2", "n3"),
            mean_gap_s=0.3,
            actors=("mixed-group",),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "storm",
            kinds=(
                *_PROCESS_FAULTS,
                *_NETWORK_FAULTS,
                *_SHAPED_CUTS,
                *_HALF_OPEN,
                FaultKind.KILL_ALL,
                FaultKind.SLOW_DISK,
                FaultKind.CLOCK_JUMP,
                FaultKind.CLOCK_DRIFT,
            ),
            targets=("leader", "coordinator", "controller", "n1", "n2", "n3"),
            mean_gap_s=0.5,
            actors=("plain", "group", "churn", "elections"),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "shapes",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, *_SHAPED_CUTS, FaultKind.KILL_ALL),
            targets=("leader", "controller", *_ALL_NODES),
            shapes=((1, 0), (2, 0), (4, 0), (1, 1), (2, 1), (3, 1), (4, 3), (5, 3)),
            mean_gap_s=0.5,
        ),
        Scenario(
            "voters",
            kinds=(
                *_PROCESS_FAULTS,
                *_NETWORK_FAULTS,
                FaultKind.POWER_LOSS,
                FaultKind.WIPED_DISK,
                FaultKind.WIPED_DISK,
            ),
            targets=("controller", *_FIVE_CONTROLLERS),
            nodes=1,
            controllers=5,
            first_voters=3,
            mean_gap_s=0.6,
            actors=("voters", "churn"),
        ),
        Scenario(
            "upgrades",
            kinds=(FaultKind.KILL, FaultKind.PAUSE, *_NETWORK_FAULTS),
            targets=("leader", "controller", "n1", "n2", "n3"),
            mean_gap_s=0.8,
            mean_duration_s=0.6,
            actors=("upgrade", "churn"),
        ),
        Scenario(
            "upgrades-apart",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.PAUSE, FaultKind.STOP),
            targets=("leader", "controller", "n1", "n2", "c101", "c102", "c103"),
            nodes=2,
            controllers=3,
            actors=("upgrade",),
        ),
        Scenario(
            "elr",
            kinds=(FaultKind.STOP, FaultKind.STOP, FaultKind.POWER_LOSS),
            targets=("n1", "n2", "n3"),
            mean_gap_s=0.3,
            mean_duration_s=0.5,
            only_at={FaultKind.POWER_LOSS: "n1"},
        ),
        Scenario(
            "sessions",
            kinds=(*_PROCESS_FAULTS, FaultKind.PAUSE, *_NETWORK_FAULTS, *_SHAPED_CUTS, FaultKind.SLOW_DISK),
            mean_gap_s=0.4,
            properties=_SHORT_TIMES,
        ),
        Scenario(
            "min-isr",
            kinds=(FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT, FaultKind.SLOW_LINK, FaultKind.SLOW_LINK),
            targets=("leader", "leader", "n1", "n2", "n3", "c101"),
            controllers=1,
            mean_gap_s=0.2,
            mean_duration_s=0.8,
            actors=("min isr",),
            properties=_SHORT_TIMES,
        ),
        Scenario(
            "trims",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.KILL_ALL),
            mean_gap_s=0.6,
            actors=("trims",),
            properties=TRIM_SETTINGS,
        ),
        Scenario(
            "compaction",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.SLOW_DISK, FaultKind.KILL_ALL),
            targets=("leader", "coordinator", "n1", "n2", "n3"),
            faults_s=14.0,
            mean_gap_s=1.2,
            actors=("keys", "group"),
            properties={**GROUP_SETTINGS, **KEYS_SETTINGS},
        ),
        Scenario(
            "single",
            kinds=(FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE, FaultKind.RESET),
            targets=("n1",),
            nodes=1,
        ),
        Scenario(
            "five",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS),
            targets=("leader", "controller", "n1", "n2", "n3", "n4", "n5"),
            nodes=5,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run. `failure` is None when all held."""

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

    @property
    def broken(self) -> str:
        """The name of the broken invariant, without the details."""
        return (self.failure or "").partition(":")[0]


class Run:
    """One scenario with one seed. `faults` may be given to leave some out."""

    def __init__(self, scenario: Scenario, seed: int, faults: Sequence[Fault] | None = None) -> None:
        self.seed = seed
        self.world = World(seed)
        self.scenario = scenario = scenario.drawn(self.world.rng_for("shape"))
        self.history = History()
        self._tasks = TaskSet()
        self._actors: list[Actor] = []
        config = ClusterConfig(
            scenario.nodes,
            scenario.controllers,
            (CLIENT_HOST,),
            {**self._recovery_points(), **scenario.properties},
            extra_dirs=scenario.extra_dirs,
            is_old=Upgrader.name in scenario.actors,
            first_voters=scenario.first_voters,
        )
        self.cluster = SimCluster(self.world, config)
        self.faults = list(faults) if faults is not None else self._draw()

    def _recovery_points(self) -> dict[str, str]:
        """Where power is lost, mostly so often that losses and truncations meet all their stages."""
        if FaultKind.POWER_LOSS not in self.scenario.kinds:
            return {}
        interval_ms = self.world.rng_for("recovery points").choice((20, 100, 400, 60_000))
        return {
            "log.flush.offset.checkpoint.interval.ms": str(interval_ms),
            "log.flush.offset.checkpoint.min.bytes": "1",
            "log.index.interval.bytes": "200",
        }

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
        return [replace(fault, target=scenario.only_at.get(fault.kind, fault.target)) for fault in faults]

    def execute(self) -> Outcome:
        """Run it to the end. Never raises for what the run found."""
        failure = None
        gc_was_on = gc.isenabled()
        gc.disable()  # so that nothing dies at a time that memory decides
        try:
            with self.world:
                try:
                    self._phases()
                except (InvariantBroken, SimulationError) as error:
                    failure = str(error)
                if self.world.errors:
                    first = self.world.errors[0]
                    failure = str(first.error if isinstance(first.error, InvariantBroken) else first)
                outcome = self._outcome(failure)
        finally:
            if gc_was_on:
                gc.enable()
        return outcome

    def _outcome(self, failure: str | None) -> Outcome:
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
        )

    # -- the phases of a run

    def _phases(self) -> None:
        cluster, world = self.cluster, self.world
        world.scheduler.stop_at_first_error = True
        client = self._start_client()
        cluster.start_all()
        self._until(cluster.whole, _START_LIMIT_S, "the cluster starts", cluster.why_not_whole)
        client.run_until_complete(self._create_topic(), _START_LIMIT_S)
        producers, consumer = self._start_load(client)
        self._inflict()
        self._until_acked("writes go on soon after healing")
        self._until_healed()
        self._until_acked("writes go on after healing")
        for producer in producers:
            producer.stop()
        for actor in self._actors:
            actor.stop()
        self._until(lambda: all(each.finished for each in producers), _DRAIN_LIMIT_S, "all that was sent is acked")
        self._until(cluster.whole, _HEAL_LIMIT_S, "the replicas agree in the end", cluster.why_not_whole)
        self._until(consumer.caught_up, _DRAIN_LIMIT_S, "the consumer reads to the end", consumer.describe)
        check_history(self.history)
        for actor in self._actors:
            settled = lambda actor=actor: actor.why_not_settled() is None  # noqa: E731
            self._until(settled, _HEAL_LIMIT_S, f"{actor.name} comes to rest", actor.why_not_settled)
            actor.check()
        if self._actors:
            self._until(cluster.whole, _HEAL_LIMIT_S, "the replicas agree in the end", cluster.why_not_whole)

    def _until_acked(self, what: str) -> None:
        acked = len(self.history.acked)
        self._until(lambda: len(self.history.acked) > acked, _ACK_LIMIT_S, what)

    def _until_healed(self) -> None:
        whole, why_not = self.cluster.whole_again()
        self._until(whole, _HEAL_LIMIT_S, "the cluster is whole after healing", why_not)

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
        async with ClusterClient(self.cluster.bootstrap, timeout_s=3.0) as client:
            await client.create_topic(topic)

    def _start_load(self, client: ProcessLoop) -> tuple[list[SimProducer], SimConsumer]:
        def given(purpose: str, topic: str = TOPIC, history: History | None = None) -> Surroundings:
            return Surroundings(
                self.cluster.bootstrap,
                topic,
                self.world.rng_for(purpose),
                self.cluster.partitions,
                self.history if history is None else history,
                SimClock(lambda: self.world.now_s).wall_ms,
            )

        low_s, high_s = _PRODUCE_EVERY_S
        pause_s = low_s * (high_s / low_s) ** self.world.rng_for("load").random()
        producers = [SimProducer(given(f"producer {n}"), f"p{n}", pause_s) for n in range(_PRODUCERS)]
        consumer = SimConsumer(given("consumer"))
        cluster = self.cluster
        made: dict[str, Callable[[], Actor]] = {
            "min isr": lambda: MinIsrMover(given("min isr")),
            "keys": lambda: KeysLoad(given("keys", "keys", History())),
            "trims": lambda: TrimmedLoad(given("trims", "trimmed", History())),
            "plain": lambda: PlainLoad(given("plain", "plain", History())),
            "group": lambda: GroupLoad(given("group", TOPIC, History()), self.history),
            "classic-group": lambda: GroupLoad(given("group", TOPIC, History()), self.history, ("classic",)),
            "mixed-group": lambda: GroupLoad(given("group", TOPIC, History()), self.history, PROTOCOLS),
            "churn": lambda: TopicChurn(given("churn", "churn"), lambda: cluster.views_of("churn")),
            "elections": lambda: LeaderMover(given("elections"), cluster.brokers),
            "upgrade": lambda: Upgrader(given("upgrade"), cluster),
            "voters": lambda: VoterMover(given("voters"), cluster.controllers, cluster.why_not_all_vote),
            "dir moves": lambda: DirMover(given("dir moves"), cluster.brokers, (LOG_DIR, *cluster.extra_dirs)),
            "moves": lambda: PartitionMover(given("moves"), cluster.brokers, cluster.why_moving),
            "throttled moves": lambda: ThrottledMover(given("throttled moves"), cluster.brokers, cluster.why_moving),
        }
        self._actors = [made[name]() for name in self.scenario.actors]
        runners: list[Runner] = [*producers, consumer, *self._actors]
        for each in runners:
            client.call_soon(self._tasks.spawn, each.run(), each.name)
        return producers, consumer

    def _inflict(self) -> None:
        world, cluster = self.world, self.cluster
        start_s = world.now_s
        if self.scenario.one_at_a_time:
            world.scheduler.run_for(self.faults[0].at_s if self.faults else 0.0)
            for fault in self.faults:
                nemesis = Nemesis(cluster, [replace(fault, at_s=world.now_s)])
                nemesis.run(world.now_s + fault.duration_s)
                nemesis.end_all()
                self._until_healed()
            return
        nemesis = Nemesis(cluster, [replace(fault, at_s=fault.at_s + start_s) for fault in self.faults])
        nemesis.run(start_s + self.scenario.faults_s)
        nemesis.end_all()
        if nemesis.has_broken_dirs:
            whole, why_not = cluster.whole_again()
            self._until(whole, _HEAL_LIMIT_S, "all that is sound is in use", why_not)
            acked = len(self.history.acked)
            self._until(lambda: len(self.history.acked) > acked, _DRAIN_LIMIT_S, "writes go on beside a failed disk")
            nemesis.mend_dirs()
