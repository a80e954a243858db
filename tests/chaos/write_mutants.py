"""Writes docs/mutants.md: every mutant, and how many seeds it took until it was noticed. Run it as a program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Both folders have a `test_mutants`; the quorum's is the one that is asked.
sys.path[:0] = [str(ROOT / "tests" / "raft"), str(ROOT / "tests" / "chaos")]

_SEEDS_OF_QUORUMS = 600
_HEAD = """# Bugs put back in

A check of the checkers: bugs that Kafka, KRaft and others once had, put back in one at a time by a patch in the tests.
Each must be noticed. Written by `python tests/chaos/write_mutants.py`; the tests are `tests/chaos/test_mutants.py`
(whole nodes in the simulator) and `tests/raft/test_mutants.py` (the quorum's core on a model of the network).

Whole nodes did not show, in the seeds that were tried: a stale fetch that is not fenced (KIP-320), a divergence
answered for an epoch that the leader never had (KIP-279), offsets of a group answered before they are replicated.

| bug | seen by | runs until seen | what was said |
|---|---|---|---|
"""


def rows() -> Iterator[str]:
    """One line of the table for each mutant."""
    from mutants import MUTANTS, seeds_until_caught
    from test_mutants import MUTANTS as QUORUM
    from test_mutants import SNAPSHOT_MUTANTS

    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as patch:
            mutant.apply(patch)
            found = seeds_until_caught(mutant)
        count, text = found or (mutant.seeds * len(mutant.scenarios), "**not seen**")
        yield _row(mutant.name, f"scenario {' or '.join(mutant.scenarios)}", count, text)
    for mutate in [*QUORUM, *SNAPSHOT_MUTANTS]:
        with pytest.MonkeyPatch.context() as patch:
            mutate(patch)
            count, text = _quorum_seeds(snapshots=mutate in SNAPSHOT_MUTANTS)
        yield _row(mutate.__name__.replace("_", " "), "the quorum's model", count, text)


def _quorum_seeds(*, snapshots: bool) -> tuple[int, str]:
    from raft_sim import live_through

    for seed in range(_SEEDS_OF_QUORUMS):
        try:
            live_through(seed, voters=5 if seed % 2 else 3, observers=0, snapshots=snapshots)
        except Exception as error:
            return seed + 1, str(error) or type(error).__name__
    return _SEEDS_OF_QUORUMS, "**not seen**"


def _row(name: str, where: str, count: int, text: str) -> str:
    said = text.splitlines()[0].replace("|", "/")
    return f"| {name} | {where} | {count} | {said[:90]} |\n"


if __name__ == "__main__":
    (ROOT / "docs" / "mutants.md").write_text(_HEAD + "".join(rows()), encoding="utf-8")
