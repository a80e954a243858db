"""The statements of what happens sometimes (`runtime/invariants.py`): which there are, and which some run confirmed.

`python -m raftwerk.chaos.sim.statements FILE` writes the table of docs/rare-branches.md from what `raftwerk sim --json`
has printed.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_LAYERS = ("raft", "log", "isr", "controller", "broker")


def all_statements() -> dict[str, str]:
    """Each statement in the code, with the file it stands in. Raises ValueError for one that stands there twice."""
    found: dict[str, str] = {}
    for layer in _LAYERS:
        for path in sorted((_PACKAGE / layer).rglob("*.py")):
            for what in _statements_in(path):
                if what in found:
                    raise ValueError(f"{path}: {what!r} is stated twice")
                found[what] = path.relative_to(_PACKAGE).as_posix()
    return found


def _statements_in(path: Path) -> Iterator[str]:
    text = path.read_text()
    if "sometimes(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sometimes":
            what = node.args[1] if len(node.args) == 2 else None
            if not isinstance(what, ast.Constant) or not isinstance(what.value, str):
                raise ValueError(f"{path}:{node.lineno}: a statement is a literal text")
            yield what.value


class ConfirmedStatements:
    """How many runs of each scenario confirmed each statement."""

    def __init__(self) -> None:
        self._runs: dict[str, Counter[str]] = {what: Counter() for what in all_statements()}

    def add(self, scenario: str, seen: tuple[str, ...]) -> None:
        """A run of the scenario confirmed these."""
        for what in seen:
            self._runs.setdefault(what, Counter())[scenario] += 1

    @property
    def never(self) -> list[str]:
        """Those that no run confirmed."""
        return [what for what, runs in self._runs.items() if not runs]

    def __len__(self) -> int:
        return len(self._runs)

    def as_json(self) -> dict[str, dict[str, int]]:
        """The runs of each scenario, for each statement."""
        return {what: dict(sorted(runs.items())) for what, runs in self._runs.items()}


def table(confirmed: Mapping[str, Mapping[str, int]]) -> str:
    """The statements as a table in Markdown: the rarest first."""
    lines = ["| What happens | Stated in | Runs | Scenarios |", "|---|---|---:|---|"]
    places = all_statements()
    rows = sorted((sum(confirmed.get(what, {}).values()), what) for what in places)
    for count, what in rows:
        scenarios = sorted(confirmed.get(what, {}).items(), key=lambda one: (-one[1], one[0]))
        named = ", ".join(name for name, _ in scenarios[:3]) + (" ..." if len(scenarios) > 3 else "")
        lines.append(f"| {what} | `{places[what]}` | {count} | {named} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.chaos.sim.statements", description=__doc__)
    parser.add_argument("file", type=Path, help="what raftwerk sim --json has printed")
    options = parser.parse_args(arguments)
    print(table(json.loads(options.file.read_text())["sometimes"]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
