"""What the nemesis needs of the cluster that the faults happen to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..kernel.world import World

LOG_DIR = "/data"
"""The log directory of each host that has the metadata log."""


class TargetCluster(Protocol):
    """The cluster under faults: whole nodes, or the metadata quorum alone."""

    @property
    def world(self) -> World:
        """The world of its hosts."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """The names of its hosts."""
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
        """The host that has a role now, or the host of this name; None if there is none."""
        ...

    def in_sync(self) -> bool:
        """Whether every replica and every voter has everything that is committed, so that one disk may be lost."""
        ...

    def has_unnoticed_disk_loss(self) -> bool:
        """Whether a broker died with its disk and the controller does not know it yet.

        If all other brokers die now without a clean stop, that broker is the last one in the ISR, and only an unclean
        election can help (KIP-966).
        """
        ...

    def on_disk_replaced(self, name: str) -> None:
        """The host has an empty disk, or an old copy of its disk."""
        ...

    def on_bit_rot(self, name: str) -> None:
        """The host's disk holds damaged batches until they are mended, or the disk is replaced."""
        ...

    def is_mended(self, name: str) -> bool:
        """Whether the host's replicas hold what is committed again, after bit rot."""
        ...

    def crash(self, name: str, *, power_loss: bool) -> None:
        """Kill the host's process; with `power_loss` its disk loses unsynced bytes."""
        ...

    def restart(self, name: str) -> None:
        """Start a process on the host."""
        ...

    def stop(self, name: str) -> None:
        """Ask the process to stop cleanly."""
        ...

    def load_coordinators_again(self, name: str, duration_s: float) -> None:
        """A node's coordinators of transactions load again, as when part of a write was refused.

        They do so while markers are under way, again and again for some seconds.
        """
        ...
