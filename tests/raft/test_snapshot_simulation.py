"""Whole drivers on simulated disks make, cut behind and fetch snapshots while the power goes out at any step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftwerk.chaos.sim import quorum_simulation
from raftwerk.chaos.sim.faults.fault import FaultKind
from raftwerk.chaos.sim.faults.fault_drawing import draw_faults
from raftwerk.chaos.sim.faults.nemesis import Nemesis
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.quorum_simulation import QuorumSimulation
from raftwerk.wire.types import SnapshotId

FAULTS_S = 6.0
KINDS = [FaultKind.POWER_LOSS, FaultKind.POWER_LOSS, FaultKind.KILL, FaultKind.ISOLATE, FaultKind.POWER_LOSS_ALL]


def run(seed: int, voters: int) -> tuple[str, int]:
    """One history; the digest of its trace, and how often a running node had to go on from a snapshot."""
    with World(seed) as world:
        world.scheduler.stop_at_first_error = True
        cluster = QuorumSimulation(world, voters, snapshots=5)
        cluster.start_all()
        faults = draw_faults(
            world.rng_for("faults"),
            KINDS,
            ["leader", *cluster.names],
            start_s=0.2,
            end_s=FAULTS_S,
            mean_gap_s=0.4,
            mean_duration_s=1.0,
        )
        nemesis = Nemesis(cluster, faults)
        nemesis.run(FAULTS_S)
        nemesis.heal_all()
        agreed = world.scheduler.run_until(cluster.all_agree, 15)
        world.scheduler.run_for(0.5)
        cluster.check_end()
        assert agreed, "no leader that all follow, 15 s after healing"
        assert all(driver.quorum_state.log.start.end_offset > 0 for driver in cluster.drivers.values()), "logs are cut"
        return world.trace.digest(), sum(listener.snapshots_taken for listener in cluster.listeners.values())


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_seeds(first: int) -> None:
    taken = 0
    for seed in range(first, first + 4):
        try:
            taken += run(seed, 5 if seed % 4 == 3 else 3)[1]
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    assert taken


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(3, 3) == run(3, 3)


def name_one_too_far(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quorum_simulation, "snapshot_id_after", lambda batch: SnapshotId(batch.last_offset + 2, batch.epoch))


def name_one_too_near(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quorum_simulation, "snapshot_id_after", lambda batch: SnapshotId(batch.last_offset, batch.epoch))


@pytest.mark.parametrize("mutate", [name_one_too_far, name_one_too_near])
def test_mutant_is_caught(mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    for seed in range(40):
        try:
            run(seed, 3)
        except Exception:
            return
    raise AssertionError("not caught in 40 seeds")
