"""The page of the job `windows`: what a person wants to see of a year of delays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from .errors import PipelineError
from .plots import bar_chart, cards, line_chart, page, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .jobs.windows import Counted

_WORST = 15


def write_page(path: str, rows: DataFrame, counted: Counted) -> None:
    """Write the page; `rows` has one row for each window, carrier and airport, with names. Replaces it as a whole."""
    text = render(rows, counted)
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
            "late": f"{counted.late:,}",
            "unreadable": f"{counted.unreadable:,}",
        }
    )
    lines, labels = _by_window(rows)
    sections = [
        ("Mean delay at departure, by airport", line_chart(lines, labels, unit="min")),
        ("Mean delay at departure, by carrier", bar_chart(_by_carrier(rows), unit="min")),
        ("The windows with the longest mean delay", _worst(rows)),
    ]
    return page("Delays of flights", "windows of event time, by carrier and airport", sections, head=head)


def _by_window(rows: DataFrame) -> tuple[dict[str, list[tuple[float, float]]], dict[float, str]]:
    from pyspark.sql import functions as f

    sums = rows.groupBy("airport", "window_start").agg(
        (f.sum("dep_delay_sum") / f.sum(f.col("flights") - f.col("cancelled"))).alias("mean")
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    months: dict[float, str] = {}
    for row in sums.where("mean is not null").orderBy("airport", "window_start").collect():
        at = row["window_start"].timestamp()
        lines.setdefault(row["airport"] or "unknown", []).append((at, row["mean"]))
        start: datetime = row["window_start"]
        if start.day == 1 and start.hour == 0:
            months[at] = start.strftime("%b %Y")
    return lines, dict(sorted(months.items()))


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
    worst = rows.where("flights - cancelled >= 10").select("*", mean).orderBy(f.desc("mean")).limit(_WORST)
    head = ("window", "carrier", "airport", "flights", "cancelled", "mean min", "longest min")
    cells = [
        (
            row["window_start"].strftime("%Y-%m-%d %H:%M"),
            row["carrier_name"] or row["carrier"],
            row["airport"] or row["origin"],
            f"{row['flights']:,}",
            f"{row['cancelled']:,}",
            f"{row['mean']:,.0f}",
            f"{row['dep_delay_max']:,.0f}",
        )
        for row in worst.collect()
    ]
    return table(head, cells, numbers=4)
