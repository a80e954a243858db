"""A fuzz run: three nodes, a well-behaved client, attackers beside it, and the verdict.

The client runs alone first, which gives the latencies that the later ones are compared with. Then rounds of all chosen
attacks follow until the time is over. At the end every partition and every group coordinator must serve, also after
each node was killed and started again, because some damage shows only when a log is loaded. The client goes on through
the kills, and what was acked is read after them.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from uuid import UUID

from ...cluster.client.admin_client import AdminClient, NewTopic
from ...cluster.client.client_errors import ClientError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.local.layout import ClusterPlan, ClusterShape, plan_cluster
from ...cluster.local.supervisor import LocalNodeError, Supervisor
from . import service_probe
from .attack import Attack, AttackRun, Finding, Target, leave_processors_to_others
from .attack_table import ATTACKS
from .attacker_connection import Endpoint
from .drawn_values import INTERNAL_TOPIC, KnownNames
from .node_watch import FENCED, LOGGED_KINDS, NodeWatch, Trouble, wait_until_quiet
from .sent_requests import SentRequests, read_requests
from .service_probe import LeftOut
from .steady_client import PARTITIONS, TOPIC, SteadyClient, now_ns
from .verdict import AttackResult, FuzzVerdict

FUZZ_TOPICS = {
    "fuzz-plain": {},
    "fuzz-compacted": {"cleanup.policy": "compact"},
    "fuzz-zstd": {"compression.type": "zstd"},
}
_FUZZ_PARTITIONS = 3
_SETTLE_S = 1.0
_IN_SYNC_LIMIT_S = 60.0
_REPLAY_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """The options of a run."""

    directory: str
    minutes: float = 60.0
    attacks: tuple[str, ...] = tuple(ATTACKS)
    seed: int = 1
    alone_s: float = 15.0
    p99_factor: float = 3.0
    p99_floor_ms: float = 50.0
    """Latencies below it are not judged: three nodes and all clients share the machine's processors."""
    rss_limit_mb: float = 600.0
    kills: int = 3

    def __post_init__(self) -> None:
        unknown = [name for name in self.attacks if name not in ATTACKS]
        if unknown:
            raise ValueError(f"there is no attack {', '.join(unknown)}; there are {', '.join(ATTACKS)}")


@dataclass
class FuzzRun:
    """Carries out one run. `say` is called with lines about its progress."""

    options: FuzzOptions
    say: Callable[[str], None]
    findings: dict[str, Finding] = field(default_factory=dict)
    results: dict[str, AttackResult] = field(default_factory=dict)
    windows: list[tuple[str, int, int]] = field(default_factory=list)

    def execute(self) -> FuzzVerdict:
        """Run to the end."""
        options = self.options
        os.makedirs(options.directory)
        with ExitStack() as stack:
            supervisor = stack.enter_context(started_cluster(options.directory))
            bootstrap = supervisor.plan.bootstrap
            target = prepare(supervisor.plan)
            watch = stack.enter_context(NodeWatch(supervisor))
            client = stack.enter_context(SteadyClient(options.directory, bootstrap))
            time.sleep(2.0)
            client.check()
            watch.skip()
            alone = (now_ns(), now_ns() + int(options.alone_s * 1e9))
            time.sleep(options.alone_s)
            self._attack(target, watch)
            self._probe(supervisor, "after the attacks", LeftOut(topics=[TOPIC]))
            self._look(watch, "after the attacks")
            self._kill_and_probe(supervisor, watch)
            self._judge_client(client)
            verdict = client.verdict()
            for kind, count in verdict.findings.counts.items():
                for evidence in verdict.findings.evidence[kind][: min(count, 3)]:
                    self._add("client", kind, evidence.text)
            self._judge_latencies(client, alone)
            found = list(self.findings.values())
            figures = client.latencies(alone)
        limits = {
            "p99_factor": options.p99_factor,
            "p99_floor_ms": options.p99_floor_ms,
            "rss_mb": options.rss_limit_mb,
        }
        return FuzzVerdict(options.seed, limits, figures, list(self.results.values()), found, verdict.totals)

    # -- the attacks

    def _attack(self, target: Target, watch: NodeWatch) -> None:
        sent = SentRequests(os.path.join(self.options.directory, "failures"))
        end = time.monotonic() + self.options.minutes * 60
        for number, attack in enumerate(self._rounds()):
            left_s = end - time.monotonic()
            if left_s <= 0 and number >= len(self.options.attacks):
                break
            seconds = min(attack.slice_s, max(left_s / max(1, len(self.options.attacks) - number), 2.0))
            rng = random.Random(f"{self.options.seed} {attack.name} {number // len(self.options.attacks)}")
            sent.clear()
            deadline = time.monotonic() + seconds
            self._run_one(attack, AttackRun(attack.name, target, rng, watch, sent, deadline, self.options.seed))

    def _rounds(self) -> Iterator[Attack]:
        while True:
            yield from (ATTACKS[name] for name in self.options.attacks)

    def _run_one(self, attack: Attack, run: AttackRun) -> None:
        run.watch.begin()
        start_ns = now_ns()
        with ThreadPoolExecutor(1, initializer=leave_processors_to_others) as thread:
            thread.submit(attack.run, run).result()
        for trouble in wait_until_quiet(run.watch, _SETTLE_S):
            run.trouble(trouble)
        end_ns = now_ns()
        self.windows.append((attack.name, start_ns, end_ns))
        result = self.results.setdefault(attack.name, AttackResult(attack.name))
        result.seconds += (end_ns - start_ns) / 1e9
        for name, count in run.outcomes.items():
            result.outcomes[name] = result.outcomes.get(name, 0) + count
        peaks = run.watch.figures.rss_peak_mb
        result.rss_peak_mb = max(result.rss_peak_mb, *peaks.values(), 0.0)
        result.log_lines += sum(run.watch.figures.log_lines.values())
        if result.rss_peak_mb > self.options.rss_limit_mb:
            text = f"a node took {result.rss_peak_mb:.0f} MB, at most {self.options.rss_limit_mb:.0f} are allowed"
            run.trouble(Trouble("memory", "memory", text))
        for key, finding in run.findings.items():
            shared = finding.kind in LOGGED_KINDS
            self.findings.setdefault(key if shared else f"{attack.name} {key}", finding)
        self.say(f"{attack.name}: {dict(run.outcomes)}, {len(run.findings)} findings, peak {result.rss_peak_mb:.0f} MB")

    # -- what must hold afterwards

    def _probe(self, supervisor: Supervisor, when: str, left_out: LeftOut) -> None:
        bootstrap = supervisor.plan.bootstrap
        rng = random.Random(self.options.seed)
        probes = {
            "quorum-not-serving": service_probe.refused_new_topic(bootstrap, f"probe-{len(self.findings)}"),
            "stuck": service_probe.stuck_partitions(bootstrap, rng, left_out),
            "group-not-served": service_probe.unserved_groups(bootstrap, TOPIC),
            "unreadable": service_probe.unreadable_partitions(bootstrap, list(FUZZ_TOPICS), left_out),
        }
        found: dict[str, int] = {}
        for kind, probe in probes.items():
            try:
                places = asyncio.run(probe)
            except (ClientError, OSError) as error:
                places = [str(error)]
            found[kind] = len(places)
            if places:
                self._add(when, kind, f"{len(places)}, for example {'; '.join(places[:3])}")
        self.say(f"{when}: {', '.join(f'{kind} {count}' for kind, count in found.items())}")

    def _look(self, watch: NodeWatch, when: str, *expected: str) -> None:
        """Add the troubles of the nodes since the last look, but for those of `expected` kinds."""
        for trouble in wait_until_quiet(watch, _SETTLE_S):
            if trouble.kind not in expected:
                shared = trouble.kind in LOGGED_KINDS
                self._add(when, trouble.kind, trouble.text, trouble.key if shared else f"{when} {trouble.key}")

    def _kill_and_probe(self, supervisor: Supervisor, watch: NodeWatch) -> None:
        for node in supervisor.plan.nodes[: self.options.kills]:
            supervisor.kill(node.node_id)
            self._probe(supervisor, f"while node {node.node_id} is killed", LeftOut([TOPIC], [node.node_id]))
            try:
                supervisor.restart_node(node.node_id)
            except LocalNodeError as error:
                self._add("restart", "node-ended", str(error))
            else:
                topics, bootstrap = [TOPIC, INTERNAL_TOPIC], supervisor.plan.bootstrap
                if not asyncio.run(service_probe.in_sync_within(bootstrap, topics, 3, _IN_SYNC_LIMIT_S)):
                    self._add("restart", "not-in-sync", f"after the restart of node {node.node_id}")
            self._look(watch, "restart", FENCED)  # as a node is that was killed

    def _judge_client(self, client: SteadyClient) -> None:
        for text in client.stop():
            self._add("client", "client", text)

    def _judge_latencies(self, client: SteadyClient, alone: tuple[int, int]) -> None:
        options = self.options
        if not client.latencies(alone).acked:
            raise ClientError("nothing was acked while the client ran alone: there is nothing to compare with")
        limit_ms = max(client.latencies(alone).p99_ms * options.p99_factor, options.p99_floor_ms)
        for name, result in self.results.items():
            windows = [(start, end) for other, start, end in self.windows if other == name]
            result.latencies = latencies = client.latencies(*windows)
            if not latencies.acked or latencies.p99_ms > limit_ms:
                text = f"the client's p99 is {latencies.p99_ms:.0f} ms, at most {limit_ms:.0f} ms are allowed"
                self._add(name, "latency", text)

    def _add(self, attack: str, kind: str, text: str, key: str | None = None) -> None:
        options = self.options
        chosen = attack if attack in ATTACKS else ",".join(options.attacks)
        replay = f"python -m raftwerk.chaos.fuzz run --attacks {chosen} --seed {options.seed}"
        self.findings.setdefault(key or f"{attack} {kind} {text[:40]}", Finding(attack, kind, text, replay))


def started_cluster(directory: str) -> Supervisor:
    """Three nodes on loopback; raises `LocalNodeError` when they do not start."""
    plan = plan_cluster(os.path.join(directory, "nodes"), ClusterShape(brokers=3, port=0))
    supervisor = Supervisor(plan)
    supervisor.start(60.0)
    return supervisor


def prepare(plan: ClusterPlan) -> Target:
    """Create the topics, wait until groups are served, and describe the cluster for the attacks."""

    async def create() -> dict[str, UUID]:
        async with ClusterClient(plan.bootstrap) as client:
            admin = AdminClient(client)
            await admin.create_topic(NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"}))
            for name, configs in FUZZ_TOPICS.items():
                await admin.create_topic(NewTopic(name, _FUZZ_PARTITIONS, 3, configs))
            view = await client.metadata(list(FUZZ_TOPICS))
        return {topic.name: topic.topic_id for topic in view.topics if topic.topic_id is not None}

    ids = asyncio.run(create())
    unserved = asyncio.run(service_probe.unserved_groups(plan.bootstrap, TOPIC))
    if unserved:
        raise ClientError(f"coordinators do not serve before any attack: {unserved[0]}")
    known = KnownNames(list(FUZZ_TOPICS), [ids[name] for name in FUZZ_TOPICS])
    return Target(
        _endpoints(plan, "PLAINTEXT", "broker"), _endpoints(plan, "CONTROLLER", "controller"), known, plan.bootstrap
    )


def _endpoints(plan: ClusterPlan, listener: str, kind: str) -> Sequence[Endpoint]:
    found = []
    for node in plan.nodes:
        for entry in node.properties["listeners"].split(","):
            name, _, address = entry.partition("://")
            if name == listener:
                host, _, port = address.rpartition(":")
                found.append(Endpoint(node.node_id, kind, host, int(port)))
    return found


def replay(path: str, directory: str, say: Callable[[str], None]) -> bool:
    """Send the requests of a file to three new nodes; whether the nodes took no harm."""
    with started_cluster(directory) as supervisor, NodeWatch(supervisor) as watch:
        target = prepare(supervisor.plan)
        watch.skip()
        sent = SentRequests(os.path.join(directory, "failures"))
        run = AttackRun("replay", target, random.Random(0), watch, sent, float("inf"), 0)
        for request in read_requests(path):
            connection = run.connect(target.endpoint(request.node_id, request.kind))
            outcome = "refused"
            if connection is not None:
                with connection:
                    outcome = run.exchange(connection, request.frame)[0].value
            say(f"{request.description} to the {request.kind} {request.node_id}: {outcome}")
            time.sleep(_REPLAY_PAUSE_S)
            run.look()
        for trouble in wait_until_quiet(watch, _SETTLE_S):
            run.trouble(trouble)
        for finding in run.findings.values():
            say(f"FAILED {finding.kind}: {finding.text}")
        return not run.findings
