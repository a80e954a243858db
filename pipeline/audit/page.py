"""The page of an audit: the verdict, what was found with evidence, and the run over time."""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING

from ..errors import PipelineError
from ..plots import cards, line_chart, page, table
from .judge import AuditVerdict
from .tables import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POINTS_MAX = 400
_LABELS = 8


def write_page(path: str, history: History, verdict: AuditVerdict) -> None:
    """Write the page, as a whole or not at all."""
    text = render(history, verdict)
    draft = f"{path}.tmp"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        raise PipelineError(f"cannot write the page {path}: {error.strerror}.") from None


def render(history: History, verdict: AuditVerdict) -> str:
    """The page as text."""
    head = f"<div class='verdict {verdict.word.lower()}'>{verdict.word}</div>"
    head += cards({name: f"{count:,}" for name, count in verdict.totals.items()})
    rates, latencies, labels = _over_time(history)
    found = [(kind, f"{count:,}") for kind, count in verdict.counts.items()]
    evidence = "".join(
        f"<p><b>{escape(kind)}</b></p><code>{'<br>'.join(map(escape, cases))}</code>"
        for kind, cases in verdict.evidence.items()
        if cases
    )
    sections = [
        ("Records a second", line_chart(rates, labels, unit="/s")),
        ("Latency of acks", line_chart(latencies, labels, unit="ms")),
        ("Anomalies", table(("kind", "found"), found, numbers=1) + evidence),
        ("Faults", _faults(history)),
    ]
    return page("Audit", ", ".join(sorted({topic for topic, _ in history.places})), sections, head=head)


Lines = dict[str, list[tuple[float, float]]]


def _over_time(history: History) -> tuple[Lines, Lines, dict[float, str]]:
    """Rates and latencies by time since the first ack, at most some hundred points of each."""
    from pyspark.sql import functions as f

    acked = history.sends().where("state = 4 and end > 0")
    first, last = acked.agg(f.min("end"), f.max("end")).collect()[0]
    if first is None:
        return {}, {}, {}
    width_s = max(1, -(-(last - first) // 10**9) // _POINTS_MAX)

    def bucket(rows: DataFrame) -> DataFrame:
        return rows.withColumn("at", f.floor((f.col("end") - first) / (width_s * 10**9)) * width_s)

    latency = f.percentile_approx((f.col("end") - f.col("start")) / 1e6, f.array(f.lit(0.5), f.lit(0.99)), 1000)
    sums = bucket(acked).groupBy("at").agg(f.count(f.lit(1)).alias("n"), latency.alias("q")).orderBy("at").collect()
    polls = history.lines("poll").where("type = 'ok' and not coalesce(final, false)")
    sizes = bucket(polls.select("end", f.size("records").alias("n"))).where("at >= 0")
    reads = sizes.groupBy("at").agg(f.sum("n").alias("n")).orderBy("at").collect()
    rates = {
        "acked": [(float(row["at"]), row["n"] / width_s) for row in sums],
        "read": [(float(row["at"]), row["n"] / width_s) for row in reads],
    }
    quantiles = {
        "median": [(float(row["at"]), row["q"][0]) for row in sums],
        "99 %": [(float(row["at"]), row["q"][1]) for row in sums],
    }
    span = (last - first) / 1e9
    labels = {at: f"{at:g} s" for at in (round(span * part / _LABELS) for part in range(_LABELS + 1))}
    return {k: v for k, v in rates.items() if v}, quantiles, {float(at): label for at, label in labels.items()}


def _faults(history: History) -> str:
    from pyspark.sql import functions as f

    struck = history.lines("fault").where("type = 'invoke'")
    rows = struck.groupBy("fault").agg(f.count(f.lit(1)).alias("n")).orderBy("fault").collect()
    return table(("fault", "times"), [(row["fault"] or "?", f"{row['n']:,}") for row in rows], numbers=1)
