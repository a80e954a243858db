"""The report of a run as one HTML page that needs nothing else: verdict, anomalies with evidence, and a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from ..checker.checker import Result
from ..checker.findings import KINDS, Verdict
from ..checker.time_series import TimeSeries, quantile_ms
from .timeline import draw_timeline, fault_color

_STYLE = """
:root { color-scheme: light; --ink: #1c2430; --soft: #5d6b7c; --line: #dfe5ec;
  --good: #1a7f4b; --bad: #c62f2f; --maybe: #a86a00 }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; margin: 0;
  color: var(--ink); background: #f5f7fa }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px }
h1 { font-size: 22px; margin: 0 0 2px } h2 { font-size: 17px; margin: 34px 0 10px }
.name { color: var(--soft); margin: 0 0 18px }
.verdict { border-radius: 10px; color: #fff; padding: 18px 22px;
  display: flex; gap: 4px 20px; align-items: baseline; flex-wrap: wrap }
.verdict b { font-size: 28px; letter-spacing: .04em }
.valid { background: var(--good) } .invalid { background: var(--bad) } .unknown { background: var(--maybe) }
.cards { display: grid; grid-template-columns: repeat(4, 1fr); gap: 12px; margin: 14px 0 0 }
@media (max-width: 700px) { .cards { grid-template-columns: repeat(2, 1fr) } }
.card, .panel { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px }
.card span { display: block; color: var(--soft); font-size: 13px }
.card b { font-size: 20px; font-variant-numeric: tabular-nums }
.panel { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 7px 10px; border-bottom: 1px solid var(--line); vertical-align: top }
tr:last-child td { border-bottom: 0 }
th { color: var(--soft); font-weight: 600; font-size: 13px }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.zero { color: var(--good) } .more { color: var(--bad); font-weight: 700 }
.kind { font-weight: 600; white-space: nowrap } .soft { color: var(--soft) }
details { margin: 6px 0 0 } summary { cursor: pointer; color: var(--bad) }
code { font: 13px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, monospace; display: block; white-space: pre-wrap }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 8px }
svg { display: block; max-width: 100%; height: auto }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft) }
svg text.title { font-weight: 600; fill: var(--ink) } svg text.faint { fill: #8b97a6; font-size: 11px }
"""


def render_report(result: Result, name: str, left_out: Mapping[str, str]) -> str:
    """The page. `left_out`: what this machine could not do, with the reason."""
    verdict, series = result.verdict, result.series
    parts = [
        f"<h1>Chaos report</h1><p class='name'>{escape(name)}</p>",
        _banner(verdict),
        f"<div class='cards'>{''.join(_cards(verdict, series))}</div>",
        f"<h2>Timeline</h2><div class='panel'>{draw_timeline(series)}</div>",
        f"<h2>Faults</h2><div class='panel'>{_fault_table(series, left_out)}</div>",
        f"<h2>Anomalies</h2><div class='panel'>{_anomaly_table(verdict)}</div>",
    ]
    notes = "".join(f"<li>{escape(note)}</li>" for note in verdict.notes)
    if notes:
        parts.append(f"<h2>Notes</h2><div class='panel'><ul>{notes}</ul></div>")
    head = f"<meta charset='utf-8'><title>{verdict.word}: {escape(name)}</title><style>{_STYLE}</style>"
    head += "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body><main>{''.join(parts)}</main></body></html>\n"


def _banner(verdict: Verdict) -> str:
    if verdict.valid:
        said = f"All {verdict.totals['acked']:,} acknowledged records were read back, once, in order."
    elif verdict.valid is None:
        said = "The history says too little for a verdict."
    else:
        kinds = [f"{count:,} {kind}" for kind, count in verdict.findings.counts.items() if count]
        said = f"Promises were broken: {', '.join(kinds)}."
    return f"<div class='verdict {verdict.word.lower()}'><b>{verdict.word}</b><span>{escape(said)}</span></div>"


def _cards(verdict: Verdict, series: TimeSeries) -> Iterator[str]:
    latency: dict[int, int] = {}
    for second in series.seconds.values():
        for bucket, count in second.latency.items():
            latency[bucket] = latency.get(bucket, 0) + count
    duration_s = (series.last_ns - series.first_ns) / 1e9 if series.first_ns is not None else 0.0
    longest = max((gap.seconds for gap in series.gaps), default=0.0)
    rows = {
        "acknowledged": f"{verdict.totals['acked']:,}",
        "outcome unknown": f"{verdict.totals['unknown'] + verdict.totals['unanswered']:,}",
        "reads": f"{verdict.totals['reads']:,}",
        "faults": f"{len(series.faults):,}",
        "duration": f"{duration_s:,.0f} s",
        "longest gap between acks": f"{longest:.2f} s" if longest else "under 0.25 s",
        "ack latency, p50": _ms(quantile_ms(latency, 0.5)),
        "ack latency, p99": _ms(quantile_ms(latency, 0.99)),
    }
    for label, value in rows.items():
        yield f"<div class='card'><span>{label}</span><b>{value}</b></div>"


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def _fault_table(series: TimeSeries, left_out: Mapping[str, str]) -> str:
    gaps = series.longest_gaps()
    counts: dict[str, int] = {}
    for span in series.faults.values():
        counts[span.fault] = counts.get(span.fault, 0) + 1
    rows = ["<tr><th>Fault</th><th class='n'>Times</th><th class='n'>Longest gap between acks of a partition</th></tr>"]
    for fault, count in sorted(counts.items()):
        gap = gaps.get(fault)
        said = f"{gap.seconds:.2f} s <span class='soft'>({escape(gap.place)})</span>" if gap else "under 0.25 s"
        dot = f"<span class='dot' style='background:{fault_color(fault)}'></span>"
        rows.append(f"<tr><td>{dot}{escape(fault)}</td><td class='n'>{count}</td><td class='n'>{said}</td></tr>")
    if "none" in gaps:
        rows.append(
            f"<tr><td>(no fault near)</td><td class='n'></td><td class='n'>{gaps['none'].seconds:.2f} s</td></tr>"
        )
    for fault, reason in left_out.items():
        rows.append(
            f"<tr><td class='soft'>{escape(fault)}</td><td class='n soft' colspan='2'>{escape(reason)}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def _anomaly_table(verdict: Verdict) -> str:
    rows = ["<tr><th>Anomaly</th><th>What it means</th><th class='n'>Cases</th></tr>"]
    findings = verdict.findings
    for kind in sorted(KINDS, key=lambda one: findings.counts[one] == 0):
        count = findings.counts[kind]
        shown = "".join(f"<code>{escape(one.text)}</code>" for one in findings.evidence[kind])
        said = (
            f"the first {len(findings.evidence[kind])} of {count:,}"
            if count > len(findings.evidence[kind])
            else "evidence"
        )
        evidence = f"<details open><summary>{said}</summary>{shown}</details>" if count else ""
        rows.append(
            f"<tr><td><span class='kind'>{kind}</span></td><td>{escape(KINDS[kind])}{evidence}</td>"
            f"<td class='n {'more' if count else 'zero'}'>{count:,}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"
