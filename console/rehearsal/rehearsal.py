"""The failures of one local cluster, which all who use a console rehearse together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.ports import Clock
from ..errors import RequestRefusedError
from ..fields import Fields
from .chaos_run import ChaosRuns
from .local_cluster import LocalCluster

Tell = Callable[[str], None]


class Rehearsal:
    """The local cluster in `directory`, its faults and chaos runs. All that happens is told to those in `hearers`."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self.hearers: list[Tell] = []
        self.cluster = LocalCluster(directory, self._tell)
        self.chaos = ChaosRuns(directory, clock, self._tell)

    async def fault(self, fault: str, node_id: int, fields: Fields, who: str) -> dict[str, Any]:
        """Let `who` do something to a node. A chaos run has the cluster for itself: it judges what it did alone."""
        if self.chaos.injects_here:
            raise RequestRefusedError(409, "a chaos run injects faults into this cluster: stop it first")
        done = await self.cluster.carry_out(fault, node_id, fields)
        self._tell(f"{done}, by {who}")
        return {"done": done}

    async def close(self) -> None:
        """End the chaos run, and heal what needs no start of a node."""
        await self.chaos.close()
        self.cluster.stop()

    def _tell(self, sentence: str) -> None:
        for hear in list(self.hearers):
            hear(sentence)
