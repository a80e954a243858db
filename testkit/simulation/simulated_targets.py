"""The cluster and the application as the nemesis sees them: hosts that faults happen to."""

from __future__ import annotations

from collections.abc import Sequence

from ...chaos.sim.kernel.world import World
from ...chaos.sim.simulated_cluster import SimulatedCluster
from .fault_names import APPLICATION
from .sim_application import SimApplication


class SimulatedTargets:
    """A `TargetCluster`: the nodes, and the processes of the application."""

    extra_log_dirs: Sequence[str] = ()

    def __init__(self, cluster: SimulatedCluster, test_host: str, flushes_each_batch: bool) -> None:
        self.world: World = cluster.world
        self.names: Sequence[str] = cluster.names
        self.applications: dict[str, SimApplication] = {}
        self._cluster = cluster
        self._test_host = test_host
        self._flushes_each_batch = flushes_each_batch
        self._turn = 0

    @property
    def client_names(self) -> Sequence[str]:
        """Hosts of clients."""
        return (self._test_host, *self.applications)

    def deaths(self) -> list[str]:
        """A sentence for each program that ended with an error which nobody has asked for."""
        found = self.applications.items()
        return [f"{name} ended with {each.error!r}" for name, each in found if each.error is not None]

    def resolve(self, target: str) -> str | None:
        """See `TargetCluster`. The processes of the application take turns."""
        if target != APPLICATION:
            return self._cluster.resolve(target)
        self._turn += 1
        names = list(self.applications) or [self._test_host]
        return names[self._turn % len(names)]

    def crash(self, name: str, *, power_loss: bool) -> None:
        """See `TargetCluster`."""
        if name in self.applications:
            self.applications[name].kill()
            self.applications[name].was_killed_by_fault = True
        elif name != self._test_host:
            if power_loss and not self._survives_power_loss():
                power_loss = False
                self.world.trace.note(name, "a kill instead of a loss of power: no other replica has all records")
            self._cluster.crash(name, power_loss=power_loss)

    def _survives_power_loss(self) -> bool:
        """Whether committed records survive it: nodes write to the page cache, as Kafka's do."""
        return self._flushes_each_batch or self._cluster.survives_power_loss()

    def restart(self, name: str) -> None:
        """See `TargetCluster`."""
        if name in self.applications:
            if self.applications[name].was_killed_by_fault:
                self.applications[name].start()
        elif name != self._test_host:
            self._cluster.restart(name)

    def restart_all(self) -> None:
        """Start the nodes that are down, and the processes of the application that a fault has killed."""
        down = [name for name in self.names if not self.world.hosts[name].running]
        for name in (*down, *self.applications):
            self.restart(name)

    def stop(self, name: str) -> None:
        """See `TargetCluster`."""
        self._cluster.stop(name)

    def in_sync(self) -> bool:
        """See `TargetCluster`."""
        return self._cluster.in_sync()

    def has_unnoticed_disk_loss(self) -> bool:
        """See `TargetCluster`."""
        return False

    def on_disk_replaced(self, name: str) -> None:
        """See `TargetCluster`."""
        self._cluster.on_disk_replaced(name)

    def on_bit_rot(self, name: str) -> None:
        """See `TargetCluster`."""
        self._cluster.on_bit_rot(name)

    def load_coordinators_again(self, name: str, duration_s: float) -> None:
        """See `TargetCluster`."""
        self._cluster.load_coordinators_again(name, duration_s)

    def is_mended(self, name: str) -> bool:
        """See `TargetCluster`."""
        return self._cluster.is_mended(name)
