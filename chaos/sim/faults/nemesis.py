"""The nemesis: carries out faults on a simulated world, and takes them back."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ..disk.inodes import DiskCopy
from ..disk.interruption import Interruption, Operation
from ..invariants.invariant_broken import InvariantBroken
from ..kernel.event_loop import ProcessLoop, SimulationError
from ..kernel.world import Host
from . import disk_faults
from .fault import Fault, FaultKind, fault_text, hosts_of
from .network_partitions import bridge, ring, split
from .target_cluster import TargetCluster

_STOP_LIMIT_S = 30.0
_AT_ALL = (FaultKind.KILL_ALL, FaultKind.POWER_LOSS_ALL)
_NEEDS_ALL_IN_SYNC = (
    FaultKind.WIPED_DISK,
    FaultKind.OLD_DISK,
    FaultKind.BIT_ROT,
    FaultKind.STATE_ROT,
    FaultKind.WIPED_DIR,
    FaultKind.LYING_DISK,
)
_SYNC_POLL_S = 0.05
_SYNC_TRIES = 200
_MENDING_LIMIT_S = 60.0
_MENDING_POLL_S = 0.1
_IN_SYNC_LIMIT_S = 3.0
_LATE = (0.3, 0.8)
"""How many segments are late, and by how many seconds at most: more than the time-outs of impatient clients."""
_SLOW_S = (0.02, 0.2)
_ISR_SHRINKS_S = 1.5
"""After so long replicas that do not fetch have left the ISR, where `replica.lag.time.max.ms` is short."""
_SLOW_BEFORE_S = 0.5
_KILLED_PROBABILITY = 0.5
_METADATA_LEADER = "controller"
_SLOW_EVENT_S = (0.001, 0.004, 0.01)
_SLOW_FOR_S = (0.3, 2.0)
_JUMP_MS_MAX = 600_000
"""Far from the hour by which a record may be ahead of its broker's clock."""
_DRIFT_MAX = 0.05
_OPERATIONS_MAX = {Operation.DATA: 30, Operation.NAMES: 30, Operation.RENAME: 2}
"""How many operations of a kind may come before the end of the process in the midst of an event."""


class Nemesis:
    """Starts and undoes faults at their times, while virtual time passes."""

    def __init__(self, cluster: TargetCluster, faults: Sequence[Fault]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._schedule: list[tuple[float, int, Callable[[], None]]] = []
        self._entries = 0
        self._stopping: list[tuple[Host, ProcessLoop | None]] = []
        self._with_bit_rot: list[Host] = []
        self._rng = self._world.rng_for("nemesis")
        for fault in faults:
            self._at(fault.at_s, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def run(self, until_s: float) -> None:
        """Run the world up to `until_s`, with the faults that begin or end before."""
        self.run_until(None, until_s)

    def run_until(self, condition: Callable[[], bool] | None, until_s: float) -> bool:
        """Run the world until the condition holds, with the faults that begin or end before; False at `until_s`.

        It may be called within an event of the world, as by a process that sleeps: each fault happens once.
        """
        world = self._world
        while self._schedule and self._schedule[0][0] <= until_s:
            entry = self._schedule[0]
            if world.scheduler.run_until(condition, max(0.0, entry[0] - world.now_s)):
                return True
            if self._schedule and self._schedule[0] is entry:
                heapq.heappop(self._schedule)
                entry[2]()
        return world.scheduler.run_until(condition, max(0.0, until_s - world.now_s))

    def cancel(self) -> None:
        """Begin and undo nothing more."""
        self._schedule.clear()

    def heal_all(self) -> None:
        """Undo all faults: every node runs, no link is cut or slow. Failed log directories stay until `repair_dirs`."""
        self.cancel()
        self._world.trace.note("nemesis", "HEAL")
        self.heal_links_and_hosts()
        self._await_stops()
        for name in self._cluster.names:
            if not self._world.hosts[name].running:
                self._cluster.restart(name)
        self._await_mending()

    def heal_links_and_hosts(self) -> None:
        """No link is cut or slow, no disk slow or full, no host paused; what is down stays so."""
        if self._world.observer is not None:
            self._world.observer.on_heal()
        self._world.network.heal_all()
        for name in self._cluster.names:
            host = self._world.hosts[name]
            host.disk.set_sync_latency(*disk_faults.USUAL_SYNC_S)
            host.disk.fail_fsync(None)
            host.disk.lies = False
            host.disk.set_capacity()
            host.take_time(None)
            if host.running:
                host.disk.interruption = None
            host.resume()

    @property
    def has_failed_dirs(self) -> bool:
        """Whether a log directory has failed."""
        return any(self._world.hosts[name].disk.failed_dirs for name in self._cluster.names)

    def repair_dirs(self) -> None:
        """Repair all failed log directories."""
        for name in self._cluster.names:
            disk_faults.repair_dirs(self._cluster, self._world.hosts[name])

    def _await_mending(self) -> None:
        """Wait until damaged batches are found and mended from other replicas, without an operator."""
        while self._with_bit_rot:
            name = self._with_bit_rot.pop().name
            limit_s = self._world.now_s + _MENDING_LIMIT_S
            while not self._cluster.is_mended(name) and self._world.now_s < limit_s:
                self._world.scheduler.run_for(_MENDING_POLL_S)
            if self._world.now_s >= limit_s:
                raise InvariantBroken("rot is mended where another replica is sound", f"{name} is still damaged")

    def _await_stops(self) -> None:
        def stopped() -> bool:
            return all(host.process is not process for host, process in self._stopping)

        if not self._world.scheduler.run_until(stopped, _STOP_LIMIT_S):
            late = [host.name for host, process in self._stopping if host.process is process]
            raise SimulationError(f"asked to stop, still running after {_STOP_LIMIT_S:g} s: {', '.join(late)}")
        self._stopping.clear()

    def _at(self, at_s: float, action: Callable[[], None]) -> None:
        self._entries += 1
        heapq.heappush(self._schedule, (at_s, self._entries, action))

    def _begin(self, fault: Fault, tries: int = _SYNC_TRIES) -> None:
        target = self._cluster.resolve(fault.target)
        other = target if fault.other == fault.target else self._cluster.resolve(fault.other)
        if target is None or other is None:
            return
        must_wait = fault.kind in _NEEDS_ALL_IN_SYNC and not self._cluster.in_sync()
        if must_wait or (fault.kind in _AT_ALL and self._cluster.has_unnoticed_disk_loss()):
            if tries:
                self._at(self._world.now_s + _SYNC_POLL_S, lambda: self._begin(fault, tries - 1))
            return
        lasting = f" ({fault.lasts_s:.3f} s)" if fault.lasts_s else ""
        self._world.trace.note("nemesis", f"{fault_text(fault.kind, target, other)}{lasting}")
        if self._world.observer is not None:
            hosts = hosts_of(fault.kind, target, other, self._cluster.names)
            self._world.observer.on_fault(fault.kind.value, hosts, fault.lasts_s)
        undo = self._start_effect(fault, target, other)
        if undo is not None:
            self._at(self._world.now_s + fault.duration_s, undo)

    def _start_effect(self, fault: Fault, target: str, other: str) -> Callable[[], None] | None:
        host = self._world.hosts[target]
        match fault.kind:
            case FaultKind.KILL | FaultKind.POWER_LOSS:
                return self._crash([target], power_loss=fault.kind is FaultKind.POWER_LOSS)
            case FaultKind.KILL_AT_OPERATION | FaultKind.POWER_LOSS_AT_OPERATION:
                return self._interrupt(host, power_loss=fault.kind is FaultKind.POWER_LOSS_AT_OPERATION)
            case FaultKind.KILL_ALL | FaultKind.POWER_LOSS_ALL:
                return self._crash(self._cluster.names, power_loss=fault.kind is FaultKind.POWER_LOSS_ALL)
            case FaultKind.STOP:
                if not host.running:
                    return None
                self._stopping.append((host, host.process))
                self._cluster.stop(target)
                return lambda: self._restart_when_ended(target)
            case FaultKind.EXCHANGED_DIR | FaultKind.REMOVED_LOGS | FaultKind.SHORT_FILES:
                return self._harm_stopped(fault, host)
            case FaultKind.PAUSE:
                host.pause()
                return host.resume
            case FaultKind.SLOW_START:
                return self._start_slowly(host)
            case FaultKind.COORDINATORS_LOAD:
                self._cluster.load_coordinators_again(target, fault.duration_s)
                return None
            case FaultKind.LEFT_ALONE:
                return self._leave_alone(target)
            case FaultKind.OTHERS_KILLED:
                return self._kill_others(target)
            case FaultKind.CLOCK_JUMP:
                host.clock.jump(self._rng.randrange(-_JUMP_MS_MAX, _JUMP_MS_MAX))
                return None
            case FaultKind.CLOCK_DRIFT:
                host.clock.drift(self._rng.uniform(-_DRIFT_MAX, _DRIFT_MAX))
                return lambda: host.clock.drift(0.0)
            case _:
                return self._harm_network(fault, target, other)

    def _harm_network(self, fault: Fault, target: str, other: str) -> Callable[[], None] | None:
        network = self._world.network
        match fault.kind:
            case FaultKind.ISOLATE:
                return self._cut(_both_ways(target, self._cluster.names))
            case FaultKind.CUT:
                return self._cut([(target, other), (other, target)])
            case FaultKind.CUT_ONE_WAY:
                return self._cut([(target, other)])
            case FaultKind.STALLED_METADATA:
                network.stall_metadata(target)
                return lambda: network.deliver_metadata(target)
            case FaultKind.METADATA_STAYS:
                return self._keep_metadata(target, fault.duration_s)
            case FaultKind.RESET:
                network.reset_connections(target, other)
                return None
            case FaultKind.LOSE_ENDS:
                network.lose_ends(target, other)
                return None
            case FaultKind.REJECT:
                return self._reject([(name, target) for name in self._cluster.names if name != target])
            case FaultKind.SLOW_LINK:
                network.set_latency(target, other, _SLOW_S)
                return lambda: network.set_latency(target, other, None)
            case FaultKind.LATE_LINK:
                network.set_late(target, other, _LATE)
                return lambda: network.set_late(target, other, None)
            case FaultKind.SLOW_CLIENTS:
                return self._slow_clients(target)
            case FaultKind.BRIDGE:
                return self._cut(bridge([target, *(name for name in self._cluster.names if name != target)]))
            case FaultKind.RING:
                return self._cut(ring(self._cluster.names))
            case FaultKind.SPLIT:
                return self._cut(split(self._cluster.names, self._cluster.client_names, self._rng))
            case FaultKind.CLIENTS_CUT | FaultKind.CUT_OFF:
                nodes = self._cluster.names if fault.kind is FaultKind.CUT_OFF else ()
                return self._cut(_both_ways(target, (*self._cluster.client_names, *nodes)))
            case _:
                return self._harm_disk(fault, self._world.hosts[target])

    def _keep_metadata(self, target: str, duration_s: float, *, is_first: bool = True) -> Callable[[], None]:
        """No other node gets metadata; afterwards all do, and the target dies. Then the same with the next leader."""
        network = self._world.network
        others = [name for name in self._cluster.names if name != target]
        for name in others:
            network.stall_metadata(name)

        def keep_again() -> None:
            leader = self._cluster.resolve(_METADATA_LEADER)
            if leader is not None and leader != target:
                self._at(self._world.now_s + duration_s, self._keep_metadata(leader, duration_s, is_first=False))

        def kill() -> None:
            self._at(self._world.now_s + duration_s, self._crash([target], power_loss=False))
            for name in others:
                network.deliver_metadata(name)
            if is_first:
                self._at(self._world.now_s + duration_s / 2, keep_again)

        return kill

    def _others(self, target: str) -> list[str]:
        """The other hosts of the same kind: brokers, or controllers that are apart."""
        return [name for name in self._cluster.names if name != target and name[0] == target[0]]

    def _leave_alone(self, target: str) -> Callable[[], None]:
        """The ISR shrinks to the target, then another broker is elected that the target does not hear of."""
        heals = [self._cut(_both_ways(target, self._others(target)))]

        def cut_all() -> None:
            if heals:
                heals.append(self._cut(_both_ways(target, self._cluster.names)))

        def heal() -> None:
            while heals:
                heals.pop()()

        self._at(self._world.now_s + _ISR_SHRINKS_S, cut_all)
        return heal

    def _kill_others(self, target: str) -> Callable[[], None]:
        """Before the others die, the target has records of which it does not know that they are committed."""
        network, others = self._world.network, self._others(target)
        links = _both_ways(target, others)
        for source, receiver in links:
            network.set_latency(source, receiver, _SLOW_S)
        restarts: list[Callable[[], None]] = []
        is_over = False

        def kill() -> None:
            if not is_over:
                restarts.append(self._crash(others, power_loss=False))

        def undo() -> None:
            nonlocal is_over
            is_over = True
            for source, receiver in links:
                network.set_latency(source, receiver, None)
            for restart in restarts:
                restart()

        self._at(self._world.now_s + _SLOW_BEFORE_S, kill)
        return undo

    def _slow_clients(self, target: str) -> Callable[[], None]:
        """Some requests take so long that clients give up; they arrive after later ones on new connections."""
        network, clients = self._world.network, self._cluster.client_names
        for client in clients:
            network.set_late(client, target, _LATE)

        def undo() -> None:
            for client in clients:
                network.set_late(client, target, None)

        return undo

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
                host.disk.fail_dir(self._dir_of(fault))  # it stays failed until `repair_dirs`
            case FaultKind.REPLICA_FAILS:
                disk_faults.fail_replica(host, self._dir_of(fault), self._rng)
            case FaultKind.WIPED_DIR:
                return disk_faults.wipe_dir(self._cluster, host, self._dir_of(fault))
            case FaultKind.OLD_DISK:
                self._bring_back_later(host, fault.duration_s, host.disk.take_copy())
            case FaultKind.LYING_DISK:
                host.disk.lies = host.disk.has_lied = True
                return partial(self._lose_what_was_synced, host)
            case FaultKind.BIT_ROT | FaultKind.STATE_ROT:
                if disk_faults.rot(host, self._rng, of_coordinators=fault.kind is FaultKind.STATE_ROT):
                    self._cluster.on_bit_rot(host.name)
                    self._with_bit_rot.append(host)
        return None

    def _lose_what_was_synced(self, host: Host) -> None:
        """The power of a host whose disk has lied is lost, once all others have what is committed."""
        if self._world.scheduler.run_until(self._cluster.in_sync, _IN_SYNC_LIMIT_S) and host.running:
            self._cluster.crash(host.name, power_loss=True)
            self._cluster.on_disk_replaced(host.name)
            self._cluster.on_bit_rot(host.name)
            self._with_bit_rot.append(host)
            host.disk.lies = False
            self._cluster.restart(host.name)
        host.disk.lies = False

    def _dir_of(self, fault: Fault) -> str:
        """The log directory of a fault, by the fault's time and without a draw, so that faults may be left out."""
        paths = self._cluster.extra_log_dirs
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

    def _start_slowly(self, host: Host) -> Callable[[], None]:
        """Kill the node. For some time after its next start each of its events takes some milliseconds."""
        restart, longest_s = self._crash([host.name], power_loss=False), self._rng.choice(_SLOW_EVENT_S)
        host.take_time(lambda: self._rng.uniform(0, longest_s))

        def start() -> None:
            restart()
            self._at(self._world.now_s + self._rng.uniform(*_SLOW_FOR_S), lambda: host.take_time(None))

        return start

    def _interrupt(self, host: Host, *, power_loss: bool) -> Callable[[], None] | None:
        """End the process in the midst of an event, if it changes its disk often enough before the fault is undone."""
        if not host.running:
            return None
        end_process = partial(self._cluster.crash, host.name, power_loss=power_loss)
        least = self._rng.choice(list(_OPERATIONS_MAX))
        interruption = Interruption(self._rng.randrange(_OPERATIONS_MAX[least]), least, end_process)
        host.disk.interruption = interruption

        def undo() -> None:
            if host.disk.interruption is not interruption:
                return
            if not host.running:
                self._cluster.restart(host.name)
            host.disk.interruption = None

        return undo

    def _harm_stopped(self, fault: Fault, host: Host) -> Callable[[], None]:
        """Stop the node, harm its disk, and start it. Before its files end early it is as often killed."""
        harm: Callable[[TargetCluster, Host], Callable[[], None]]
        if fault.kind is FaultKind.EXCHANGED_DIR:
            harm = partial(disk_faults.wipe_dir, path=self._dir_of(fault))
        elif fault.kind is FaultKind.REMOVED_LOGS:
            harm = partial(disk_faults.remove_logs, rng=self._rng)
        else:
            harm = partial(disk_faults.cut_short, rng=self._rng)
            if not host.running or self._rng.random() < _KILLED_PROBABILITY:
                return harm(self._cluster, host)
        if host.running:
            self._stopping.append((host, host.process))
            self._cluster.stop(host.name)
        return lambda: self._when_ended(host.name, harm)

    def _when_ended(self, name: str, harm: Callable[[TargetCluster, Host], Callable[[], None]]) -> None:
        """Once a node that was asked to stop has ended, harm its disk, and start it."""
        host = self._world.hosts[name]
        if host.running:
            self._at(self._world.now_s + 0.1, lambda: self._when_ended(name, harm))
        else:
            harm(self._cluster, host)()

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


def _both_ways(target: str, others: Iterable[str]) -> list[tuple[str, str]]:
    """The links from a host to the others, and from them to it."""
    links = [(target, name) for name in others if name != target]
    return links + [(there, here) for here, there in links]
