"""The report of an audit: the verdict, rates and latencies over time, anomalies with evidence, and faults."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from ..pages.charts import Axis, line_chart
from ..pages.report_file import write_report
from ..pages.report_page import DataTable, Section, Verdict, render_report
from .anomalies import AuditVerdict
from .history import History
from .parcels import bucket_ms

_POINTS_MAX = 400
_LABELS = 8
_MEANINGS = {
    "VALID": "of what was judged, every acked record is there, once, and in the order of its key",
    "INVALID": "what was found stands below, with evidence",
    "UNKNOWN": "nothing wrong was found, and too little was seen to say that nothing is",
}


def write_page(path: str, history: History, verdict: AuditVerdict) -> None:
    """Write the page. `PipelineError` when it cannot be written."""
    write_report(path, render(history, verdict))


def render(history: History, verdict: AuditVerdict) -> str:
    """The page as text."""
    rates, latencies, labels, width_s = _over_time(history)
    found = [(kind, f"{count:,}") for kind, count in verdict.counts.items()]
    sections = [
        Section("Records a second", line_chart(rates, labels, unit="/s")),
        Section("Latency of acks, by when they came", line_chart(latencies, labels, unit="ms", gap=1.5 * width_s)),
        Section("Anomalies", table=DataTable(("kind", "found"), found, 1), evidence=verdict.evidence),
        Section("Faults", table=_faults(history)),
    ]
    if verdict.not_judged:
        left = DataTable(("what", "number"), [(what, f"{count:,}") for what, count in verdict.not_judged.items()], 1)
        sections.append(Section("Not judged here, but by raftwerk chaos check", table=left))
    return render_report(
        "Audit of what was sent and read",
        ", ".join(sorted({topic for topic, _ in history.places})),
        sections,
        cards={name: f"{count:,}" for name, count in verdict.totals.items()},
        verdict=Verdict(verdict.word, _MEANINGS[verdict.word]),
    )


Lines = dict[str, list[tuple[float, float]]]


def _over_time(history: History) -> tuple[Lines, Lines, dict[float, str], int]:
    """Rates, latencies, labels of the time axis, and the seconds between two points.

    Time is in seconds since the first ack. A line has at most `_POINTS_MAX` points.
    """
    from pyspark.sql import functions as f

    acks = history.notes("acked").groupBy("first", "last").agg(f.sum("n").alias("n"))
    first, last = acks.agg(f.min("first"), f.max("first")).collect()[0]
    if first is None:
        return {}, {}, {}, 1
    width_s = max(1, -(-(last - first + 1) // _POINTS_MAX))
    at = f.floor((f.col("first") - first) / width_s) * width_s
    counts: dict[int, dict[int, int]] = {}
    for row in acks.groupBy(at.alias("at"), "last").agg(f.sum("n").alias("n")).orderBy("at", "last").collect():
        counts.setdefault(row["at"], {})[row["last"]] = row["n"]
    polls = history.notes("polled").groupBy(at.alias("at")).agg(f.sum("n").alias("n")).where("at >= 0")
    polled = {row["at"]: row["n"] for row in polls.collect()}
    seconds = range(0, last - first + 1, width_s)  # also the seconds without records
    rates = {
        "acked": [(float(second), sum(counts.get(second, {}).values()) / width_s) for second in seconds],
        "read": [(float(second), polled.get(second, 0) / width_s) for second in seconds] if polled else [],
    }
    quantiles = {
        name: [(float(second), _quantile_ms(count, share)) for second, count in counts.items()]
        for name, share in (("median", 0.5), ("99th percentile", 0.99))
    }
    labels = {at: f"{at:g} s" for at in Axis(0, last - first, 0, 1).ticks(_LABELS)}
    return {k: v for k, v in rates.items() if v}, quantiles, labels, width_s


def _quantile_ms(counts: Mapping[int, int], share: float) -> float:
    """The latency in milliseconds that a share of the counts does not exceed. Counts are by ascending bucket."""
    wanted = share * sum(counts.values())
    seen = itertools.accumulate(counts.values())
    return next(bucket_ms(bucket) for bucket, count in zip(counts, seen) if count >= wanted)


def _faults(history: History) -> DataTable:
    counts = Counter(
        line["fault"] or "?" for line in history.lines if line["f"] == "fault" and line["type"] == "invoke"
    )
    return DataTable(("fault", "times"), [(name, f"{count:,}") for name, count in sorted(counts.items())], 1)
