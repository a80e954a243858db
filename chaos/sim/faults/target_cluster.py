"""What the nemesis needs of the cluster that the faults happen to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..kernel.world import World


class TargetCluster(Protocol):
    """The cluster that faults happen to."""

    @property
    def world(self) -> World: ...

    @property
    def names(self) -> Sequence[str]:
        """Its hosts."""
        ...

    @property
    def extra_log_dirs(self) -> Sequence[str]:
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
