"""The page of an audit: the verdict, what was found with evidence, and the run over time."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping
from html import escape

from ..errors import PipelineError
from ..plots import Axis, cards, line_chart, page, table
from .judge import AuditVerdict
from .parts import bucket_ms
from .tables import History

_POINTS_MAX = 400
_LABELS = 8
_MEANS = {
    "VALID": "every acked record is there, once, and in the order of its key",
    "INVALID": "what was found stands below, with evidence",
    "UNKNOWN": "nothing wrong was found, and too little was seen to say that nothing is",
}


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
    head = f"<div class='verdict {verdict.word.lower()}'>{verdict.word}<small>{_MEANS[verdict.word]}</small></div>"
    head += cards({name: f"{count:,}" for name, count in verdict.totals.items()})
    rates, latencies, labels, width_s = _over_time(history)
    found = [(kind, f"{count:,}") for kind, count in verdict.counts.items()]
    evidence = "".join(
        f"<p><b>{escape(kind)}</b></p><code>{'<br>'.join(map(escape, cases))}</code>"
        for kind, cases in verdict.evidence.items()
        if cases
    )
    sections = [
        ("Records a second", line_chart(rates, labels, unit="/s")),
        ("Latency of acks, by when they came", line_chart(latencies, labels, unit="ms", gap=1.5 * width_s)),
        ("Anomalies", table(("kind", "found"), found, numbers=1) + evidence),
        ("Faults", _faults(history)),
    ]
    return page(
        "Audit of what was sent and read",
        ", ".join(sorted({topic for topic, _ in history.places})),
        sections,
        head=head,
    )


Lines = dict[str, list[tuple[float, float]]]


def _over_time(history: History) -> tuple[Lines, Lines, dict[float, str], int]:
    """Rates and latencies by time since the first ack, at most some hundred points of each; seconds between points."""
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
    seconds = range(0, last - first + 1, width_s)  # also those in which nothing was done
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
    """The latency that a share stays within, of counts by ascending bucket."""
    wanted = share * sum(counts.values())
    seen = itertools.accumulate(counts.values())
    return next(bucket_ms(bucket) for bucket, count in zip(counts, seen) if count >= wanted)


def _faults(history: History) -> str:
    struck = Counter(
        line["fault"] or "?" for line in history.lines if line["f"] == "fault" and line["type"] == "invoke"
    )
    return table(("fault", "times"), [(name, f"{count:,}") for name, count in sorted(struck.items())], numbers=1)
