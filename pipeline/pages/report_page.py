"""The page of a job's report: a verdict, figures, and sections that hold a chart or a table.

The page is `report.html`, a jinja2 template on the base that all reports share (`cluster/pages/html_page.py`). It is
one file without references to others, and it follows the reader's light or dark colour scheme.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from ...cluster.pages.html_page import render_page


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table. Its last `number_columns` columns hold figures, which are aligned to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    number_columns: int


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with a chart, a table, or a table with evidence: some cases of each kind, as text."""

    heading: str
    chart: Markup | None = None
    table: DataTable | None = None
    evidence: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """VALID, INVALID or UNKNOWN, and what the word means here."""

    word: str
    meaning: str


def render_report(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    *,
    cards: Mapping[str, str] | None = None,
    verdict: Verdict | None = None,
) -> str:
    """The page as text. `cards` are figures by label, shown in a row at the top."""
    return render_page(
        os.path.dirname(__file__),
        "report.html",
        title=title,
        subtitle=subtitle,
        sections=sections,
        cards=cards or {},
        verdict=verdict,
    )
