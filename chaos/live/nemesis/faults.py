"""The faults by name: what each one does, what it needs of the machine, and how it is healed.

A fault chooses its target right before it begins, because leaders move. `PlannedFault.heal` undoes all effects, and may
be called when some of them are already gone, or when Ctrl-C has interrupted the beginning.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ....cluster.client.client_errors import ClientError
from ....cluster.command_line.commands import suggestion
from ..load.child_process import tied
from ..load.cluster_observer import look
from .machine_capabilities import CommandFailed, unmet_needs
from .network_namespaces import NetworkNamespaces
from .node_filesystems import NodeFilesystems
from .node_processes import Nodes

_LOOK_TRIES = 25
_CHASE_PAUSE_S = 1.5
_ATTACH_LIMIT_S = 10.0


@dataclass
class ClusterUnderTest:
    """The cluster that gets the faults. `network` and `disks` exist only if a chosen fault needs them."""

    nodes: Nodes
    rng: random.Random
    bootstrap: str
    topic: str
    network: NetworkNamespaces | None = None
    disks: NodeFilesystems | None = None
    hold_s: float = 4.0
    began_ns: int = 0

    def pick(self, role: str) -> tuple[int, str]:
        """A node that has the role now, and a description of it; any node if nobody knows the role."""
        seen = self._look()
        self.began_ns = time.monotonic_ns()
        leaders, controller = seen.get("leaders", []), seen.get("controller")
        partition = self.rng.randrange(len(leaders)) if leaders else 0
        leader = leaders[partition] if leaders else -1
        if role == "any":
            role = self.rng.choice(["leader", "follower", "controller"])
        if role == "leader" and leader in self.nodes.ids:
            return leader, f"node {leader}, leader of {self.topic}-{partition}"
        if role == "controller" and controller in self.nodes.ids:
            return controller, f"node {controller}, the active controller"
        followers = [node_id for node_id in self.nodes.ids if node_id not in (leader, controller)]
        chosen = self.rng.choice(followers or self.nodes.ids)
        return chosen, f"node {chosen}, a follower of {self.topic}-{partition}"

    def _look(self) -> dict[str, Any]:
        for _ in range(_LOOK_TRIES):
            try:
                seen = asyncio.run(asyncio.wait_for(look(self.bootstrap, self.topic), 5))
                if seen["leaders"] and seen["leaders"][0] >= 0:
                    return seen
            except (ClientError, OSError, TimeoutError):
                pass
            time.sleep(0.2)
        return {}


@dataclass(slots=True)
class PlannedFault:
    """A fault with its target: how it begins, how it is healed, and how long it lasts (None: as the options say).

    `may_end` is the node that may end itself by this fault: before all is in sync again, or, with `may_end_later`, at
    any time, as when a failed fsync comes to light.
    """

    target: str
    begin: Callable[[], None]
    heal: Callable[[], None]
    hold_s: float | None = None
    may_end: int | None = None
    may_end_later: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. `setups` names what the run prepares for the nodes: `network`, `disks`, `power`.

    `needs_in_sync`: the fault begins only when all replicas are in sync. Acked records are durable by replication, not
    by fsync, so two hosts that lose power one after the other may lose records that both had.
    """

    name: str
    what: str
    plan: Callable[[ClusterUnderTest], PlannedFault]
    needs: tuple[str, ...] = ()
    setups: tuple[str, ...] = ()
    needs_in_sync: bool = False
    needs_peers: bool = False

    def unmet(self, nodes: int) -> list[str]:
        """Why it cannot be injected on this machine into a cluster of so many nodes."""
        reasons = unmet_needs(self.needs)
        return [*reasons, "the only node has no peers"] if self.needs_peers and nodes < 2 else reasons


# -- processes


def _kill(role: str) -> Callable[[ClusterUnderTest], PlannedFault]:
    def plan(field: ClusterUnderTest) -> PlannedFault:
        node_id, who = field.pick(role)
        nodes = field.nodes
        return PlannedFault(who, lambda: nodes.signal(node_id, signal.SIGKILL), lambda: nodes.start(node_id))

    return plan


def _kill_all(field: ClusterUnderTest) -> PlannedFault:
    def begin() -> None:
        for node_id in field.nodes.ids:
            field.nodes.signal(node_id, signal.SIGKILL)

    return PlannedFault("all nodes", begin, lambda: start_all(field.nodes), min(field.hold_s, 2.0))


def start_all(nodes: Nodes) -> None:
    """Start the dead nodes together, so that a quorum can form before any of them is waited for."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max(1, len(nodes.ids))) as pool:
        list(pool.map(nodes.start, nodes.ids))


def _chase(field: ClusterUnderTest) -> PlannedFault:
    """Kill the leader of a partition, then the next leader, and so on; each one is started again first."""
    killed: list[int] = []

    def begin() -> None:
        until = time.monotonic() + field.hold_s * 2
        while time.monotonic() < until:
            node_id, _ = field.pick("leader")
            killed.append(node_id)
            planned.target = f"leaders {', '.join(map(str, killed))}, one after the other"
            field.nodes.signal(node_id, signal.SIGKILL)
            time.sleep(_CHASE_PAUSE_S)
            field.nodes.start(node_id)

    planned = PlannedFault("leaders, one after the other", begin, lambda: start_all(field.nodes), 0.0)
    return planned


def _rolling(field: ClusterUnderTest) -> PlannedFault:
    def begin() -> None:
        for node_id in field.nodes.ids:
            field.nodes.signal(node_id, signal.SIGTERM)
            field.nodes.start(node_id)

    return PlannedFault("all nodes, one after the other", begin, lambda: start_all(field.nodes), 0.0)


def _pause(role: str) -> Callable[[ClusterUnderTest], PlannedFault]:
    def plan(field: ClusterUnderTest) -> PlannedFault:
        node_id, who = field.pick(role)
        begin, heal = (partial(field.nodes.signal, node_id, sent) for sent in (signal.SIGSTOP, signal.SIGCONT))
        return PlannedFault(who, begin, heal)

    return plan


# -- networks


def _rules(role: str, *kinds: str) -> Callable[[ClusterUnderTest], PlannedFault]:
    """Packet filters for a node: `in`, `out`, `loss`, `reset` against its peers; `clients` against the clients."""

    def plan(field: ClusterUnderTest) -> PlannedFault:
        network = _network(field)
        node_id, who = field.pick(role)

        def begin() -> None:
            for peer in field.nodes.ids:
                for kind in kinds if peer != node_id else ():
                    _one_rule(network, node_id, network.address(peer), kind)
            if "clients" in kinds:
                network.inside(node_id, "iptables", "-A", "INPUT", "-s", network.client_address, "-j", "DROP")

        return PlannedFault(who, begin, lambda: network.heal(node_id))

    return plan


def _against_peers(name: str, what: str, needs: str, *kinds: str) -> Fault:
    """A fault of these packet filters between a node and its peers. It does nothing to a node that has none."""
    return Fault(name, what, _rules("any", *kinds), (needs,), ("network",), needs_peers=True)


def _one_rule(network: NetworkNamespaces, node_id: int, address: str, kind: str) -> None:
    if kind == "in":
        network.inside(node_id, "iptables", "-A", "INPUT", "-s", address, "-j", "DROP")
    elif kind == "out":
        network.inside(node_id, "iptables", "-A", "OUTPUT", "-d", address, "-j", "DROP")
    elif kind == "loss":
        chance = ("-m", "statistic", "--mode", "random", "--probability", "0.2")
        network.inside(node_id, "iptables", "-A", "INPUT", "-s", address, *chance, "-j", "DROP")
    elif kind == "reset":
        reject = ("-j", "REJECT", "--reject-with", "tcp-reset")
        network.inside(node_id, "iptables", "-A", "INPUT", "-s", address, "-p", "tcp", *reject)


def _slow(field: ClusterUnderTest) -> PlannedFault:
    network = _network(field)
    node_id, who = field.pick("any")
    limit = ("rate", "2mbit", "burst", "32kb", "latency", "400ms")
    command = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limit)

    def begin() -> None:
        network.inside(node_id, *command)

    return PlannedFault(who, begin, lambda: network.heal(node_id))


def _network(field: ClusterUnderTest) -> NetworkNamespaces:
    if field.network is None:
        raise ValueError("this fault needs a network of its own")
    return field.network


# -- disks


def _disk_full(field: ClusterUnderTest) -> PlannedFault:
    disks = _disks(field)
    node_id, who = field.pick("any")

    def heal() -> None:
        disks.make_room(node_id)
        field.nodes.start(node_id)

    return PlannedFault(who, lambda: disks.fill(node_id), heal, may_end=node_id)


def _power(field: ClusterUnderTest) -> PlannedFault:
    """Stop the process, cut its device off, kill it. The heal mounts the device again."""
    disks = _disks(field)
    node_id, who = field.pick("any")

    def begin() -> None:
        field.nodes.signal(node_id, signal.SIGSTOP)
        disks.cut_power(node_id)
        field.nodes.signal(node_id, signal.SIGKILL)

    def heal() -> None:
        if field.nodes.alive(node_id):  # the beginning was interrupted
            field.nodes.signal(node_id, signal.SIGKILL)
        disks.unmount(node_id)
        disks.mount(node_id)
        field.nodes.start(node_id)

    return PlannedFault(who, begin, heal)


def _eio(field: ClusterUnderTest) -> PlannedFault:
    """Every fsync of the node fails while a tracer is attached."""
    import subprocess

    node_id, who = field.pick("any")
    calls = "fsync,fdatasync,sync_file_range"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO"]
    tracers: list[subprocess.Popen[str]] = []

    def begin() -> None:
        pid = field.nodes.pid(node_id)
        tracer = subprocess.Popen(tied([*command, "-p", str(pid)]), stderr=subprocess.PIPE, text=True)
        tracers.append(tracer)
        until = time.monotonic() + _ATTACH_LIMIT_S
        while not _is_traced(pid):
            if tracer.poll() is not None or time.monotonic() > until:
                tracer.terminate()
                reason = tracer.communicate()[1].strip() or f"exit code {tracer.returncode}"
                raise CommandFailed(f"strace does not get hold of process {pid} of node {node_id}: {reason}")
            time.sleep(0.01)

    def heal() -> None:
        for tracer in tracers:
            tracer.terminate()
            tracer.wait()
        field.nodes.start(node_id)

    return PlannedFault(who, begin, heal, may_end=node_id, may_end_later=True)


def _is_traced(pid: int) -> bool:
    """Whether a tracer has the process, or it has ended already, as a node does whose fsync fails."""
    try:
        with open(f"/proc/{pid}/status") as status:
            lines = status.read().splitlines()
    except OSError:
        return True
    return not any(line.split() == ["TracerPid:", "0"] for line in lines)


def _disks(field: ClusterUnderTest) -> NodeFilesystems:
    if field.disks is None:
        raise ValueError("this fault needs disks of its own")
    return field.disks


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill", "SIGKILL to a leader, a follower or the controller", _kill("any")),
        Fault("kill-leader", "SIGKILL to the leader of a partition", _kill("leader")),
        Fault("kill-follower", "SIGKILL to a follower", _kill("follower")),
        Fault("kill-controller", "SIGKILL to the active controller", _kill("controller")),
        Fault("kill-all", "SIGKILL to every node at once", _kill_all),
        Fault("chase", "SIGKILL to a leader, then to its successor, again and again", _chase),
        Fault("rolling", "SIGTERM and restart of one node after the other", _rolling),
        Fault("pause", "SIGSTOP to a leader, a follower or the controller, then SIGCONT", _pause("any")),
        Fault("pause-leader", "SIGSTOP to the leader of a partition, then SIGCONT", _pause("leader")),
        _against_peers("cut", "no packet between a node and its peers", "iptables", "in", "out"),
        _against_peers("cut-in", "a node hears no peer, and is heard", "iptables", "in"),
        _against_peers("cut-out", "a node hears its peers, and is not heard", "iptables", "out"),
        Fault(
            "cut-clients",
            "a leader without its clients, peers untouched",
            _rules("leader", "clients"),
            ("iptables",),
            ("network",),
        ),
        _against_peers("loss", "one packet of five is lost", "iptables-loss", "loss"),
        _against_peers("reset", "connections of peers are reset", "iptables-reset", "reset"),
        Fault("slow", "2 Mbit/s out of a node", _slow, ("bandwidth", "iptables"), ("network",)),
        Fault("disk-full", "no space is left on a node's device", _disk_full, ("tmpfs",), ("disks",)),
        Fault(
            "power",
            "the power of one node goes: unsynced bytes are gone",
            _power,
            ("loop-device",),
            ("power",),
            needs_in_sync=True,
        ),
        Fault("eio", "every fsync of a node fails", _eio, ("strace",)),
    )
}
ALWAYS = ("kill", "pause")

_CUTS = "cut, cut-in, cut-out or cut-clients"
_OTHER_WORDS = {
    "partition": _CUTS,
    "network": f"{_CUTS}, loss, reset or slow",
    "split-brain": _CUTS,
    "isolate": _CUTS,
    "crash": "kill",
    "restart": "rolling",
    "stop": "rolling, or pause for SIGSTOP",
    "freeze": "pause",
    "hang": "pause",
    "delay": "slow",
    "latency": "slow",
    "disk": "disk-full, eio or power",
    "fsync": "eio",
    "power-loss": "power",
}
"""What the faults are called elsewhere."""


def no_such_fault(name: str) -> str:
    """The sentence about a fault that does not exist, with those that may be meant."""
    known = {one: one for one in FAULTS} | _OTHER_WORDS
    meant = f" Did you mean {known[name]}?" if name in known else suggestion(name, known)
    return (
        f"There is no fault {name!r}.{meant} raftwerk chaos faults lists them, and says which this machine can inject."
    )
