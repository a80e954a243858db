"""The page of a job: its lag, its rate, the time of its batches and the size of its state over the last batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from ...cluster.command_line.plural import counted, size_text
from ..pages.charts import line_chart
from ..pages.report_file import write_report
from ..pages.report_page import DataTable, Section, render_report
from .job_report import JobReport
from .status_file import Batch

_LABELS = 6
_TABLE_ROWS = 20


def write_status_page(path: str, report: JobReport, lag_of_brokers: int | None) -> None:
    """Write the page. `PipelineError` when it cannot be written."""
    write_report(path, render(report, lag_of_brokers))


def render(report: JobReport, lag_of_brokers: int | None) -> str:
    """The page as text."""
    batches = () if report.status is None else report.status.batches
    last = batches[-1] if batches else None
    cards = {
        "unread, by the brokers": _number(lag_of_brokers),
        "unread after the last batch": _number(None if last is None else last.lag),
        "rows in this run": _number(None if report.status is None else report.status.rows),
        "last batch that is done": _number(report.last_batch if report.last_batch >= 0 else None),
        "records per second": _number(None if last is None else round(last.rows_per_second)),
        "state": "-" if last is None else f"{counted(last.state_rows, 'row')}, {size_text(last.state_bytes)}",
    }
    sections = [
        Section("Records not read yet, after each batch", _chart("unread", batches, lambda one: one.lag)),
        Section("Records per second, of each batch", _chart("rate", batches, lambda one: one.rows_per_second)),
        Section("How long each batch took", _chart("batch", batches, lambda one: one.seconds, "s")),
    ]
    if any(one.state_rows for one in batches):
        chart = _chart("state", batches, lambda one: one.state_rows)
        sections.append(Section("What the query remembers between batches", chart))
    sections.append(Section("The newest batches", table=_table(batches)))
    subtitle = f"{report.output}: {', '.join(report.topics)}; {report.state}; {_utc(time.time())}"
    return render_report(f"The job {report.job}", subtitle, sections, cards=cards)


def _chart(name: str, batches: Sequence[Batch], value_of: Callable[[Batch], float | None], unit: str = "") -> Markup:
    points = [(one.ended_s, value_of(one)) for one in batches]
    every = max(1, -(-len(batches) // _LABELS))
    labels = {one.ended_s: f"{datetime.fromtimestamp(one.ended_s, UTC):%H:%M:%S}" for one in batches[::every]}
    return line_chart({name: [(at, value) for at, value in points if value is not None]}, labels, unit=unit)


def _table(batches: tuple[Batch, ...]) -> DataTable:
    rows = [
        (
            f"{one.number:,}",
            _utc(one.ended_s),
            f"{one.rows:,}",
            f"{one.seconds:.2f} s",
            f"{one.rows_per_second:,.0f}",
            _number(one.lag),
            f"{one.state_rows:,}",
        )
        for one in reversed(batches[-_TABLE_ROWS:])
    ]
    return DataTable(("batch", "ended", "rows", "took", "rows/s", "unread", "state"), rows, number_columns=5)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _utc(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
