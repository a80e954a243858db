"""What was measured of several systems: all figures, their medians, and the table of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .client_workloads import Figure


@dataclass
class Row:
    """What was measured of one thing: the figures of each cluster, one of each turn."""

    name: str
    figures: dict[str, list[Figure]] = field(default_factory=dict)

    def median(self, system: str) -> float | None:
        """The median over the turns; None where the cluster has no such figure."""
        figures = self.figures.get(system)
        return statistics.median(figure.value for figure in figures) if figures else None

    def bad(self, system: str) -> int:
        """Errors and lost records in all turns."""
        return sum(figure.bad for figure in self.figures.get(system, ()))

    def ratio(self, ours: str, theirs: str) -> float | None:
        """How many times better the first is; None where a ratio says nothing."""
        mine, other = self.median(ours), self.median(theirs)
        if mine is None or other is None or not (mine > 0 and other > 0) or self.unit == "%":
            return None
        return mine / other if next(iter(self.figures[ours])).bigger_is_better else other / mine

    @property
    def unit(self) -> str:
        """The unit of all its figures."""
        return next(figure.unit for figures in self.figures.values() for figure in figures)


@dataclass
class Results:
    """All rows in the order in which they were measured first. The first of `systems` is compared with the others."""

    systems: Sequence[str]
    about: dict[str, str] = field(default_factory=dict)
    """What was measured, where and when."""
    rows: dict[str, Row] = field(default_factory=dict)

    def add(self, system: str, figure: Figure) -> None:
        """Add the figure of one turn."""
        self.rows.setdefault(figure.name, Row(figure.name)).figures.setdefault(system, []).append(figure)

    @property
    def is_bad(self) -> bool:
        """Whether some figure has errors."""
        return any(row.bad(system) for row in self.rows.values() for system in self.systems)

    def table(self, heading: str = "") -> str:
        """The medians as a Markdown table; its last columns say how often the first system is better."""
        ours, *others = self.systems
        heads = [heading, *self.systems, *(f"better than {other}" for other in others)]
        lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
        for row in self.rows.values():
            cells = [row.name, *(self._cell(row, system) for system in self.systems)]
            for other in others:
                ratio = row.ratio(ours, other)
                cells.append("" if ratio is None else f"{ratio:.2f} x")
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def markdown(self) -> str:
        """What was measured, and the table."""
        return "\n".join([*(f"- {key}: {text}" for key, text in self.about.items()), "", self.table(), ""])

    def _cell(self, row: Row, system: str) -> str:
        value, bad = row.median(system), row.bad(system)
        if value is None:
            return ""
        return f"{number(value)} {row.unit}" + (f" ({bad} errors)" if bad else "")

    def json(self) -> dict[str, Any]:
        """Every figure of every turn."""
        return {
            "about": self.about,
            "systems": list(self.systems),
            "rows": [
                {
                    "name": row.name,
                    "figures": {system: [asdict(one) for one in figures] for system, figures in row.figures.items()},
                }
                for row in self.rows.values()
            ],
        }


def number(value: float) -> str:
    """Three significant digits at least, with commas between thousands; `-` for what could not be measured."""
    if value != value or value == 0:
        return "-" if value else "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
