"""The page of the job `windows`: what a person wants to see of a year of delays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from .errors import PipelineError
from .plots import bar_chart, cards, line_chart, page, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .jobs.windows import Counted

_WORST = 15
_FEW = 10
_MONTHS_MIN = 4
_LABELS = 8


def write_page(path: str, rows: DataFrame, counted: Counted) -> None:
    """Write the page; `rows` has one row for each window, carrier and airport, with names. Replaces it as a whole."""
    rows = rows.persist()  # four sections look at them
    try:
        text = render(rows, counted)
    finally:
        rows.unpersist()
    draft = f"{path}.tmp"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        raise PipelineError(f"cannot write the page {path}: {error.strerror}.") from None


def render(rows: DataFrame, counted: Counted) -> str:
    """The page as text."""
    head = cards(
        {
            "records read": f"{counted.read:,}",
            "flights counted": f"{counted.counted:,}",
            "came too late to count": f"{counted.late:,}",
            "no flights": f"{counted.unreadable:,}",
        }
    )
    lines, labels = _by_window(rows)
    sections = [
        ("Mean delay at departure in each window, by airport", line_chart(lines, labels, unit="min")),
        ("Mean delay at departure, by carrier", bar_chart(_by_carrier(rows), unit="min")),
        (f"The {_WORST} windows with the longest mean delay, of {_FEW} flights and more", _worst(rows)),
    ]
    return page("Delays of flights", _span(rows), sections, head=head)


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
    """Names for some of these moments, in their order: months over a long time, else days, or hours."""
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


def _worst(rows: DataFrame) -> str:
    from pyspark.sql import functions as f

    mean = (f.col("dep_delay_sum") / (f.col("flights") - f.col("cancelled"))).alias("mean")
    worst = rows.where(f"flights - cancelled >= {_FEW}").select("*", mean).orderBy(f.desc("mean")).limit(_WORST)
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
    return table(head, cells, numbers=4)
