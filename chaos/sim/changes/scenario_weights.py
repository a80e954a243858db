"""How often each scenario is run when certain functions have changed: by how much it runs of what few scenarios run.

`reached_code.txt` says it of each function that scenarios run unevenly. `tests/chaos/changes/write_reached_code.py`
writes it from the lines that some seeds of each scenario have run: a line counts the more the fewer scenarios run it,
as a search engine weighs rare words.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

Shares = Mapping[str, float]
"""By scenario; they add up to one at most, and the scenarios that are not named share the rest."""

_EVEN: Shares = {}
_FILE_SHARE = 0.25
_FOLDER_SHARE = 0.15
"""How many of the runs take a scenario for what it runs around the function: of a function that all scenarios run, what
stands beside it says for which of them it matters."""
_EVEN_SHARE = 0.1
"""How many of the runs take any scenario: a change may do harm where nobody looks for it."""

SCENARIO_NAMES = "scenarios"
"""What the line of the table begins with that has their names."""


class ReachedCode:
    """The table, looked up by the names of functions."""

    def __init__(self, table: Mapping[str, Shares]) -> None:
        self._functions = table
        self._around: dict[str, list[Shares]] = defaultdict(list)
        for name, shares in table.items():
            for around in (*_around(name), _folder(name)):
                self._around[around].append(shares)

    @classmethod
    def load(cls) -> ReachedCode:
        """The table of the package."""
        return cls(parse(files(__package__).joinpath("reached_code.txt").read_text(encoding="utf-8")))

    def shares_of(self, name: str) -> Sequence[Shares]:
        """Those of the function; of a class or a file, those of all functions within it.

        A function that is not in the table is new, or all scenarios run it alike, so they share it evenly. Of a file
        that no scenario is known to run there are none.
        """
        if name in self._functions:
            return [self._functions[name]]
        is_known = f"{name.partition(':')[0]}:" in self._around
        return self._around.get(name, [_EVEN] if is_known else [])

    def shares_around(self, name: str) -> Sequence[tuple[float, Sequence[Shares]]]:
        """How much the function itself counts, its file and its folder, each with the shares of what is known in it."""
        of_function = self.shares_of(name)
        around = [
            (_FILE_SHARE, self._around.get(f"{name.partition(':')[0]}:")),
            (_FOLDER_SHARE, self._around.get(_folder(name))),
        ]
        known = [(weight, shares) for weight, shares in around if shares]
        if not of_function:
            return []
        return [(1 - sum(weight for weight, _ in known), of_function), *known]


def weights(names: Iterable[str], code: ReachedCode, scenarios: Sequence[str]) -> dict[str, float]:
    """How often each scenario shall be run, which add up to one; empty if no scenario is known to run the functions."""
    total = dict.fromkeys(scenarios, 0.0)
    for name in sorted(names):
        for weight, known in code.shares_around(name):
            for shares in known:
                for scenario, share in _filled(shares, scenarios).items():
                    total[scenario] += weight * share / len(known)
    whole = sum(total.values())
    if not whole:
        return {}
    even = _EVEN_SHARE / len(scenarios)
    return {scenario: even + (1 - _EVEN_SHARE) * share / whole for scenario, share in total.items()}


def drawn(weights: Mapping[str, float], number: int) -> str:
    """The scenario of a seed: the same for the same weights and number."""
    return random.Random(f"{number} scenario").choices(list(weights), list(weights.values()))[0]


def parse(table: str) -> dict[str, Shares]:
    """The table from its text: after a line with the names of the scenarios, one for each function.

    That has its scenarios by their numbers among the names, in thousandths: `3=620`.
    """
    first, *rows = table.splitlines()
    names = first.split()[1:]
    found: dict[str, Shares] = {}
    for row in rows:
        name, *shares = row.split()
        pairs = (one.split("=") for one in shares)
        found[name] = {names[int(number)]: int(thousandths) / 1000 for number, thousandths in pairs}
    return found


def _filled(shares: Shares, scenarios: Sequence[str]) -> dict[str, float]:
    others = [one for one in scenarios if one not in shares]
    left = max(0.0, 1 - sum(shares.values()))
    return {one: shares[one] if one in shares else left / len(others) for one in scenarios}


def _folder(name: str) -> str:
    """Of the function's file, as a name."""
    return f"{name.partition(':')[0].rpartition('/')[0]}/"


def _around(name: str) -> tuple[str, ...]:
    """The class and the file of a function, as names."""
    path, _, function = name.partition(":")
    parent = function.rpartition(".")[0]
    return (f"{path}:{parent}", f"{path}:") if parent else (f"{path}:",)
