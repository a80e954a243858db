"""A chaos run against real processes: start, load, faults, heal, final read, verdict."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from raftwerk import __version__

from ...cluster.client.admin_client import AdminClient, NewTopic
from ...cluster.client.client_errors import ClientError, RefusedError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.group_client import GroupClient
from ...cluster.command_line.cluster_address import options_of
from ...cluster.command_line.extras import missing_packages, not_installed
from ...cluster.command_line.plural import counted
from ...cluster.local.client_files import ADMIN_PROPERTIES
from ...cluster.local.layout import ClusterPlan, ClusterShape, load_plan, plan_cluster
from ...cluster.local.supervisor import last_line
from ...wire.errors import ErrorCode
from .checker.checker import Result, check_paths
from .history import HistoryWriter
from .load.child_process import tied
from .load.cluster_observer import what_is_not_in_sync
from .load.java_producer import why_unavailable as why_java_unavailable
from .load.load_task import Task, use_login
from .load.transactions.transactional_topics import ISOLATION_LEVELS, PARTITIONS, TransactionalTopics
from .nemesis.faults import FAULTS, ClusterUnderTest, Fault, PlannedFault, no_such_fault, start_all
from .nemesis.leftovers import RunRecord, recorded, remove_of_killed_runs
from .nemesis.network_namespaces import NetworkNamespaces
from .nemesis.node_filesystems import NodeFilesystems
from .nemesis.node_processes import AdoptedNodes, LocalNodes, Nodes, PrefixedSupervisor, SupervisedNodes
from .nemesis.watched_nodes import WatchedNodes

_PACKAGES = ("confluent_kafka", "jinja2")
"""Packages that a run needs besides the base install; the extra `chaos` installs them."""
_NODES = "nodes"
_HEAL_LIMIT_S = 60.0
_CALM_LIMIT_S = 30.0
_DRAIN_LIMIT_S = 90.0
_FINAL_LIMIT_S = 120.0
_WARM_UP_S = 2.0
_LOOK_EVERY_S = 0.2
_JAVA_KEYS = 60
_WRITERS, _PROCESSORS = 2, 2
_TRANSACTIONS_PER_S = 10
_GROUP_LIMIT_S, _GROUP_PAUSE_S = 20.0, 0.5
_OPEN_LIMIT_S = 45.0
"""How long after the load a transaction may still be open. The coordinators' clocks are up to 20 s late."""
_DRAIN_ORDER = (("producer", "java-producer", "writer"), ("processor", "java-copier"))
"""Roles that end first, so that the others can read all records; all other roles follow."""
_DISK_MB = 1024


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `raftwerk chaos run`. With `bootstrap` the run uses a cluster that is already running.

    `cluster_directory` is the directory of that cluster if it is a local one; its nodes then need no `pid_files`. The
    file `client_properties` says how to log in there. With `secure` the cluster that the run starts is secured.
    """

    directory: str
    minutes: float = 3.0
    faults: tuple[str, ...] = ("kill", "pause")
    nodes: int = 3
    partitions: int = 6
    producers: int = 2
    consumers: int = 2
    rate: int = 500
    java: bool = False
    transactions: bool = True
    acks: str = "all"
    interval_s: float = 3.0
    hold_s: float = 4.0
    seed: int = 1
    bootstrap: str | None = None
    pid_files: str | None = None
    cluster_directory: str | None = None
    client_properties: str | None = None
    secure: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.faults if name not in FAULTS]
        if unknown:
            raise ValueError(no_such_fault(unknown[0]))
        if self.bootstrap and self.secure:
            raise ValueError(
                "--secure is for a cluster that the run starts itself: --command-config says how to log in"
            )
        in_own = [name for name in self.faults if FAULTS[name].setups]
        if self.bootstrap and in_own:
            raise ValueError(
                f"{', '.join(in_own)}: such faults work only in a cluster that the run starts itself; these work in a "
                f"running one: {', '.join(name for name, fault in FAULTS.items() if not fault.setups)}"
            )
        if self.bootstrap and self.faults and not self.pid_files and not self.cluster_directory:
            raise ValueError(
                "faults to a running cluster need --name or --dir for a local one, or --pid-files, for example "
                "/tmp/k/n%d.pid"
            )


@dataclass
class RunResult:
    """The result of a run."""

    result: Result
    inflicted: dict[str, int]
    left_out: dict[str, str]
    errors: list[str] = field(default_factory=list)
    not_injected: tuple[str, ...] = ()
    """Faults that this machine can inject and that were named, but did not come up before the time was over."""


class ChaosRun:
    """Carries out one run. `say` is called with lines about its progress.

    `began_ns` is the monotonic time from which all times that people see are counted; by default it is now.
    """

    def __init__(self, options: RunOptions, say: Callable[[str], None], began_ns: int | None = None) -> None:
        self.options = options
        self._began_ns = time.monotonic_ns() if began_ns is None else began_ns
        self.say = say
        self.topic = f"chaos-{os.getpid()}"
        self.rng = random.Random(options.seed)
        self.left_out: dict[str, str] = {}
        self.inflicted: dict[str, int] = {}
        self.errors: list[str] = []
        self.is_interrupted = False
        """Whether Ctrl-C has ended the faults early."""
        self._client_properties = options.client_properties
        self._has_topics = False
        """Whether topics of this run may be in the cluster."""
        self._fault_number = 0
        self._under_way: PlannedFault | None = None
        """The fault that has begun, or was about to begin, and is not healed."""
        self._watch: WatchedNodes | None = None
        self._last_heal: float | None = None
        """When the last fault began to be taken back, in seconds."""

    def execute(self) -> RunResult:
        """Run to the end. The directory then holds `history/`, the nodes' data, and logs."""
        missing = missing_packages(*_PACKAGES)
        if missing:
            raise ClientError(not_installed(missing, "chaos"))
        for sentence in remove_of_killed_runs():
            self.say(sentence)
        options = self.options
        nodes = None if options.bootstrap is not None else os.path.join(options.directory, _NODES)
        with recorded(RunRecord(os.getpid(), options.directory, nodes, options.bootstrap, self.topic)):
            return self._run()

    def _run(self) -> RunResult:
        faults = self._choose()
        with self._cluster(faults) as cluster, self._remains_told(), self._left_healed():
            use_login(self._client_properties)
            self._create_topics(cluster)
            os.makedirs(os.path.join(self.options.directory, "history"))
            nemesis = HistoryWriter(self._history("nemesis"), "nemesis")
            nemesis.begin(**self._facts())
            cluster.nodes = self._watch = WatchedNodes(cluster.nodes, partial(self._on_node_end, nemesis))
            with ExitStack() as load:
                finishing = [load.enter_context(self._process(module, task)) for module, task in self._tasks(cluster)]
                try:
                    self._sleep(_WARM_UP_S)
                    self._check_load(finishing)
                    self._inject_faults(cluster, faults, nemesis)
                except KeyboardInterrupt:
                    self.is_interrupted = True
                    self.say("interrupted: no more faults; the cluster heals, and is judged; Ctrl-C again ends at once")
                self._heal(cluster, nemesis)
                self.say("the clients finish what they have begun")
                self._drain(finishing)
            self._watch.look()
            self._read_to_end(cluster)
            self._watch.look()
            nemesis.close()
        result = check_paths([self.options.directory])
        if self.options.bootstrap is not None:
            self._leave(self.options.bootstrap, is_valid=bool(result.verdict.valid))
        not_injected = tuple(fault.name for fault in faults if fault.name not in self.inflicted)
        return RunResult(result, self.inflicted, self.left_out, self.errors, not_injected)

    # -- the cluster

    def _choose(self) -> list[Fault]:
        """The faults that this machine can cause in this cluster. The others are reported as left out."""
        chosen = []
        for name in self.options.faults:
            reasons = FAULTS[name].unmet(self.options.nodes)
            if reasons:
                self.left_out[name] = "; ".join(reasons)
                self.say(f"left out: {name} ({self.left_out[name]})")
            else:
                chosen.append(FAULTS[name])
        if self.options.faults and not chosen:
            told = ", ".join(f"{name} ({reason})" for name, reason in self.left_out.items())
            raise ClientError(
                f"none of the faults can be injected here: {told}. raftwerk chaos faults lists those that can; "
                "--nemesis none runs the load without faults"
            )
        return chosen

    @contextmanager
    def _cluster(self, faults: Sequence[Fault]) -> Iterator[ClusterUnderTest]:
        options = self.options
        if options.bootstrap is not None and options.cluster_directory is not None:
            with closing(LocalNodes(load_plan(options.cluster_directory))) as local:
                yield ClusterUnderTest(local, self.rng, options.bootstrap, self.topic, hold_s=options.hold_s)
            return
        if options.bootstrap is not None:
            nodes: Nodes = AdoptedNodes(
                options.pid_files or "", list(range(1, options.nodes + 1)) if options.pid_files else []
            )
            yield ClusterUnderTest(nodes, self.rng, options.bootstrap, self.topic, hold_s=options.hold_s)
            return
        plan = plan_cluster(
            os.path.join(options.directory, _NODES), ClusterShape(brokers=options.nodes, port=0, secure=options.secure)
        )
        setups = [setup for fault in faults for setup in fault.setups]
        with ExitStack() as stack:
            network = disks = None
            prefixes: dict[int, list[str]] = {}
            if "network" in setups:
                network = NetworkNamespaces([node.node_id for node in plan.nodes])
                stack.callback(network.close)
                network.open()
                plan, prefixes = network.placed(plan), network.prefixes()
            if "disks" in setups or "power" in setups:
                disks = NodeFilesystems(plan, ext4="power" in setups, size_mb=_DISK_MB)
                stack.callback(disks.close)
                disks.open()
            nodes = self._start(plan, prefixes, stack)
            yield ClusterUnderTest(nodes, self.rng, plan.bootstrap, self.topic, network, disks, options.hold_s)

    def _start(self, plan: ClusterPlan, prefixes: dict[int, list[str]], stack: ExitStack) -> Nodes:
        supervisor = stack.enter_context(PrefixedSupervisor(plan, prefixes))
        took_s = supervisor.start()
        if self.options.secure:
            self._client_properties = os.path.join(plan.directory, ADMIN_PROPERTIES)
        self.say(f"{counted(len(plan.nodes), 'node')} ready in {took_s:.2f} s: {plan.bootstrap}")
        return SupervisedNodes(supervisor)

    def _create_topics(self, cluster: ClusterUnderTest) -> None:
        async def create() -> None:
            replicas = min(3, self.options.nodes)
            configs = {"min.insync.replicas": "2" if replicas > 2 else "1"}
            async with ClusterClient(cluster.bootstrap) as client:
                await client.metadata([])  # whether it is there at all
                self._has_topics = True
                for topic, partitions in self._topics().items():
                    await AdminClient(client).create_topic(NewTopic(topic, partitions, replicas, configs))

        asyncio.run(create())

    def _topics(self) -> dict[str, int]:
        """The topics of the run, and their numbers of partitions."""
        others = TransactionalTopics.of(self.topic).all if self.options.transactions else ()
        return {self.topic: self.options.partitions} | dict.fromkeys(others, PARTITIONS)

    def _groups(self) -> tuple[str, ...]:
        """The groups of the run."""
        topics = TransactionalTopics.of(self.topic)
        copiers = (topics.copiers,) if self.options.java else ()
        return (topics.group, *copiers) if self.options.transactions else ()

    def _leave(self, bootstrap: str, *, is_valid: bool) -> None:
        """Delete the groups and topics from a cluster that goes on, unless they are evidence."""

        async def delete() -> None:
            async with ClusterClient(bootstrap) as client:
                for group in self._groups():
                    await _delete_group(client, group)
                for topic in self._topics():
                    await AdminClient(client).delete_topic(topic)

        if not is_valid:
            self.say(f"{self._names()} stay, for a closer look; {self._removal()}")
            return
        try:
            asyncio.run(delete())
        except (ClientError, OSError) as error:
            self._error(f"{self._names()} could not be deleted: {error}; {self._removal()}")

    def _names(self) -> str:
        """What the run has made in the cluster, by name."""
        topics, groups = self._topics(), self._groups()
        names = f"the topic{'s' * (len(topics) > 1)} {', '.join(topics)}"
        return f"{names} and the group{'s' * (len(groups) > 1)} {', '.join(groups)}" if groups else names

    def _removal(self) -> str:
        """The commands that remove from a cluster that goes on what the run has made there."""
        where = self._where()
        commands = [f"raftwerk topics delete {' '.join(self._topics())} --if-exists{where}"]
        commands += [f"raftwerk groups delete {' '.join(self._groups())}{where}"] * bool(self._groups())
        return f"to remove: {'; '.join(commands)}"

    def _where(self) -> str:
        """The options that name a cluster that goes on; empty for one of the run's own."""
        options = self.options
        if options.bootstrap is None:
            return ""
        if options.cluster_directory is not None:
            return options_of(options.cluster_directory)
        login = options.client_properties
        return f" -b {options.bootstrap}" + ("" if login is None else f" --command-config {shlex.quote(login)}")

    @contextmanager
    def _remains_told(self) -> Iterator[None]:
        """Tell what stays in a cluster that goes on, when the run ends before its end, as by Ctrl-C."""
        try:
            yield
        except BaseException:
            if self.options.bootstrap is not None and self._has_topics:
                with suppress(OSError):  # the terminal may be closed
                    self.say(f"{self._names()} stay; {self._removal()}")
            raise

    # -- the load

    def _tasks(self, cluster: ClusterUnderTest) -> Iterator[tuple[str, Task]]:
        options = self.options

        def task(role: str, number: int, rate: int = 0) -> Task:
            process = f"{role}-{number}"
            place = (cluster.bootstrap, self.topic, options.partitions, self._history(process))
            more: dict[str, Any] = {"limit_s": _DRAIN_LIMIT_S, "client_properties": self._client_properties}
            return Task(role, number, *place, rate=rate, keys=_JAVA_KEYS, acks=options.acks, **more)

        for number in range(options.producers):
            yield "producer", task("producer", number, options.rate)
        if options.java:
            reason = why_java_unavailable()
            if reason is None:
                yield "java_producer", task("java-producer", options.producers, options.rate)
            else:
                self.left_out["java clients"] = reason
                self.say(f"left out: the Java clients ({reason})")
        for number in range(options.consumers):
            yield "consumer", task("consumer", number)
        if options.transactions:
            yield from self._transactional_tasks(cluster)
        yield "cluster_observer", task("observer", 0)

    def _transactional_tasks(self, cluster: ClusterUnderTest) -> Iterator[tuple[str, Task]]:
        for role, count in (("writer", _WRITERS), ("processor", _PROCESSORS)):
            for number in range(count):
                task = self._transactional_task(cluster, role, number, _DRAIN_LIMIT_S)
                yield "transactions.incarnations", replace(task, rate=_TRANSACTIONS_PER_S, seed=self.options.seed)
        if self.options.java and self._client_properties is not None:
            self.left_out["java copier"] = "it cannot log in"
            self.say("left out: the Java copier of transactions (it cannot log in)")
        elif self.options.java and why_java_unavailable() is None:
            task = self._transactional_task(cluster, "java-copier", 0, _DRAIN_LIMIT_S)
            yield "transactions.java_copier", replace(task, seed=self.options.seed)
        for level in ISOLATION_LEVELS:
            yield "transactions.reader", self._transactional_task(cluster, f"reader-{level}", 0, _DRAIN_LIMIT_S)

    def _transactional_task(self, cluster: ClusterUnderTest, role: str, number: int, limit_s: float) -> Task:
        history = self._history(f"{role}-{number}")
        place = (cluster.bootstrap, self.topic, PARTITIONS, history)
        return Task(role, number, *place, limit_s=limit_s, client_properties=self._client_properties)

    @contextmanager
    def _process(self, module: str, task: Task) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        command = tied([sys.executable, "-P", "-m", f"raftwerk.chaos.live.load.{module}", task.to_argument()])
        with open(os.path.join(self.options.directory, f"{task.process}.log"), "wb") as log:
            # In a session of its own, so that Ctrl-C does not reach it; it ends when its standard input does,
            # and at once when this process is killed.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        try:
            yield task.process, process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _check_load(self, running: Sequence[tuple[str, subprocess.Popen[bytes]]]) -> None:
        for name, process in running:
            if process.poll() is not None:
                log = os.path.join(self.options.directory, f"{name}.log")
                raise ClientError(f"{name} ended with exit code {process.returncode}: {last_line(log)}")

    def _drain(self, finishing: Sequence[tuple[str, subprocess.Popen[bytes]]]) -> None:
        """End the load, one group of processes after the other."""
        first = [[one for one in finishing if _role(one[0]) in roles] for roles in _DRAIN_ORDER]
        rest = [one for one in finishing if not any(_role(one[0]) in roles for roles in _DRAIN_ORDER)]
        for group in (*first, rest):
            for _, process in group:
                if process.stdin is not None:
                    process.stdin.close()
            for name, process in group:
                try:
                    code = process.wait(_DRAIN_LIMIT_S + 45)
                except subprocess.TimeoutExpired:
                    code = -1
                if code:
                    self._error(f"{name} ended with exit code {code}; see {name}.log")

    def _read_to_end(self, cluster: ClusterUnderTest) -> None:
        self.say("all that is there is read once more")
        began = time.monotonic()
        place = (cluster.bootstrap, self.topic, self.options.partitions, self._history("final-0"))
        task = Task("final", 0, *place, limit_s=_FINAL_LIMIT_S, client_properties=self._client_properties)
        self._finish("consumer", task)
        if self.options.transactions:
            task = self._transactional_task(cluster, "end-state", 0, _OPEN_LIMIT_S)
            self._finish("transactions.end_state", task)
            for level in ISOLATION_LEVELS:
                task = self._transactional_task(cluster, f"final-{level}", 0, _FINAL_LIMIT_S)
                self._finish("transactions.reader", task)
        self.say(f"final read in {time.monotonic() - began:.1f} s")

    def _finish(self, module: str, task: Task) -> None:
        """Run a process that looks at what there is in the end."""
        with self._process(module, task) as (name, process):
            try:
                code = process.wait(2 * task.limit_s + 30)
            except BaseException:  # Ctrl-C, or SystemExit of a signal's handler
                # What it has read so far would be taken for all that there is.
                with suppress(FileNotFoundError):
                    os.remove(task.history)
                raise
            if code:
                self._error(f"{name} did not come to the end; see {name}.log")

    # -- the faults

    def _inject_faults(self, cluster: ClusterUnderTest, faults: Sequence[Fault], nemesis: HistoryWriter) -> None:
        until = time.monotonic() + self.options.minutes * 60
        while (left_s := until - time.monotonic()) > 0:
            if not faults or left_s < self.options.hold_s:
                self._sleep(min(left_s, 1.0))
                continue
            self._inject(cluster, self.rng.choice(list(faults)), nemesis)
            self._sleep(self.rng.uniform(0.3, 1.7) * self.options.interval_s)

    def _inject(self, cluster: ClusterUnderTest, fault: Fault, nemesis: HistoryWriter) -> None:
        if fault.needs_in_sync and self._wait_in_sync(cluster, _CALM_LIMIT_S) is not None:
            return
        start_all(cluster.nodes)  # a node may have ended by itself after its heal, after a late failed fsync
        self._fault_number += 1
        number, asked_ns = self._fault_number, time.monotonic_ns()
        planned = fault.plan(cluster)
        start_ns = cluster.began_ns if planned.hold_s is None else asked_ns
        told = planned.target
        self.say(f"{fault.name}: {told}")  # as it begins, which is the time that the report has
        try:
            self._under_way = planned
            if self._watch is not None and planned.may_end is not None:
                self._watch.may_end(planned.may_end, later=planned.may_end_later)
            fields = {"fault": fault.name, "id": number, "start": start_ns}
            with self._counted(nemesis, fields, planned):
                planned.begin()
            self._sleep(cluster.hold_s * self.rng.uniform(0.4, 1.6) if planned.hold_s is None else planned.hold_s)
        finally:
            self._take_back()
        nemesis.event("info", "fault", **fields, target=planned.target, end=time.monotonic_ns())
        nemesis.flush()
        lasted = f"ended after {(time.monotonic_ns() - start_ns) / 1e9:.1f} s"
        self.say(f"{fault.name}: {lasted if planned.target == told else f'{planned.target}; {lasted}'}")
        self._await_recovery(cluster, planned)

    @contextmanager
    def _counted(self, nemesis: HistoryWriter, fields: Mapping[str, Any], planned: PlannedFault) -> Iterator[None]:
        """Count a fault that has begun, also one that Ctrl-C interrupts as it begins, as while a disk is filled."""

        def tell() -> None:
            nemesis.event("invoke", "fault", **fields, target=planned.target)
            nemesis.flush()
            self.inflicted[fields["fault"]] = self.inflicted.get(fields["fault"], 0) + 1

        try:
            yield
        except KeyboardInterrupt:
            tell()
            raise
        tell()

    def _await_recovery(self, cluster: ClusterUnderTest, healed: PlannedFault) -> None:
        """Wait until a node that the fault might have ended has got over it: a later end has another cause."""
        if self._watch is None or healed.may_end is None or healed.may_end_later:
            return
        if self._wait_in_sync(cluster, _CALM_LIMIT_S) is None:
            self._watch.got_over(healed.may_end)

    def _sleep(self, duration_s: float) -> None:
        """Wait, and report nodes that end meanwhile."""
        until = time.monotonic() + duration_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, _LOOK_EVERY_S))
            if self._watch is not None:
                self._watch.look()

    def _on_node_end(self, nemesis: HistoryWriter, node_id: int, what: str) -> None:
        nemesis.event("info", "node-end", node=node_id, error=what, start=time.monotonic_ns())
        nemesis.flush()
        self._error(what)

    def _take_back(self) -> None:
        """Heal the fault that is under way, also where Ctrl-C has interrupted its beginning or its healing."""
        if self._under_way is not None:
            self._last_heal = time.monotonic()
            self._under_way.heal()
            self._under_way = None

    @contextmanager
    def _left_healed(self) -> Iterator[None]:
        """Leave no fault behind in a cluster that goes on, however the run ends."""
        try:
            yield
        finally:
            if self.options.bootstrap is not None:
                self._take_back()

    def _heal(self, cluster: ClusterUnderTest, nemesis: HistoryWriter) -> None:
        start_ns = time.monotonic_ns()
        self._take_back()
        if cluster.nodes.ids:
            start_all(cluster.nodes)
        was_in_sync = self._not_in_sync(cluster) is None
        missing = None if was_in_sync else self._wait_in_sync(cluster, _HEAL_LIMIT_S)
        times = {"start": start_ns, "end": time.monotonic_ns()}
        if missing is None:
            nemesis.event("ok", "heal", **times)
            is_timed = not was_in_sync and self._last_heal is not None
            since = f" {time.monotonic() - (self._last_heal or 0):.1f} s after the last fault" if is_timed else ""
            self.say(f"all replicas are in sync{since}")
        else:
            nemesis.event("fail", "heal", **times, error=missing)
            self.say(f"NOT healed after {_HEAL_LIMIT_S:g} s: {missing}")

    def _wait_in_sync(self, cluster: ClusterUnderTest, limit_s: float) -> str | None:
        """Wait until all replicas are in sync; what is missing after the time limit, else None."""
        deadline = time.monotonic() + limit_s
        while (missing := self._not_in_sync(cluster)) is not None and time.monotonic() < deadline:
            time.sleep(0.2)
        return missing

    def _not_in_sync(self, cluster: ClusterUnderTest) -> str | None:
        for node_id in cluster.nodes.ids:
            if not cluster.nodes.alive(node_id):
                return f"node {node_id} is down: {cluster.nodes.last_log_line(node_id)}"
        try:
            return asyncio.run(asyncio.wait_for(what_is_not_in_sync(cluster.bootstrap, self._topics()), 10))
        except (ClientError, OSError, TimeoutError) as error:
            return f"the cluster does not answer ({error})"

    # -- helpers

    def _history(self, process: str) -> str:
        return os.path.join(self.options.directory, "history", f"{process}.jsonl")

    def _facts(self) -> dict[str, object]:
        """What the first line of the nemesis's history says of the run; the report shows it."""
        options = self.options
        load = {name: getattr(options, name) for name in ("partitions", "producers", "consumers", "rate", "acks")}
        times = {name: getattr(options, name) for name in ("minutes", "interval_s", "hold_s")}
        faults = {"faults": json.dumps(options.faults), "nodes": options.nodes, "seed": options.seed}
        facts = {"raftwerk": __version__, "topic": self.topic, "transactions": options.transactions}
        facts["began"] = self._began_ns
        facts["secured"] = self._client_properties is not None
        facts["cluster"] = self._where()
        return {**facts, **faults, **load, **times}

    def _error(self, text: str) -> None:
        self.errors.append(text)
        self.say(f"Error: {text}")


async def _delete_group(client: ClusterClient, group: str) -> None:
    """Delete the group, if there is one. A member that died belongs to it until its session ends."""
    deadline = time.monotonic() + _GROUP_LIMIT_S
    while True:
        try:
            return await GroupClient(client).delete(group)
        except RefusedError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            if error.code != ErrorCode.NON_EMPTY_GROUP or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_GROUP_PAUSE_S)


def _role(process: str) -> str:
    """The role in the name of a process."""
    return process.rpartition("-")[0]
