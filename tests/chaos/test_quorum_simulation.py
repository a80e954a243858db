"""The quorum alone under all kinds of faults together, with losses of power of all nodes."""

from __future__ import annotations

import pytest

from raftwerk.chaos.sim.faults.fault import FaultKind
from raftwerk.chaos.sim.faults.fault_drawing import draw_faults
from raftwerk.chaos.sim.faults.nemesis import Nemesis
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.quorum_simulation import FAULTS, QuorumSimulation

FAULTS_S = 8.0


def run(seed: int, voters: int) -> tuple[str, int]:
    with World(seed) as world:
        world.scheduler.stop_at_first_error = True
        cluster = QuorumSimulation(world, voters)
        cluster.start_all()
        faults = draw_faults(
            world.rng_for("faults"),
            [kind for kind in FAULTS if voters > 1 or kind not in (FaultKind.WIPED_DISK, FaultKind.OLD_DISK)],
            ["leader", "leader", *cluster.names],
            start_s=0.2,
            end_s=FAULTS_S,
            mean_gap_s=0.5,
            mean_duration_s=0.8,
        )
        nemesis = Nemesis(cluster, faults)
        try:
            nemesis.run(FAULTS_S)
            nemesis.heal_all()
            acked = len(cluster.acked)
            agreed = world.scheduler.run_until(cluster.all_agree, 15)
            world.scheduler.run_for(0.5)
            cluster.check_end()
            assert agreed, "no leader that all follow, 15 s after healing"
            assert len(cluster.acked) > acked, "no commits after healing"
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}\n" + "\n".join(world.trace.timeline(60)), pytrace=False)
        return world.trace.digest(), len(cluster.acked)


@pytest.mark.parametrize("first", range(0, 25, 5))
def test_three_voters(first: int) -> None:
    for seed in range(first, first + 5):
        run(seed, 3)


@pytest.mark.parametrize("seed", range(5))
def test_five_voters(seed: int) -> None:
    run(seed, 5)


def test_one_voter() -> None:
    run(1, 1)


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(3, 3) == run(3, 3)
