"""Which scenarios run which functions, and which of their rare lines, from the lines that seeds have run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from raftwerk.chaos.sim.changes.changed_functions import functions_of, line_key

SHARPNESS = 2
"""The power of a scenario's score that its share goes with."""
_NAMED_FROM = 1.5
"""A share is told from so many times an even one on."""
_RARE = 0.25
"""A line is rare that at most so many of the scenarios run."""

Line = tuple[str, int]
"""A path and a line's number."""


def table(reached: Mapping[str, Counter[Line]], seeds: int, sources: Mapping[str, str]) -> list[str]:
    """The lines of `reached_code.txt`: how many of a scenario's seeds reached each line, and the text of each file."""
    scenarios = list(reached)
    of_line: dict[Line, dict[str, float]] = defaultdict(dict)
    for scenario, lines in reached.items():
        for line, count in lines.items():
            of_line[line][scenario] = count / seeds
    functions = {path: _outermost(source) for path, source in sources.items()}
    lines_of: dict[str, list[Line]] = defaultdict(list)
    for path, number in sorted(of_line):
        name = functions[path].get(number)
        if name is not None:
            lines_of[f"{path}:{name}"].append((path, number))
    told = [f"scenarios {' '.join(scenarios)}"]
    for name, of_function in sorted(lines_of.items()):
        shares = _of_function([of_line[line] for line in of_function])
        rare = _rare_lines(((line, of_line[line]) for line in of_function), sources, scenarios, shares)
        named = _numbered(
            {one: share for one, share in shares.items() if share >= _NAMED_FROM / len(reached)}, scenarios
        )
        if named or rare:
            told += [f"{name} {named}".rstrip(), *rare]
    return told


def _of_function(lines: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    scores: dict[str, float] = defaultdict(float)
    for reached in lines:
        whole = sum(reached.values())
        for scenario, count in reached.items():
            scores[scenario] += count / whole
    powers = {scenario: score**SHARPNESS for scenario, score in scores.items()}
    return {scenario: power / sum(powers.values()) for scenario, power in powers.items()}


def _rare_lines(
    lines: Iterable[tuple[Line, Mapping[str, float]]],
    sources: Mapping[str, str],
    scenarios: Sequence[str],
    of_function: Mapping[str, float],
) -> list[str]:
    """The lines that few scenarios run, unless these run the function alone; those with the same ones are together."""
    keys: dict[str, list[str]] = {}
    for (path, number), reached in lines:
        if len(reached) > _RARE * len(scenarios) or len(reached) == len(of_function):
            continue
        whole = sum(reached.values())
        told = _numbered({one: count / whole for one, count in reached.items()}, scenarios)
        key = line_key(sources[path].splitlines()[number - 1])
        if key not in keys.setdefault(told, []):
            keys[told].append(key)
    return [f" {','.join(of)} {told}" for told, of in keys.items()]


def _numbered(shares: Mapping[str, float], scenarios: Sequence[str]) -> str:
    """The shares in thousandths by the number of the scenario, the greatest first."""
    in_order = sorted(shares.items(), key=lambda item: -item[1])
    return " ".join(f"{scenarios.index(one)}={round(1000 * share)}" for one, share in in_order)


def _outermost(source: str) -> dict[int, str]:
    """The function or method around each line."""
    found: dict[int, str] = {}
    for name, first, last in sorted(functions_of(source), key=lambda one: len(one[0])):
        found.update(dict.fromkeys(range(first, last + 1), name))
    return found
