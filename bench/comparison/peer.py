"""A cluster in a comparison: one that was started for it, or any that runs already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...cluster.local.processes import cpu_seconds
from ..common.systems import System, memory_mb


class Replication(NamedTuple):
    """How many replicas the partitions of a topic have, and the `acks` that producers ask for."""

    replicas: int
    acks: int

    def __str__(self) -> str:
        return f"RF{self.replicas} acks={'all' if self.acks < 0 else self.acks}"


UNREPLICATED = Replication(1, 1)


@dataclass(frozen=True, slots=True)
class Peer:
    """A running cluster. Its processor time and memory are known if there are `pids`, its files if `directory`."""

    name: str
    bootstrap: str
    pids: tuple[int, ...] = ()
    directory: Path | None = None
    brokers: int = 3

    @staticmethod
    def of(system: System) -> Peer:
        """The cluster that was started."""
        return Peer(system.name, system.bootstrap, tuple(system.pids()), system.directory, system.nodes)

    @staticmethod
    def parse(text: str) -> Peer:
        """A cluster from `NAME=HOST:PORT[,...][;PID,...]`. Raises ValueError for what is not such a text."""
        name, equals, rest = text.partition("=")
        bootstrap, _, pids = rest.partition(";")
        if not (name and equals and bootstrap):
            raise ValueError(
                f"{text!r} is not NAME=HOST:PORT, with the process ids of its brokers as ;PID,... behind it"
            )
        return Peer(name, bootstrap, tuple(int(pid) for pid in pids.split(",") if pid))

    @property
    def replicated(self) -> Replication:
        """Three replicas, or as many as there are brokers, all of which acknowledge."""
        return Replication(min(self.brokers, 3), -1)

    def cpu_seconds(self) -> float | None:
        """The processor time of all nodes so far; None where it is not known."""
        return sum(cpu_seconds(pid) or 0.0 for pid in self.pids) if self.pids else None

    def memory_mb(self) -> float | None:
        """The resident memory of all nodes; None where it is not known."""
        return sum(map(memory_mb, self.pids)) if self.pids else None
