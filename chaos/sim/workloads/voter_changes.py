"""An administrator in the simulator who removes and adds controllers while they die, are cut off and lose their disks.

The controllers join by themselves, too (`controller.quorum.auto.join.enable`): one that is removed asks to be a voter
again, and one that comes back with an empty disk has its former self removed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ....cluster.client.client_errors import ClientError
from ....cluster.client.cluster_client import ClusterClient
from ....cluster.client.quorum_client import QuorumClient, QuorumReplica
from ....raft.types import ReplicaKey
from ....raft.voters.voter_set import Voter, VoterListener
from ..invariants.invariant_broken import InvariantBroken
from .clients import ClientContext

CONTROLLER_LISTENER = "CONTROLLER"
_PAUSE_S = 0.6
_TIMEOUT_S = 2.0
_VOTERS_MIN = 3
"""With two, a voter that loses its disk takes the majority with it for good."""


class VoterChanges:
    """An `Workload`. `controllers` are all that there are, by id; `why_not_all` names one that is no voter."""

    name = "voters"

    def __init__(
        self, context: ClientContext, controllers: dict[int, tuple[str, int]], why_not_all: Callable[[], str | None]
    ) -> None:
        self._context = context
        self._controllers = controllers
        self._why_not_all = why_not_all
        self._stopping = False
        self._finished = False
        bootstrap = ",".join(f"{host}:{port}" for host, port in controllers.values())
        self._client = ClusterClient(bootstrap, client_id=self.name, timeout_s=_TIMEOUT_S)
        self._quorum = QuorumClient(self._client, at_controllers=True)
        self.changes = 0

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self._context.rng.expovariate(1 / _PAUSE_S))
            try:
                view = await self._quorum.describe()
                await self._change(list(view.replicas), view.leader_id)
                self.changes += 1
            except ClientError:
                pass  # it may have been done all the same; the next look tells
        self._finished = True

    async def _change(self, replicas: list[QuorumReplica], leader_id: int) -> None:
        rng = self._context.rng
        voters = [replica for replica in replicas if replica.is_voter]
        others = [replica for replica in replicas if not replica.is_voter and replica.node_id in self._controllers]
        if others and rng.random() < 0.5:
            await self._add(rng.choice(others))
        elif len(voters) > _VOTERS_MIN:
            leaders = [voter for voter in voters if voter.node_id == leader_id]
            chosen = rng.choice(leaders if leaders and rng.random() < 0.4 else voters)
            await self._quorum.remove_voter(chosen.node_id, chosen.directory_id)

    async def _add(self, replica: QuorumReplica) -> None:
        listener = VoterListener(CONTROLLER_LISTENER, *self._controllers[replica.node_id])
        await self._quorum.add_voter(Voter(ReplicaKey(replica.node_id, replica.directory_id), (listener,)))

    def why_not_settled(self) -> str | None:
        return self._why_not_all() if self._finished else "it still acts"

    def check(self) -> None:
        """Every controller is a voter in the end."""
        missing = self._why_not_all()
        if missing is not None:
            raise InvariantBroken("controllers that join become voters", missing)
