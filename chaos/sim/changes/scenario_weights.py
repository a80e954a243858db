"""How often each scenario is run when certain functions have changed: by how much it runs of what few scenarios run.

`reached_code.txt` says it of each function that scenarios run unevenly. `tests/chaos/changes/write_reached_code.py`
writes it from the lines that some seeds of each scenario have run: a line counts the more the fewer scenarios run it,
as a search engine weighs rare words. Lines that few scenarios run are in the table by themselves: many functions are
run by all scenarios, and their rare branches are not.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

Shares = Mapping[str, float]
"""By scenario; they add up to one at most, and the scenarios that are not named share the rest."""

_EVEN: Shares = {}
_EVEN_SHARE = 0.1
"""How many of the runs take any scenario: a change may do harm where nobody looks for it."""
_LINES_SHARE = 0.6
"""How much of a function's share its changed rare lines have, if there are any."""
_NAMES = "scenarios"


class ReachedCode:
    """The table, looked up by the names of functions."""

    def __init__(self, table: Mapping[str, Shares]) -> None:
        self._functions = table
        self._around: dict[str, list[Shares]] = defaultdict(list)
        for name, shares in table.items():
            for around in _around(name) if "#" not in name else ():
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

    def of_line(self, name: str) -> Shares | None:
        """Those of a line, named by its function and its key; None if it is not rare."""
        return self._functions.get(name)


def _of_lines(names: Iterable[str], code: ReachedCode) -> Mapping[str, list[Shares]]:
    """The shares of the rare lines among the names, by their functions; each once."""
    found: dict[str, list[Shares]] = defaultdict(list)
    for name in sorted(names):
        shares = code.of_line(name)
        function = name.partition("#")[0]
        if shares is not None and shares not in found[function]:
            found[function].append(shares)
    return found


def weights(names: Iterable[str], code: ReachedCode, scenarios: Sequence[str]) -> dict[str, float]:
    """How often each scenario shall be run, which add up to one; empty if no scenario is known to run the functions."""
    total = dict.fromkeys(scenarios, 0.0)
    names = tuple(names)
    of_lines = _of_lines((name for name in names if "#" in name), code)
    for name in sorted(name for name in names if "#" not in name):
        lines = of_lines.get(name, [])
        for group, part in ((code.shares_of(name), 1 - _LINES_SHARE if lines else 1.0), (lines, _LINES_SHARE)):
            for shares in group:
                for scenario, share in _filled(shares, scenarios).items():
                    total[scenario] += part * share / len(group)
    whole = sum(total.values())
    if not whole:
        return {}
    even = _EVEN_SHARE / len(scenarios)
    return {scenario: even + (1 - _EVEN_SHARE) * share / whole for scenario, share in total.items()}


def drawn(weights: Mapping[str, float], number: int) -> str:
    """The scenario of a seed: the same for the same weights and number."""
    return random.Random(f"{number} scenario").choices(list(weights), list(weights.values()))[0]


def parse(table: str) -> dict[str, Shares]:
    """The table from its text.

    The first line has the names of the scenarios, which the others name by their numbers. Then there is a line for each
    function, with shares in thousandths, such as `raft/log.py:Log.append 4=620`. Below it, after a space, are its rare
    lines: the keys of those that the same scenarios run, and their shares.
    """
    found: dict[str, Shares] = {}
    names: list[str] = []
    function = ""
    for line in table.splitlines():
        name, *shares = line.split()
        if name == _NAMES:
            names = shares
            continue
        pairs = (one.split("=") for one in shares)
        of = {names[int(number)] if names else number: int(thousandths) / 1000 for number, thousandths in pairs}
        if line.startswith(" "):
            found.update((f"{function}#{key}", of) for key in name.split(","))
            continue
        function = name
        if of:
            found[name] = of
    return found


def _filled(shares: Shares, scenarios: Sequence[str]) -> dict[str, float]:
    others = [one for one in scenarios if one not in shares]
    left = max(0.0, 1 - sum(shares.values()))
    return {one: shares[one] if one in shares else left / len(others) for one in scenarios}


def _around(name: str) -> tuple[str, ...]:
    """The class and the file of a function, as names."""
    path, _, function = name.partition(":")
    parent = function.rpartition(".")[0]
    return (f"{path}:{parent}", f"{path}:") if parent else (f"{path}:",)
