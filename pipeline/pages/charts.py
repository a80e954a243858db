"""Charts for a report: lines as SVG, and horizontal bars as HTML. Names are escaped where they are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

COLORS = ("#2a6fbb", "#d1772b", "#3c8f5a", "#a2528f", "#8a7a2e", "#4aa3a8", "#b84a4a", "#6b6f7a")
_WIDTH, _LEFT, _RIGHT, _TOP = 1000, 64, 16, 14
_CHAR = 7.0
"""The width of a label's character, in pixels, roughly."""
_NOTHING = Markup("<p class='name'>Nothing to draw.</p>")


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from values to pixels, with round ticks."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1) * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round values between the ends, about as many as wanted."""
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
) -> Markup:
    """Lines over one scale. `labels` names positions on the x axis. A line is broken between points that are more than
    `gap` apart on it.
    """
    points = [point for line in series.values() for point in line]
    if not points:
        return _NOTHING
    height = 280
    first, last = min(p[0] for p in points), max(p[0] for p in points)
    around = 0 if last > first else 1  # a single place is in the middle
    x = Axis(first - around, last + around, _LEFT, _WIDTH - _RIGHT)
    y = Axis(min(0.0, *(p[1] for p in points)), max(p[1] for p in points), height - 26, _TOP)
    parts = [_grid(y, unit)]
    parts += _labels({x.at(place): label for place, label in labels.items()}, height - 6)
    for number, line in enumerate(series.values()):
        color = COLORS[number % len(COLORS)]
        for stretch in _stretches(line, gap):
            places = [(f"{x.at(a):.1f}", f"{y.at(b):.1f}") for a, b in stretch]
            if len(places) == 1:
                (left, top), *_ = places
                radius = 4 if len(line) == 1 else 1.5
                parts.append(f"<circle cx='{left}' cy='{top}' r='{radius}' fill='{color}'/>")
                continue
            path = " ".join(map(",".join, places))
            parts.append(f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='1.5'/>")
    legend = "".join(
        f"<span><i class='dot' style='background:{COLORS[number % len(COLORS)]}'></i>{escape(name)}</span>"
        for number, name in enumerate(series)
    )
    return Markup(f"<div class='legend'>{legend}</div><svg viewBox='0 0 {_WIDTH} {height}'>{''.join(parts)}</svg>")


def _stretches(line: Sequence[tuple[float, float]], gap: float) -> list[list[tuple[float, float]]]:
    found: list[list[tuple[float, float]]] = []
    for point in line:
        if found and point[0] - found[-1][-1][0] <= gap:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def bar_chart(values: Mapping[str, float], *, unit: str) -> Markup:
    """Horizontal bars in the order given, from zero to either side. On a narrow screen the names stand above them."""
    if not values:
        return _NOTHING
    x = Axis(min(0.0, *values.values()), max(0.0, *values.values()), 0, 100)
    parts = []
    for name, value in values.items():
        start, end = sorted((x.at(0), x.at(value)))
        color = COLORS[0] if value >= 0 else COLORS[2]
        parts.append(
            f"<span class='name'>{escape(name)}</span><span class='lane'><i class='bar' style='left:{start:.1f}%;"
            f"width:max(1px,{end - start:.1f}%);background:{color}'></i></span>"
            f"<span class='value'>{value:,.1f} {escape(unit)}</span>"
        )
    return Markup(f"<div class='bars'>{''.join(parts)}</div>")


def _labels(labels: Mapping[float, str], y: float) -> list[str]:
    """Texts under their positions, within the chart's width. A label that would touch the one before it is left out."""
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
