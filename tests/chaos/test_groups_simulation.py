"""Groups of both protocols on whole nodes under seeded faults."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from support.chaos.group_members import PARTITIONS, TOPIC, ClassicMember, ConsumerMember, GroupHistory, Member

from raftwerk.chaos.sim.cluster_config import ClusterConfig
from raftwerk.chaos.sim.faults.fault import FaultKind
from raftwerk.chaos.sim.faults.fault_drawing import draw_faults
from raftwerk.chaos.sim.faults.nemesis import Nemesis
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.simulated_cluster import SimulatedCluster
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.cluster_client import ClusterClient

CLIENT = "k1"
MEMBERS = 3
FAULTS = {
    "kill": (FaultKind.KILL, FaultKind.KILL, FaultKind.KILL_ALL),
    "stop": (FaultKind.STOP,),
    "network": (FaultKind.ISOLATE, FaultKind.CUT, FaultKind.CUT_ONE_WAY, FaultKind.RESET, FaultKind.PAUSE),
}
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.commit.timeout.ms": "2000",
}


class GroupRun:
    """Three nodes and three members, with faults for six seconds; then everything is healed."""

    def __init__(self, protocol: str, faults: str, seed: int) -> None:
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, ClusterConfig(3, 0, (CLIENT,), SETTINGS))
        self.client_host = self.world.add_host(CLIENT)
        self.history = GroupHistory()
        self.protocol = protocol
        self.topic_id = UUID(int=0)
        self.members: list[Member] = []
        kinds = FAULTS[faults]
        targets = ("leader", "controller", "n1", "n2", "n3")
        self.faults = draw_faults(
            self.world.rng_for("faults"), kinds, targets, start_s=1.5, end_s=6, mean_gap_s=0.8, mean_duration_s=0.8
        )

    def execute(self) -> GroupHistory:
        with self.world:
            self.cluster.start_all()
            self.until(self.cluster.is_healthy, "the cluster starts")
            process = self.client_host.start(lambda _: self.main())
            assert process is not None
            nemesis = Nemesis(self.cluster, self.faults)
            nemesis.run(6.0)
            nemesis.heal_all()
            self.until(self.cluster.is_healthy, "the cluster heals")
            self.until(self.is_settled, "the group settles")
            before = dict(self.history.acked)
            self.until(
                lambda: all(self.history.acked.get(one, 0) > before.get(one, 0) for one in range(PARTITIONS)),
                "everybody commits again",
            )
            self.check_errors()
        return self.history

    async def main(self) -> None:
        async with ClusterClient(self.cluster.bootstrap) as client:
            await AdminClient(client).create_topic(NewTopic(TOPIC, PARTITIONS, 3))
            topic_id = (await client.metadata([TOPIC])).topic(TOPIC).topic_id
        assert topic_id is not None
        self.topic_id = topic_id
        self.members = [self.member(number) for number in range(MEMBERS)]
        await asyncio.gather(*(member.run() for member in self.members))

    def member(self, number: int) -> Member:
        name = f"m{number}"
        given = name, list(self.cluster.names), self.world.rng_for(name), self.history
        if self.protocol == "classic":
            return ClassicMember(*given)
        return ConsumerMember(*given, lambda: self.topic_id)

    def is_settled(self) -> bool:
        owned = sorted(part for member in self.members for part in member.owned)
        same = {member.generation for member in self.members}
        return owned == list(range(PARTITIONS)) and len(same) == 1

    def until(self, condition: object, what: str) -> None:
        done = self.world.scheduler.run_until(condition, 60.0)  # type: ignore[arg-type]
        self.check_errors()
        if not done:
            state = [(member.member_id, member.generation, member.owned) for member in self.members]
            raise InvariantBroken(what, f"not in a minute; {state}; {self.cluster.why_not_healthy()}")

    def check_errors(self) -> None:
        if self.world.errors:
            raise InvariantBroken("nothing fails unseen", str(self.world.errors[0]))


@pytest.mark.parametrize("faults", sorted(FAULTS))
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_no_commit_is_lost_and_groups_settle(protocol: str, faults: str) -> None:
    for seed in range(6):
        run = GroupRun(protocol, faults, seed)
        try:
            history = run.execute()
        except InvariantBroken as error:
            timeline = "\n".join(run.world.trace.timeline())
            pytest.fail(f"{protocol} {faults} seed {seed}: {error}\n{timeline}", pytrace=False)
        assert history.commits > 20
