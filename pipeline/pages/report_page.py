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
from ..errors import PipelineError


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


def check_report(path: str) -> None:
    """`PipelineError` when no page can be written there, for a job that takes its time before it writes one."""
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not path:
        raise PipelineError(f"cannot write the page {path}: it is a directory; name a file.")
    if not os.path.isdir(directory):
        raise PipelineError(f"cannot write the page {path}: there is no directory {directory}; make it first.")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PipelineError(f"cannot write the page {path}: the directory {directory} takes no files of this user.")


def write_report(path: str, text: str) -> None:
    """Replace the file as a whole, by a rename. `PipelineError` when it cannot be written."""
    draft = f"{path}.tmp"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        raise PipelineError(f"cannot write the page {path}: {error.strerror}.") from None
