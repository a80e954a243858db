"""Which scenarios run which functions, from the lines that their seeds have run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from raftwerk.chaos.sim.changes.changed_functions import functions_of
from raftwerk.chaos.sim.changes.scenario_weights import SCENARIO_NAMES

SHARPNESS = 2
"""The power of a scenario's score that its share goes with."""
_NAMED_FROM = 1.5
"""A share is told from so many times an even one on."""

Line = tuple[str, int]
"""A path and a line's number."""


def table(reached: Mapping[str, Counter[Line]], seeds: int, sources: Mapping[str, str]) -> list[str]:
    """The lines of `reached_code.txt`: how many of a scenario's seeds reached each line, and the text of each file."""
    of_line: dict[Line, float] = defaultdict(float)
    for lines in reached.values():
        for line, count in lines.items():
            of_line[line] += count / seeds
    functions = {path: _outermost(source) for path, source in sources.items()}
    scores: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for scenario, lines in reached.items():
        for line, count in lines.items():
            path, number = line
            name = functions[path].get(number)
            if name is not None:
                scores[f"{path}:{name}"][scenario] += count / seeds / of_line[line]
    scenarios = list(reached)
    told = [of for name in sorted(scores) if (of := _told(name, scores[name], scenarios))]
    return [f"{SCENARIO_NAMES} {' '.join(scenarios)}", *told]


def _outermost(source: str) -> dict[int, str]:
    """The function or method around each line."""
    found: dict[int, str] = {}
    for name, first, last in sorted(functions_of(source), key=lambda one: len(one[0])):
        found.update(dict.fromkeys(range(first, last + 1), name))
    return found


def _told(name: str, scores: Mapping[str, float], scenarios: Sequence[str]) -> str | None:
    powers = {scenario: score**SHARPNESS for scenario, score in scores.items()}
    whole = sum(powers.values())
    shares = {scenario: power / whole for scenario, power in powers.items()}
    named = {one: share for one, share in shares.items() if share >= _NAMED_FROM / len(scenarios)}
    if not named:
        return None
    told = (
        f"{scenarios.index(one)}={round(1000 * share)}"
        for one, share in sorted(named.items(), key=lambda item: -item[1])
    )
    return f"{name} {' '.join(told)}"
