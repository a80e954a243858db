"""Plots as SVG and the page around them: one file that needs nothing else, readable in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLORS = ("#2a6fbb", "#d1772b", "#3c8f5a", "#a2528f", "#8a7a2e", "#4aa3a8", "#b84a4a", "#6b6f7a")
_WIDTH, _LEFT, _RIGHT, _TOP = 1000, 64, 16, 14
_CHAR = 7.0
"""About how wide a character of a label is."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6b7c; --line: #dfe5ec; --page: #f5f7fa; --card: #fff;
  --good: #1a7f4b; --bad: #c62f2f; --maybe: #a86a00 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf2; --soft: #9aa7b8; --line: #2c3644; --page: #12171e;
  --card: #1a212b } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; margin: 0; color: var(--ink);
  background: var(--page) }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px }
h1 { font-size: 22px; margin: 0 0 2px } h2 { font-size: 17px; margin: 34px 0 10px }
.name { color: var(--soft); margin: 0 0 18px }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px }
.card, .panel { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px }
.card span { display: block; color: var(--soft); font-size: 13px }
.card b { font-size: 20px; font-variant-numeric: tabular-nums }
.panel { overflow-x: auto }
.verdict { border-radius: 10px; color: #fff; padding: 18px 22px; margin: 0 0 14px; font-size: 24px; font-weight: 700 }
.verdict small { display: block; font-size: 14px; font-weight: 400 }
.valid { background: var(--good) } .invalid { background: var(--bad) } .unknown { background: var(--maybe) }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top }
tr:last-child td { border-bottom: 0 } th { color: var(--soft); font-size: 13px }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums } th, td.n, td:first-child { white-space: nowrap }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 7px 10px; align-items: center;
  font-size: 13px; color: var(--soft) }
.bars .who { text-align: right } .bars .far { text-align: right; font-variant-numeric: tabular-nums }
.bars .lane { position: relative; height: 16px } .bars .bar { position: absolute; height: 100%; border-radius: 2px }
@media (max-width: 600px) { main { padding: 20px 12px 40px }
  .bars { grid-template-columns: 1fr max-content; gap: 1px 8px }
  .bars .who { grid-column: 1 / 3; text-align: left; margin-top: 7px } }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 8px; font-size: 13px; color: var(--soft) }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px }
svg { display: block; width: 100%; min-width: 640px; height: auto }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft) } svg .grid { stroke: var(--line) }
code { font: 13px/1.6 ui-monospace, Menlo, Consolas, monospace }
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from values to pixels, with round ticks."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value is drawn."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1) * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round values between the ends."""
        step = _round_step((self.high - self.low) / wanted)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _round_step(step: float) -> float:
    if step <= 0:
        return 1.0
    scale: float = 10.0 ** math.floor(math.log10(step))
    return next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= step)


def line_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    labels: Mapping[float, str],
    *,
    unit: str,
    gap: float = math.inf,
) -> str:
    """Lines over one scale; `labels` names places on the x axis. A line is broken between points that are over `gap`
    apart.
    """
    points = [point for line in series.values() for point in line]
    if not points:
        return "<p class='name'>Nothing to draw.</p>"
    height = 280
    x = Axis(min(p[0] for p in points), max(p[0] for p in points), _LEFT, _WIDTH - _RIGHT)
    y = Axis(min(0.0, *(p[1] for p in points)), max(p[1] for p in points), height - 26, _TOP)
    parts = [_grid(y, unit)]
    parts += _labels({x.at(place): label for place, label in labels.items()}, height - 6)
    for number, line in enumerate(series.values()):
        color = COLORS[number % len(COLORS)]
        for stretch in _stretches(line, gap):
            path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in stretch)
            # A point by itself is a line of no length, which round ends make visible.
            path += f" {path}" if len(stretch) == 1 else ""
            parts.append(
                f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='1.5' stroke-linecap='round'/>"
            )
    legend = "".join(
        f"<span><i class='dot' style='background:{COLORS[number % len(COLORS)]}'></i>{escape(name)}</span>"
        for number, name in enumerate(series)
    )
    return f"<div class='legend'>{legend}</div><svg viewBox='0 0 {_WIDTH} {height}'>{''.join(parts)}</svg>"


def _stretches(line: Sequence[tuple[float, float]], gap: float) -> list[list[tuple[float, float]]]:
    found: list[list[tuple[float, float]]] = []
    for point in line:
        if found and point[0] - found[-1][-1][0] <= gap:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def bar_chart(values: Mapping[str, float], *, unit: str) -> str:
    """Horizontal bars in the order given, from zero to either side; on a narrow screen the names stand above them."""
    if not values:
        return "<p class='name'>Nothing to draw.</p>"
    x = Axis(min(0.0, *values.values()), max(0.0, *values.values()), 0, 100)
    parts = []
    for name, value in values.items():
        start, end = sorted((x.at(0), x.at(value)))
        color = COLORS[0] if value >= 0 else COLORS[2]
        parts.append(
            f"<span class='who'>{escape(name)}</span><span class='lane'><i class='bar' style='left:{start:.1f}%;"
            f"width:max(1px,{end - start:.1f}%);background:{color}'></i></span>"
            f"<span class='far'>{value:,.1f} {escape(unit)}</span>"
        )
    return f"<div class='bars'>{''.join(parts)}</div>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int) -> str:
    """A table whose last `numbers` columns are figures."""
    first = len(head) - numbers

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if at >= first else ''}>{escape(cell)}</{tag}>" for at, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"


def cards(values: Mapping[str, str]) -> str:
    """Figures in a row."""
    inner = "".join(f"<div class='card'><span>{escape(k)}</span><b>{escape(v)}</b></div>" for k, v in values.items())
    return f"<div class='cards'>{inner}</div>"


def page(title: str, name: str, sections: Sequence[tuple[str, str]], *, head: str = "") -> str:
    """The whole page; `head` and the bodies of the sections are HTML."""
    body = "".join(f"<h2>{escape(heading)}</h2><div class='panel'>{inner}</div>" for heading, inner in sections)
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style><main><h1>{escape(title)}</h1>"
        f"<p class='name'>{escape(name)}</p>{head}{body}</main></html>\n"
    )


def _labels(labels: Mapping[float, str], y: float) -> list[str]:
    """Under their places, within the plot's width; one that would touch the one before it is left out."""
    parts = []
    free = 0.0
    for place, text in sorted(labels.items()):
        width = _CHAR * len(text)
        left = min(max(place - width / 2, 0), _WIDTH - width)
        if left >= free:
            parts.append(f"<text x='{left + width / 2:.1f}' y='{y}' text-anchor='middle'>{escape(text)}</text>")
            free = left + width + _CHAR
    return parts


def _grid(y: Axis, unit: str) -> str:
    return "".join(
        f"<line class='grid' x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y.at(tick):.1f}' y2='{y.at(tick):.1f}'/>"
        f"<text x='{_LEFT - 8}' y='{y.at(tick) + 4:.1f}' text-anchor='end'>{_figure(tick)} {escape(unit)}</text>"
        for tick in y.ticks()
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
