"""Writes docs/mutants.md: every mutant, and how many seeds it took until it was noticed. Run it as a program."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Both folders have a `test_mutants`; the quorum's is the one that is asked.
sys.path[:0] = [str(ROOT / "tests" / "raft"), str(ROOT / "tests" / "chaos")]

_SEEDS_OF_QUORUMS = 600
_HEAD = """# Bugs put back in

A check of the checkers: bugs that Kafka, KRaft and others once had, put back in one at a time by a patch in the tests.
Each must be noticed. Written by `python tests/chaos/write_mutants.py`; the tests are `tests/chaos/test_mutants.py`
(whole nodes in the simulator), `tests/raft/test_mutants.py` and `tests/raft/test_voter_changes.py` (the quorum's core
on a model of the network, with voters that stay and with voters that come and go). Runs are counted from seed 0 on.

| bug | seen by | runs until seen | what was said |
|---|---|---|---|
"""


def rows() -> Iterator[str]:
    """One line of the table for each mutant."""
    from mutants import MUTANTS, seeds_until_caught
    from raft_sim import live_through
    from test_mutants import MUTANTS as QUORUM
    from test_mutants import SNAPSHOT_MUTANTS
    from test_voter_changes import MUTANTS as VOTERS
    from voters_sim import live_through as live_with_changes

    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as patch:
            mutant.apply(patch)
            found = seeds_until_caught(mutant)
        count, text = found or (mutant.seeds * len(mutant.scenarios), "**not seen**")
        yield _row(mutant.name, f"scenario {' or '.join(mutant.scenarios)}", count, text)
    for mutate in [*QUORUM, *SNAPSHOT_MUTANTS]:

        def live(seed: int, snapshots: bool = mutate in SNAPSHOT_MUTANTS) -> object:
            return live_through(seed, voters=5 if seed % 2 else 3, observers=0, snapshots=snapshots)

        yield _quorum_row(mutate, live, "the quorum's model")
    for mutate in VOTERS:
        yield _quorum_row(mutate, live_with_changes, "the model with changing voters")


def _quorum_row(mutate: Callable[[pytest.MonkeyPatch], None], live: Callable[[int], object], where: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        count, text = _quorum_seeds(live)
    source = re.search(r"(KAFKA|KIP)-\d+", mutate.__doc__ or "")
    name = mutate.__name__.replace("_", " ")
    return _row(name if source is None else f"{name} ({source.group()})", where, count, text)


def _quorum_seeds(live: Callable[[int], object]) -> tuple[int, str]:
    for seed in range(_SEEDS_OF_QUORUMS):
        try:
            live(seed)
        except Exception as error:
            return seed + 1, str(error) or type(error).__name__
    return _SEEDS_OF_QUORUMS, "**not seen**"


def _row(name: str, where: str, count: int, text: str) -> str:
    said = text.splitlines()[0].replace("|", "/")
    return f"| {name} | {where} | {count} | {said[:90]} |\n"


if __name__ == "__main__":
    (ROOT / "docs" / "mutants.md").write_text(_HEAD + "".join(rows()), encoding="utf-8")
