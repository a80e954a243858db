"""The report of the job `windows`: mean delays by window and by carrier, and the worst windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ..pages.charts import bar_chart, line_chart
from ..pages.report_file import write_report
from ..pages.report_page import DataTable, Section, render_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .windows import RecordCounts

_WORST = 15
_FLIGHTS_MIN = 10
_MONTHS_MIN = 4
_LABELS = 8


def write_page(path: str, rows: DataFrame, counts: RecordCounts, more: Sequence[Section] = ()) -> None:
    """Write the page, with `more` sections at its end. `rows` has one row for each window, carrier and airport."""
    rows = rows.persist()  # four parts of the page query them
    try:
        text = render(rows, counts, more)
    finally:
        rows.unpersist()
    write_report(path, text)


def render(rows: DataFrame, counts: RecordCounts, more: Sequence[Section] = ()) -> str:
    """The page as text."""
    cards = {
        "records read": f"{counts.read:,}",
        "flights counted": f"{counts.counted:,}",
        "came too late to count": f"{counts.late:,}",
        "no flights": f"{counts.unreadable:,}",
    }
    lines, labels = _by_window(rows)
    sections = [
        Section("Mean delay at departure in each window, by airport", line_chart(lines, labels, unit="min")),
        Section("Mean delay at departure, by carrier", bar_chart(_by_carrier(rows), unit="min")),
        Section(
            f"The {_WORST} windows with the longest mean delay, of {_FLIGHTS_MIN} flights and more", table=_worst(rows)
        ),
        *more,
    ]
    return render_report("Delays of flights", _span(rows), sections, cards=cards)


def _span(rows: DataFrame) -> str:
    from pyspark.sql import functions as f

    first, last, carriers = rows.agg(f.min("window_start"), f.max("window_end"), f.count_distinct("carrier")).collect()[
        0
    ]
    if first is None:
        return "no flights yet"
    return f"{carriers} carriers, by when flights were to leave: {first:%d %b %Y %H:%M} to {last:%d %b %Y %H:%M} UTC"


def _by_window(rows: DataFrame) -> tuple[dict[str, list[tuple[float, float]]], dict[float, str]]:
    from pyspark.sql import functions as f

    sums = rows.groupBy("airport", "window_start").agg(
        (f.sum("dep_delay_sum") / f.sum(f.col("flights") - f.col("cancelled"))).alias("mean")
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    starts: dict[datetime, None] = {}
    for row in sums.where("mean is not null").orderBy("airport", "window_start").collect():
        at = row["window_start"].timestamp()
        lines.setdefault(row["airport"] or "unknown", []).append((at, row["mean"]))
        starts[row["window_start"]] = None
    return lines, date_labels(sorted(starts))


def date_labels(starts: Sequence[datetime]) -> dict[float, str]:
    """Labels for some of these times: months over a long time, else days, or hours. `starts` is sorted."""
    months = [one for one in starts if one.day == 1 and one.hour == one.minute == 0]
    if len(months) >= _MONTHS_MIN:
        return {one.timestamp(): f"{one:%b %Y}" for one in months}
    form = "%d %b" if all(one.hour == one.minute == 0 for one in starts) else "%d %b %H:%M"
    return {one.timestamp(): one.strftime(form) for one in starts[:: max(1, -(-len(starts) // _LABELS))]}


def _by_carrier(rows: DataFrame) -> Mapping[str, float]:
    from pyspark.sql import functions as f

    sums = rows.groupBy("carrier_name", "carrier").agg(
        (f.sum("dep_delay_sum") / f.sum(f.col("flights") - f.col("cancelled"))).alias("mean")
    )
    found = sums.where("mean is not null").orderBy(f.desc("mean")).collect()
    return {f"{row['carrier_name'] or row['carrier']} ({row['carrier']})": row["mean"] for row in found}


def _worst(rows: DataFrame) -> DataTable:
    from pyspark.sql import functions as f

    mean = (f.col("dep_delay_sum") / (f.col("flights") - f.col("cancelled"))).alias("mean")
    worst = rows.where(f"flights - cancelled >= {_FLIGHTS_MIN}").select("*", mean).orderBy(f.desc("mean")).limit(_WORST)
    head = ("window from", "carrier", "airport", "flights", "cancelled", "mean delay", "longest delay")
    cells = [
        (
            row["window_start"].strftime("%Y-%m-%d %H:%M"),
            row["carrier_name"] or row["carrier"],
            row["airport"] or row["origin"],
            f"{row['flights']:,}",
            f"{row['cancelled']:,}",
            f"{row['mean']:,.0f} min",
            f"{row['dep_delay_max']:,.0f} min",
        )
        for row in worst.collect()
    ]
    return DataTable(head, cells, number_columns=4)
