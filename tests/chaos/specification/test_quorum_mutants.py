"""Known ways to break a quorum: the specification alone tells of them, whatever the invariants say."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.raft import quorum_mutants as mutants
from support.raft.quorum_mutants import Mutate

from raftwerk.chaos.sim.faults.fault_drawing import draw_faults
from raftwerk.chaos.sim.faults.nemesis import Nemesis
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.quorum_invariants import QuorumChecker
from raftwerk.chaos.sim.kernel.event_loop import SimulationError
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.quorum_simulation import FAULTS, QuorumSimulation

FAULTS_S = 8.0
SEEDS = 40
CAUGHT: dict[Mutate, tuple[int, str]] = {
    mutants.forget_votes: (0, "stable storage of currentEpoch and votedFor"),
    mutants.vote_for_short_logs: (3, "not HandleRequestVoteRequest: the log of"),
    mutants.commit_older_epochs_by_count: (0, "is of an epoch before"),
    mutants.count_diverging_fetches: (0, "have the log up to"),
    mutants.never_truncate_by_epoch: (13, "is no part of the leader's in epoch"),
    mutants.minority_elects: (0, "no voter can have answered its pre-votes within the same event"),
}
"""A seed that showed the bug when it was last looked for, and what is said."""


def what_is_broken(seed: int) -> str:
    """Run a quorum with drawn faults; what the specification says, or nothing."""
    with World(seed) as world:
        world.scheduler.stop_at_first_error = True
        cluster = QuorumSimulation(world, 5 if seed % 2 else 3)
        cluster.start_all()
        faults = draw_faults(
            world.rng_for("faults"),
            FAULTS,
            ["leader", "leader", *cluster.names],
            start_s=0.2,
            end_s=FAULTS_S,
            mean_gap_s=0.5,
            mean_duration_s=0.8,
        )
        try:
            Nemesis(cluster, faults).run(FAULTS_S)
        except (InvariantBroken, SimulationError) as error:
            return str(error)
        return ""


@pytest.mark.parametrize("mutate", CAUGHT, ids=lambda mutate: mutate.__name__)
def test_the_specification_alone_tells_of(mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    check_invariants = QuorumChecker.after_event

    def only_note(self: QuorumChecker, node_id: int) -> None:
        with suppress(InvariantBroken):
            check_invariants(self, node_id)

    monkeypatch.setattr(QuorumChecker, "after_event", only_note)
    mutate(monkeypatch)
    known, sentence = CAUGHT[mutate]
    said = next((text for seed in (known, *range(SEEDS)) if (text := what_is_broken(seed))), "")
    assert said.startswith("each step of the quorum is one of its specification")
    assert sentence in said
