"""Plots as SVG and the page around them: one file that needs nothing else, readable in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLORS = ("#2a6fbb", "#d1772b", "#3c8f5a", "#a2528f", "#8a7a2e", "#4aa3a8", "#b84a4a", "#6b6f7a")
_WIDTH, _LEFT, _RIGHT, _TOP = 1000, 64, 16, 14

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
.valid { background: var(--good) } .invalid { background: var(--bad) } .unknown { background: var(--maybe) }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top }
tr:last-child td { border-bottom: 0 } th { color: var(--soft); font-size: 13px }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 8px; font-size: 13px; color: var(--soft) }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px }
svg { display: block; width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: var(--soft) }
svg .grid { stroke: var(--line) } code { font: 13px/1.6 ui-monospace, Menlo, Consolas, monospace }
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


def line_chart(series: Mapping[str, Sequence[tuple[float, float]]], labels: Mapping[float, str], *, unit: str) -> str:
    """Lines over one scale; `labels` names places on the x axis."""
    points = [point for line in series.values() for point in line]
    if not points:
        return "<p class='name'>Nothing to draw.</p>"
    height = 280
    x = Axis(min(p[0] for p in points), max(p[0] for p in points), _LEFT, _WIDTH - _RIGHT)
    y = Axis(min(0.0, *(p[1] for p in points)), max(p[1] for p in points), height - 26, _TOP)
    parts = [_grid(y, unit)]
    parts += [_label(x.at(place), height - 6, label) for place, label in labels.items()]
    for number, line in enumerate(series.values()):
        path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in line)
        color = COLORS[number % len(COLORS)]
        parts.append(f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='1.5'/>")
    legend = "".join(
        f"<span><i class='dot' style='background:{COLORS[number % len(COLORS)]}'></i>{escape(name)}</span>"
        for number, name in enumerate(series)
    )
    return f"<div class='legend'>{legend}</div><svg viewBox='0 0 {_WIDTH} {height}'>{''.join(parts)}</svg>"


def bar_chart(values: Mapping[str, float], *, unit: str) -> str:
    """Horizontal bars, in the order given; what is below zero goes to the left."""
    if not values:
        return "<p class='name'>Nothing to draw.</p>"
    row, left = 24, 240
    height = row * len(values) + 10
    x = Axis(min(0.0, *values.values()), max(0.0, *values.values()), left, _WIDTH - 90)
    parts = []
    for number, (name, value) in enumerate(values.items()):
        top = 4 + number * row
        start, end = sorted((x.at(0), x.at(value)))
        color = COLORS[0] if value >= 0 else COLORS[2]
        parts.append(
            f"<text x='{left - 8}' y='{top + 14}' text-anchor='end'>{escape(name)}</text>"
            f"<rect x='{start:.1f}' y='{top + 2}' width='{max(1.0, end - start):.1f}' height='{row - 8}' rx='2' "
            f"fill='{color}'/><text x='{end + 6:.1f}' y='{top + 14}'>{value:,.1f} {escape(unit)}</text>"
        )
    return f"<svg viewBox='0 0 {_WIDTH} {height}'>{''.join(parts)}</svg>"


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


def _label(x: float, y: float, text: str) -> str:
    """Under its place; at the right edge, left of it."""
    anchor = "end" if x > _WIDTH - 3 * _RIGHT else "middle"
    return f"<text x='{x:.1f}' y='{y}' text-anchor='{anchor}'>{escape(text)}</text>"


def _grid(y: Axis, unit: str) -> str:
    return "".join(
        f"<line class='grid' x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y.at(tick):.1f}' y2='{y.at(tick):.1f}'/>"
        f"<text x='{_LEFT - 8}' y='{y.at(tick) + 4:.1f}' text-anchor='end'>{tick:g} {escape(unit)}</text>"
        for tick in y.ticks()
    )
