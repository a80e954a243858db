"""The report of a run as one HTML page: the verdict, a timeline, the faults, and the anomalies with their evidence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from ....cluster.pages.html_page import render_page
from ..checker.checker import Result
from ..checker.findings import KINDS, Verdict
from ..checker.time_series import TimeSeries, quantile_ms
from .timeline import draw_timeline, fault_color

_OPTIONS = {
    "minutes": "--minutes",
    "nodes": "-n",
    "partitions": "--partitions",
    "producers": "--producers",
    "consumers": "--consumers",
    "rate": "--rate",
    "acks": "--acks",
    "interval_s": "--interval",
    "hold_s": "--hold",
}
"""Options of `raftwerk chaos run`, by the names that the history has for them."""


def render_report(result: Result, name: str, left_out: Mapping[str, str], errors: Sequence[str] = ()) -> str:
    """The page. `left_out` names the faults that this machine could not cause, with the reason.

    `errors` are those of the run itself.
    """
    verdict, series = result.verdict, result.series
    gaps = series.longest_gaps()
    return render_page(
        os.path.dirname(__file__),
        "report.html",
        name=name,
        word=verdict.word,
        summary=_summary(verdict),
        cards=list(_cards(verdict, series)),
        transaction_cards=list(_transaction_cards(verdict, series)),
        facts=list(_facts(series, left_out)),
        again=_command(series.facts),
        timeline=Markup(draw_timeline(series)),  # its texts are escaped where they are drawn
        faults=_faults(series),
        spans=list(_spans(series)),
        gap_without_fault=gaps.get("none"),
        left_out=left_out,
        anomalies=_anomalies(verdict),
        notes=verdict.notes,
        errors=errors,
    )


def _summary(verdict: Verdict) -> str:
    if verdict.valid:
        said = f"All {verdict.totals['acked']:,} acknowledged records were read back, once, in order."
        if verdict.transactions:
            said += f" All {verdict.transactions['committed']:,} committed transactions were read whole, and no other."
        return said
    if verdict.valid is None:
        return "The history says too little for a verdict."
    kinds = [f"{count:,} {kind}" for kind, count in verdict.findings.counts.items() if count]
    return f"Promises were broken: {', '.join(kinds)}."


def _cards(verdict: Verdict, series: TimeSeries) -> Iterator[tuple[str, str]]:
    latency: dict[int, int] = {}
    for second in series.seconds.values():
        for bucket, count in second.latency.items():
            latency[bucket] = latency.get(bucket, 0) + count
    duration_s = (series.last_ns - series.first_ns) / 1e9 if series.first_ns is not None else 0.0
    longest = max((gap.seconds for gap in series.gaps), default=0.0)
    yield "acknowledged", f"{verdict.totals['acked']:,}"
    yield "outcome unknown", f"{verdict.totals['unknown'] + verdict.totals['unanswered']:,}"
    yield "reads", f"{verdict.totals['reads']:,}"
    yield "faults", f"{len(series.faults):,}"
    yield "duration", f"{duration_s:,.0f} s"
    yield "longest gap between acks", f"{longest:.2f} s" if longest else "under 0.25 s"
    yield "ack latency, p50", _format_ms(quantile_ms(latency, 0.5))
    yield "ack latency, p99", _format_ms(quantile_ms(latency, 0.99))


def _transaction_cards(verdict: Verdict, series: TimeSeries) -> Iterator[tuple[str, str]]:
    """Figures of the transactions; none if there were none."""
    figures = verdict.transactions
    if not figures:
        return
    for name in ("committed", "aborted"):
        yield name, f"{figures[name]:,}"
    yield "outcome unknown", f"{figures['unknown']:,}"
    yield "incarnations of producers", f"{figures['incarnations']:,}"
    yield "reads", f"{figures['reads']:,}"
    yield "effects of input records", f"{figures['effects']:,}"
    yield "commit latency, p50", _format_ms(quantile_ms(series.commits, 0.5))
    yield "commit latency, p99", _format_ms(quantile_ms(series.commits, 0.99))


def _format_ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def _faults(series: TimeSeries) -> list[dict[str, Any]]:
    """A row for each kind of fault: how often it struck, and the longest gap that is blamed on it."""
    gaps = series.longest_gaps()
    counts: dict[str, int] = {}
    for span in series.faults.values():
        counts[span.fault] = counts.get(span.fault, 0) + 1
    return [
        {"name": fault, "times": count, "color": fault_color(fault), "gap": gaps.get(fault)}
        for fault, count in sorted(counts.items())
    ]


def _facts(series: TimeSeries, left_out: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is known of the run, as label and text."""
    facts = series.facts
    if "wall_ms" in facts:
        yield "begun", _wall_time(facts["wall_ms"] - (facts["start"] - facts.get("began", facts["start"])) // 10**6)
    for label, name in (("version", "raftwerk"), ("seed", "seed"), ("nodes", "nodes"), ("topic", "topic")):
        if name in facts:
            yield label, str(facts[name])
    if "faults" in facts:
        named = json.loads(facts["faults"])
        yield "faults to choose from", ", ".join(named) or "none"
        injected = {span.fault for span in series.faults.values()}
        if never := [name for name in named if name not in injected and name not in left_out]:
            yield "never injected", ", ".join(never)


def _command(facts: Mapping[str, Any]) -> str:
    """The command that makes such a run again; empty where the history does not have all options."""
    if any(name not in facts for name in ("faults", "seed", *_OPTIONS)):
        return ""
    nemesis = ",".join(json.loads(facts["faults"])) or "none"
    where = str(facts.get("cluster", ""))
    chosen = {name: option for name, option in _OPTIONS.items() if not (where and name == "nodes")}
    options = " ".join(f"{option} {facts[name]}" for name, option in chosen.items())
    transactions = "" if facts.get("transactions", False) else " --no-transactions"
    return f"raftwerk chaos run --nemesis {nemesis} --seed {facts['seed']} {options}{transactions}{where}"


def _spans(series: TimeSeries) -> Iterator[dict[str, Any]]:
    """A row for each fault that was injected, in the order of time."""
    facts = series.facts
    for number, span in sorted(series.faults.items(), key=lambda item: item[1].start_ns):
        wall_ms = facts["wall_ms"] + (span.start_ns - facts["start"]) // 10**6 if "wall_ms" in facts else None
        yield {
            "number": number,
            "name": span.fault,
            "color": fault_color(span.fault),
            "target": span.target,
            "at_s": (span.start_ns - series.origin_ns) / 1e9,
            "wall": "" if wall_ms is None else _wall_time(wall_ms).partition(" ")[2],
            "seconds": None if span.end_ns is None else (span.end_ns - span.start_ns) / 1e9,
        }


def _wall_time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _anomalies(verdict: Verdict) -> list[dict[str, Any]]:
    """A row for each kind of anomaly, those that were found first."""
    findings = verdict.findings
    return [
        {"kind": kind, "meaning": KINDS[kind], "count": findings.counts[kind], "evidence": findings.evidence[kind]}
        for kind in sorted(KINDS, key=lambda one: findings.counts[one] == 0)
    ]
