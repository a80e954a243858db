"""Writes docs/mutants.md: every mutant, and how many seeds it took to find it. Run it as a program.

Beside it, `mutant_seeds.txt` gets the run that showed each bug. With `--seeds`, only that is written, and only the runs
that show their bug no more are looked for anew: which is to be done when the order of events has moved. With `--new`,
only bugs are looked for that the page does not have.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.chaos.mutants import Caught, first_to_catch, runs_to_try  # noqa: E402

_SEEDS_OF_QUORUMS = 900
_HEAD = """# Bugs put back in

These tests check the checkers: a patch puts bugs back in, one at a time, which Kafka, KRaft or other systems once
had, and each must be noticed. `python tests/chaos/write_mutants.py` writes this page. The tests are
`tests/chaos/test_mutants.py` (whole nodes in the simulator), and `tests/raft/test_mutants.py` and
`tests/raft/test_voter_changes.py` (the quorum's core on a model of the network, with fixed and with changing
voters). Runs are counted from seed 0 on; the tests begin with the run in `tests/chaos/mutant_seeds.txt` that showed the
bug, and `write_mutants.py --seeds` looks anew for those that show it no more. A bug that hardly any seed shows has a
test that drives just that interleaving instead.

Most bugs of transaction coordinators do harm only when somebody decides otherwise later. So the simulator compares
each marker that a leader appends, and each end that a client is told of, with the decisions that are committed
(`chaos/sim/invariants/decision_invariants.py`). Then any seed shows a coordinator that acts too early, also one that
has just loaded: Apache Kafka's loads up to the end of its log and acts on that, ours waits until it is committed.

The late marker of a former coordinator harms only clients below `transaction.version` 2. Another coordinator has
written the marker again and completed the transaction, and the same producer has begun the next one with the same
epoch: the late marker would end that one. Only its coordinator epoch tells that it is late. From version 2 on the next
transaction has the epoch of the marker, and a marker of the same epoch is refused while a transaction is open.

| bug | seen by | runs until seen | what was said |
|---|---|---|---|
"""
_KEPT = "## Slips that nobody listed"
"""From here on the page was written by hand."""


def kept(page: Path) -> str:
    """The part of the present page that is not made of the mutants."""
    return "\n" + _KEPT + page.read_text(encoding="utf-8").partition(_KEPT)[2]


def lines_of(page: Path) -> dict[str, str]:
    """The lines of the page's table, by their bugs."""
    table = page.read_text(encoding="utf-8").partition(_KEPT)[0].splitlines(keepends=True)
    return {line.split("|")[1].strip(): line for line in table if line.startswith("| ")}


def rows(processes: int, told: Mapping[str, str]) -> Iterator[str]:
    """One line of the table for each mutant: that of `told`, or what is found."""
    from support.raft.quorum_mutants import MUTANTS, SNAPSHOT_MUTANTS

    from raft import test_voter_changes

    yield from look_for_whole(processes, anew=True, told=told)
    names = {_quorum: [*MUTANTS, *SNAPSHOT_MUTANTS], _voters: test_voter_changes.MUTANTS}
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        made = [
            told.get(_name_of(mutate)) or pool.apply_async(make, (number,))
            for make, mutants in names.items()
            for number, mutate in enumerate(mutants)
        ]
        for one in made:
            yield one if isinstance(one, str) else one.get()


def look_for_whole(processes: int, *, anew: bool, told: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """One line for each mutant of whole nodes; their seeds are written. Not anew: runs that show them still stay.

    Those with a line in `told` are not looked for.
    """
    from support.chaos.mutants import MUTANT_SEEDS, remembered_runs
    from support.chaos.promise_mutants import ALL_MUTANTS

    known = remembered_runs()
    remembered = {} if anew else known
    seeds = []
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        made = {
            mutant.name: pool.apply_async(_whole, (number, remembered.get(mutant.name)))
            for number, mutant in enumerate(ALL_MUTANTS)
            if mutant.name not in told
        }
        for mutant in ALL_MUTANTS:
            if mutant.name in told:
                if mutant.name in known:
                    seeds.append(f"{known[mutant.name][0]} {known[mutant.name][1]} {mutant.name}\n")
                yield told[mutant.name]
                continue
            found = made[mutant.name].get()
            where = f"scenario {' or '.join(mutant.scenarios)}" if mutant.scenarios else "a test of that interleaving"
            if found is None:
                print(f"NOT SEEN: {mutant.name}", file=sys.stderr, flush=True)
                yield _row(mutant.name, where, len(list(runs_to_try(mutant))), "**not seen**")
                continue
            print(f"{found.runs} {found.scenario} {found.seed}: {mutant.name}", file=sys.stderr, flush=True)
            if mutant.scenarios:
                seeds.append(f"{found.scenario} {found.seed} {mutant.name}\n")
            said = f"{found.scenario} {found.seed}: {found.failure}" if mutant.scenarios else found.failure
            yield _row(mutant.name, where, found.runs, said)
    MUTANT_SEEDS.write_text("".join(seeds), encoding="utf-8")


def _whole(number: int, remembered: tuple[str, int] | None) -> Caught | None:
    from support.chaos.promise_mutants import ALL_MUTANTS

    mutant = ALL_MUTANTS[number]
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        return first_to_catch(mutant, runs_to_try(mutant, remembered))


def _quorum(number: int) -> str:
    from support.raft.quorum_mutants import MUTANTS, SNAPSHOT_MUTANTS
    from support.raft.simulation import simulate

    mutate = [*MUTANTS, *SNAPSHOT_MUTANTS][number]

    def live(seed: int) -> object:
        voters = 5 if seed % 2 else 3
        return simulate(seed, voters=voters, observers=0, snapshots=mutate in SNAPSHOT_MUTANTS)

    return _quorum_row(mutate, live, "the quorum's model")


def _voters(number: int) -> str:
    from raft.test_voter_changes import MUTANTS
    from support.raft.voters_simulation import simulate

    return _quorum_row(MUTANTS[number], simulate, "the model with changing voters")


def _quorum_row(mutate: Callable[[pytest.MonkeyPatch], None], live: Callable[[int], object], where: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        count, text = _quorum_seeds(live)
    return _row(_name_of(mutate), where, count, text)


def _name_of(mutate: Callable[[pytest.MonkeyPatch], None]) -> str:
    source = re.search(r"(KAFKA|KIP)-\d+", mutate.__doc__ or "")
    name = mutate.__name__.replace("_", " ")
    return name if source is None else f"{name} ({source.group()})"


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


def main() -> None:
    """Write the seeds, and unless told otherwise the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("processes", nargs="?", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", action="store_true", help="write mutant_seeds.txt alone")
    parser.add_argument("--new", action="store_true", help="look only for bugs that the page does not have")
    arguments = parser.parse_args()
    if arguments.seeds:
        for _ in look_for_whole(arguments.processes, anew=False):
            pass
        return
    page = ROOT / "docs" / "mutants.md"
    made = "".join(rows(arguments.processes, lines_of(page) if arguments.new else {}))
    page.write_text(_HEAD + made + kept(page), encoding="utf-8")


if __name__ == "__main__":
    main()
