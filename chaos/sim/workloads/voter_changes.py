"""An administrator in the simulator that removes and adds voters while controllers die, are cut off and lose disks.

The controllers also join by themselves (`controller.quorum.auto.join.enable`): a controller that was removed asks to be
a voter again, and one that comes back with an empty disk first has its former directory id removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ....cluster.client.client_errors import ClientError
from ....cluster.client.cluster_client import ClusterClient
from ....cluster.client.quorum_client import QuorumClient, QuorumReplica
from ....raft.types import ReplicaKey
from ....raft.voters.voter_set import Voter, VoterListener
from ..invariants.invariant_broken import InvariantBroken
from ..simulated_cluster import SimulatedCluster
from .administrator import RepeatedChange
from .clients import ClientContext

CONTROLLER_LISTENER = "CONTROLLER"
_TIMEOUT_S = 2.0
_HASTY_PAUSE_S = 0.1
_UNSEEN = 0.5
_UNSEEN_S = 4.0
"""How often, and for how long at most, a hasty removal stays with the leader, or reaches one other controller."""
_VOTERS_MIN = 3
"""With two voters, one that loses its disk would take the majority with it for good."""


class VoterChanges(RepeatedChange):
    """Removes and adds voters; in the end every controller must be a voter."""

    name = "voters"
    mean_pause_s = 0.6

    def __init__(self, context: ClientContext, cluster: SimulatedCluster, *, is_hasty: bool = False) -> None:
        """A hasty one makes hardly a pause, and asks twice for each change without waiting for the first answer.

        Some removals stay with the leader, until the others, who get no metadata, elect another one that lacks it.
        """
        super().__init__(context)
        self._is_hasty = is_hasty
        if is_hasty:
            self.mean_pause_s = _HASTY_PAUSE_S
        self._checker = cluster.quorum
        self._network = cluster.world.network
        self._controllers = cluster.controllers
        self._why_not_all = cluster.why_not_all_vote
        bootstrap = ",".join(f"{host}:{port}" for host, port in self._controllers.values())
        self._client = ClusterClient(bootstrap, client_id=self.name, timeout_s=_TIMEOUT_S, probe_timeout_s=None)
        self._quorum = QuorumClient(self._client, at_controllers=True)

    async def change(self) -> None:
        """Remove or add a voter. If the answer is lost, the next DescribeQuorum shows what happened."""
        try:
            view = await self._quorum.describe()
            await self._change_one(list(view.replicas), view.leader_id)
        except ClientError:
            return

    async def _change_one(self, replicas: list[QuorumReplica], leader_id: int) -> None:
        rng = self.context.rng
        voters = [replica for replica in replicas if replica.is_voter]
        others = [replica for replica in replicas if not replica.is_voter and replica.node_id in self._controllers]
        if others and rng.random() < 0.5:
            await self._add(rng.choice(others))
        elif len(voters) > _VOTERS_MIN:
            leaders = [voter for voter in voters if voter.node_id == leader_id]
            chosen = rng.choice(leaders if leaders and rng.random() < 0.4 else voters)
            removing = asyncio.ensure_future(self._remove(chosen))
            if self._is_hasty and rng.random() < _UNSEEN:
                await self._let_nobody_see(removing, leader_id)
            await removing

    async def _let_nobody_see(self, change: asyncio.Task[None], leader_id: int) -> None:
        """Until the change is answered, all other controllers, or all but one, get no metadata."""
        others = [host for node_id, (host, _) in self._controllers.items() if node_id != leader_id]
        unseeing = self.context.rng.sample(others, len(others) - self.context.rng.randrange(2))
        for host in unseeing:
            self._network.stall_metadata(host)
        try:
            await asyncio.wait([change], timeout=_UNSEEN_S)
        finally:
            for host in unseeing:
                self._network.deliver_metadata(host)

    async def _remove(self, voter: QuorumReplica) -> None:
        key, since = ReplicaKey(voter.node_id, voter.directory_id), self._checker.committed_end
        await self._ask(lambda: self._quorum.remove_voter(voter.node_id, voter.directory_id))
        self._checker.check_voter_change(key, since, is_added=False)

    async def _add(self, replica: QuorumReplica) -> None:
        listener = VoterListener(CONTROLLER_LISTENER, *self._controllers[replica.node_id])
        key, since = ReplicaKey(replica.node_id, replica.directory_id), self._checker.committed_end
        await self._ask(lambda: self._quorum.add_voter(Voter(key, (listener,))))
        self._checker.check_voter_change(key, since, is_added=True)

    async def _ask(self, change: Callable[[], Awaitable[None]]) -> None:
        """Return if the change was carried out. Raises `ClientError` if it was refused, or nobody knows."""
        times = 2 if self._is_hasty else 1
        answers = await asyncio.gather(*(change() for _ in range(times)), return_exceptions=True)
        errors = [answer for answer in answers if answer is not None]
        for error in errors:
            if not isinstance(error, ClientError):
                raise error
        if len(errors) == len(answers):
            raise errors[0]

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return super().why_not_settled() or self._why_not_all()

    def check(self) -> None:
        """Every controller is a voter."""
        missing = self._why_not_all()
        if missing is not None:
            raise InvariantBroken("controllers that join become voters", missing)
