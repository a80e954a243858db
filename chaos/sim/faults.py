"""Faults as data, drawn by seed, and the nemesis that carries them out on a simulated world.

A fault names a target by what it is ("leader", "controller") or by its number, begins at a time and lasts a while. So a
run's faults can be printed, and left out one by one when a failure is to be made smaller.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from . import disk_faults
from .disk.inodes import DiskCopy
from .kernel.event_loop import ProcessLoop, SimulationError
from .kernel.world import Host, World

_STOP_LIMIT_S = 30.0


class FaultKind(Enum):
    """What happens, and with the duration's end is undone; but what fails in a directory fails until the end."""

    KILL = "kill"
    POWER_LOSS = "power loss"
    KILL_ALL = "kill all"
    POWER_LOSS_ALL = "power loss everywhere"
    STOP = "stop"
    PAUSE = "pause"
    ISOLATE = "isolate"
    CUT = "cut"
    CUT_ONE_WAY = "cut one way"
    RESET = "reset connections"
    LOSE_ENDS = "one end of connections is lost"
    REJECT = "answers peers with resets"
    SLOW_LINK = "slow link"
    BRIDGE = "two halves that only one node joins"
    RING = "a ring in which each node reaches two others"
    SPLIT = "two halves"
    CLIENTS_CUT = "cut off from clients"
    CUT_OFF = "cut off from everybody"
    SLOW_DISK = "slow disk"
    FSYNC_FAILS = "fsync fails"
    DISK_FULL = "disk full"
    WIPED_DISK = "wiped disk"
    OLD_DISK = "an old copy of the disk"
    BIT_ROT = "bit rot"
    DIR_FAILS = "a log directory fails"
    WIPED_DIR = "wiped log directory"
    EXCHANGED_DIR = "stopped, and one log directory exchanged for an empty one"
    CLOCK_JUMP = "clock jump"
    CLOCK_DRIFT = "clock drift"


_AT_ALL = (FaultKind.KILL_ALL, FaultKind.POWER_LOSS_ALL)
_NEEDS_ALL_IN_SYNC = (FaultKind.WIPED_DISK, FaultKind.OLD_DISK, FaultKind.BIT_ROT, FaultKind.WIPED_DIR)
_SYNC_POLL_S = 0.05
_SYNC_TRIES = 200
_JUMP_MS_MAX = 600_000
"""Far from the hour by which a record may be ahead of its broker's clock."""
_DRIFT_MAX = 0.05


@dataclass(frozen=True, slots=True)
class Fault:
    """`target` and `other` are host names, or roles that the cluster resolves when the fault begins."""

    at_s: float
    kind: FaultKind
    target: str
    other: str
    duration_s: float

    def __str__(self) -> str:
        return f"{self.at_s:.3f} {self.kind.value} {self.target}/{self.other} for {self.duration_s:.3f} s"


class Target(Protocol):
    """The cluster that faults happen to."""

    @property
    def world(self) -> World: ...

    @property
    def names(self) -> Sequence[str]:
        """Its hosts."""
        ...

    @property
    def extra_dirs(self) -> Sequence[str]:
        """Log directories of each host besides the one with the metadata log."""
        ...

    @property
    def client_names(self) -> Sequence[str]:
        """Hosts of clients."""
        ...

    def resolve(self, target: str) -> str | None:
        """The host a role means now; None when nobody has it."""
        ...

    def in_sync(self) -> bool:
        """Every replica and every voter holds all that is committed: one disk can be spared."""
        ...

    def trusts_lost_disk(self) -> bool:
        """The controller has not seen yet that a broker died with its disk. If all others die now, too, without
        a clean stop, that broker is the last in the ISR, and only an operator who takes the risk can help (KIP-966)."""
        ...

    def on_disk_replaced(self, name: str) -> None:
        """The host's disk is another one, or what it was long ago."""
        ...

    def on_disk_rotten(self, name: str) -> None:
        """The host's disk holds harmed batches, until it is replaced."""
        ...

    def crash(self, name: str, *, power_loss: bool) -> None: ...

    def restart(self, name: str) -> None: ...

    def stop(self, name: str) -> None:
        """Ask the process to end by itself."""
        ...


def draw_faults(
    rng: random.Random,
    kinds: Sequence[FaultKind],
    targets: Sequence[str],
    *,
    start_s: float,
    end_s: float,
    mean_gap_s: float,
    mean_duration_s: float,
) -> list[Fault]:
    """At least one fault between two times; each lasts at most four times the mean and ends by `end_s`."""
    faults: list[Fault] = []
    at_s = min(start_s + rng.expovariate(1 / mean_gap_s), (start_s + end_s) / 2)
    while at_s < end_s:
        duration_s = min(rng.expovariate(1 / mean_duration_s), 4 * mean_duration_s, end_s - at_s)
        faults.append(Fault(at_s, rng.choice(kinds), rng.choice(targets), rng.choice(targets), duration_s))
        at_s += rng.expovariate(1 / mean_gap_s)
    return faults


class Nemesis:
    """Begins and ends faults at their times while virtual time runs."""

    def __init__(self, cluster: Target, faults: Sequence[Fault]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._stopping: list[tuple[Host, ProcessLoop | None]] = []
        self._rotten: list[Host] = []
        self._rng = self._world.rng_for("nemesis")
        for fault in faults:
            self._at(fault.at_s, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def run(self, until_s: float) -> None:
        """Let the world run up to `until_s`, with the faults on the way."""
        while self._agenda and self._agenda[0][0] <= until_s:
            at_s, _, action = heapq.heappop(self._agenda)
            self._world.scheduler.run_for(max(0.0, at_s - self._world.now_s))
            action()
        self._world.scheduler.run_for(max(0.0, until_s - self._world.now_s))

    def end_all(self) -> None:
        """Everything runs, nothing is cut, slow or paused; failed log directories stay, until `mend_dirs`."""
        self._agenda.clear()
        self._world.trace.note("nemesis", "HEAL")
        self._world.network.heal_all()
        for name in self._cluster.names:
            host = self._world.hosts[name]
            host.disk.set_sync_latency(*disk_faults.USUAL_SYNC_S)
            host.disk.fail_fsync(None)
            host.disk.set_capacity()
            host.resume()
        self._await_stops()
        for name in self._cluster.names:
            if not self._world.hosts[name].running:
                self._cluster.restart(name)
        self._replace_rotten()

    @property
    def has_broken_dirs(self) -> bool:
        """Whether log directories fail that `end_all` left as they are."""
        return any(self._world.hosts[name].disk.broken_dirs for name in self._cluster.names)

    def mend_dirs(self) -> None:
        """No log directory fails any more."""
        for name in self._cluster.names:
            disk_faults.mend_dirs(self._cluster, self._world.hosts[name])

    def _replace_rotten(self) -> None:
        """An operator puts an empty disk in the place of each rotten one, one after the other."""
        while self._rotten:
            if not self._world.scheduler.run_until(self._cluster.in_sync, _SYNC_TRIES * _SYNC_POLL_S):
                raise SimulationError("rot on one disk keeps the cluster from being in sync")
            disk_faults.wipe(self._cluster, self._rotten.pop())()

    def _await_stops(self) -> None:
        def stopped() -> bool:
            return all(host.process is not process for host, process in self._stopping)

        if not self._world.scheduler.run_until(stopped, _STOP_LIMIT_S):
            late = [host.name for host, process in self._stopping if host.process is process]
            raise SimulationError(f"asked to stop, still running after {_STOP_LIMIT_S:g} s: {', '.join(late)}")
        self._stopping.clear()

    def _at(self, at_s: float, action: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._agenda, (at_s, self._numbers, action))

    def _begin(self, fault: Fault, tries: int = _SYNC_TRIES) -> None:
        target, other = self._cluster.resolve(fault.target), self._cluster.resolve(fault.other)
        if target is None or other is None:
            return
        must_wait = fault.kind in _NEEDS_ALL_IN_SYNC and not self._cluster.in_sync()
        if must_wait or (fault.kind in _AT_ALL and self._cluster.trusts_lost_disk()):
            if tries:
                self._at(self._world.now_s + _SYNC_POLL_S, lambda: self._begin(fault, tries - 1))
            return
        self._world.trace.note("nemesis", f"{fault.kind.value} {target} {other} ({fault.duration_s:.3f} s)")
        undo = self._carry_out(fault, target, other)
        if undo is not None:
            self._at(self._world.now_s + fault.duration_s, undo)

    def _carry_out(self, fault: Fault, target: str, other: str) -> Callable[[], None] | None:
        network, host = self._world.network, self._world.hosts[target]
        match fault.kind:
            case FaultKind.KILL | FaultKind.POWER_LOSS:
                return self._crash([target], power_loss=fault.kind is FaultKind.POWER_LOSS)
            case FaultKind.KILL_ALL | FaultKind.POWER_LOSS_ALL:
                return self._crash(self._cluster.names, power_loss=fault.kind is FaultKind.POWER_LOSS_ALL)
            case FaultKind.STOP:
                if not host.running:
                    return None
                self._stopping.append((host, host.process))
                self._cluster.stop(target)
                return lambda: self._restart_when_ended(target)
            case FaultKind.EXCHANGED_DIR:
                if host.running:
                    self._stopping.append((host, host.process))
                    self._cluster.stop(target)
                return lambda: self._exchange_when_ended(target, self._dir_of(fault))
            case FaultKind.PAUSE:
                host.pause()
                return host.resume
            case FaultKind.ISOLATE:
                pairs = [(target, name) for name in self._cluster.names if name != target]
                return self._cut(pairs + [(there, here) for here, there in pairs])
            case FaultKind.CUT:
                return self._cut([(target, other), (other, target)])
            case FaultKind.CUT_ONE_WAY:
                return self._cut([(target, other)])
            case FaultKind.RESET:
                network.reset_connections(target, other)
                return None
            case FaultKind.LOSE_ENDS:
                network.lose_ends(target, other)
                return None
            case FaultKind.REJECT:
                return self._reject([(name, target) for name in self._cluster.names if name != target])
            case FaultKind.SLOW_LINK:
                network.set_latency(target, other, (0.02, 0.2))
                return lambda: network.set_latency(target, other, None)
            case FaultKind.BRIDGE:
                return self._cut(_bridge([target, *(name for name in self._cluster.names if name != target)]))
            case FaultKind.RING:
                return self._cut(_outside_ring(self._cluster.names))
            case FaultKind.SPLIT:
                return self._cut(_split(self._cluster.names, self._cluster.client_names, self._rng))
            case FaultKind.CLIENTS_CUT | FaultKind.CUT_OFF:
                nodes = self._cluster.names if fault.kind is FaultKind.CUT_OFF else ()
                pairs = [(target, name) for name in (*self._cluster.client_names, *nodes) if name != target]
                return self._cut(pairs + [(there, here) for here, there in pairs])
            case FaultKind.CLOCK_JUMP:
                host.clock.jump(self._rng.randrange(-_JUMP_MS_MAX, _JUMP_MS_MAX))
                return None
            case FaultKind.CLOCK_DRIFT:
                host.clock.drift(self._rng.uniform(-_DRIFT_MAX, _DRIFT_MAX))
                return lambda: host.clock.drift(0.0)
            case _:
                return self._harm_disk(fault, host)

    def _harm_disk(self, fault: Fault, host: Host) -> Callable[[], None] | None:
        match fault.kind:
            case FaultKind.SLOW_DISK:
                return disk_faults.slow(host)
            case FaultKind.FSYNC_FAILS:
                return disk_faults.fail_fsync(self._cluster, host)
            case FaultKind.DISK_FULL:
                return disk_faults.fill(self._cluster, host, self._rng)
            case FaultKind.WIPED_DISK:
                return disk_faults.wipe(self._cluster, host)
            case FaultKind.DIR_FAILS:
                host.disk.break_dir(self._dir_of(fault))  # a disk does not mend itself
            case FaultKind.WIPED_DIR:
                return disk_faults.wipe_dir(self._cluster, host, self._dir_of(fault))
            case FaultKind.OLD_DISK:
                self._bring_back_later(host, fault.duration_s, host.disk.take_copy())
            case FaultKind.BIT_ROT:
                if disk_faults.rot(host, self._rng):
                    self._cluster.on_disk_rotten(host.name)
                    self._rotten.append(host)
        return None

    def _dir_of(self, fault: Fault) -> str:
        """Which of the directories; not drawn, so that other faults may be left out."""
        paths = self._cluster.extra_dirs
        return paths[int(fault.at_s * 1000) % len(paths)]

    def _bring_back_later(self, host: Host, after_s: float, copy: DiskCopy, tries: int = _SYNC_TRIES) -> None:
        def bring_back() -> None:
            if self._cluster.in_sync():
                disk_faults.bring_back(self._cluster, host, copy)
            elif tries:
                self._bring_back_later(host, _SYNC_POLL_S, copy, tries - 1)

        self._at(self._world.now_s + after_s, bring_back)

    def _crash(self, names: Sequence[str], *, power_loss: bool) -> Callable[[], None]:
        hit = [name for name in names if self._world.hosts[name].running]
        for name in hit:
            self._cluster.crash(name, power_loss=power_loss)

        def restart() -> None:
            for name in hit:
                if not self._world.hosts[name].running:
                    self._cluster.restart(name)

        return restart

    def _exchange_when_ended(self, name: str, path: str) -> None:
        host = self._world.hosts[name]
        if host.running:
            self._at(self._world.now_s + 0.1, lambda: self._exchange_when_ended(name, path))
        else:
            disk_faults.wipe_dir(self._cluster, host, path)()

    def _restart_when_ended(self, name: str) -> None:
        if self._world.hosts[name].running:
            self._at(self._world.now_s + 0.1, lambda: self._restart_when_ended(name))
        else:
            self._cluster.restart(name)

    def _cut(self, links: Sequence[tuple[str, str]]) -> Callable[[], None]:
        cut = [(source, target) for source, target in links if source != target]
        for source, target in cut:
            self._world.network.cut(source, target)

        def heal() -> None:
            for source, target in cut:
                self._world.network.heal(source, target)

        return heal

    def _reject(self, links: Sequence[tuple[str, str]]) -> Callable[[], None]:
        for source, target in links:
            self._world.network.reject(source, target)

        def heal() -> None:
            for source, target in links:
                self._world.network.accept(source, target)

        return heal


def _bridge(names: Sequence[str]) -> list[tuple[str, str]]:
    """Both directions of every link between two halves of the nodes after the first, which reaches all."""
    middle = 1 + len(names) // 2
    pairs = [(here, there) for here in names[1:middle] for there in names[middle:]]
    return pairs + [(there, here) for here, there in pairs]


def _split(names: Sequence[str], clients: Sequence[str], rng: random.Random) -> list[tuple[str, str]]:
    """Both directions of every link between two parts of the nodes, one of them with the clients."""
    mixed = rng.sample(names, len(names))
    middle = rng.randrange(1, len(names)) if len(names) > 1 else 1
    here, there = mixed[:middle], mixed[middle:]
    (here if rng.random() < 0.5 else there).extend(clients)
    pairs = [(one, other) for one in here for other in there]
    return pairs + [(other, one) for one, other in pairs]


def _outside_ring(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every link, in both directions, that is not between neighbours on a ring."""
    count = len(names)
    return [
        (here, there)
        for i, here in enumerate(names)
        for j, there in enumerate(names)
        if (i - j) % count not in (0, 1, count - 1)
    ]
