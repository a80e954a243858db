"""The timeline of a run as SVG: faults, leaders, acks and reads a second, and latency, on one time axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from ..checker.time_series import SECOND_NS, ClusterView, FaultSpan, Second, TimeSeries, quantile_ms

_WIDTH = 1016
_LEFT = 120
_RIGHT = 12
_LANE = 20
_PLOT = 96
_GAP = 30
_POINTS_MAX = 900
# Nodes are blue and green, faults red, orange, brown and pink, so that no two colors on a page mean the same.
_NODE_COLORS = ("#3b6fb6", "#3f9c6d", "#7a6bc4", "#4aa3b5", "#6b7f2a", "#1f4e79", "#1f7a6d", "#5f8fd9", "#9ab33a")
_NOBODY = "#1c2430"
Line = tuple[list[float | None], str, str]
_FAULT_COLORS = {
    "kill": "#c2554f",
    "pause": "#d98b2b",
    "cut": "#d06fa0",
    "loss": "#8a5a3c",
    "reset": "#9b2f4f",
    "slow": "#b8960b",
    "disk": "#e07a5f",
    "power": "#6e3b2a",
    "eio": "#b34fb0",
    "chase": "#e0403a",
    "rolling": "#c4a06a",
}
_OTHER_FAULT = "#7d7468"


def fault_color(fault: str) -> str:
    """The color of a family of faults, for the timeline and the tables. No node has it."""
    return _FAULT_COLORS.get(fault.partition("-")[0], _OTHER_FAULT)


def node_color(node_id: int) -> str:
    """The color of a node; dark for no leader."""
    return _NODE_COLORS[(node_id - 1) % len(_NODE_COLORS)] if node_id >= 0 else _NOBODY


class Timeline:
    """Draws lanes and plots from top to bottom."""

    def __init__(self, series: TimeSeries) -> None:
        self.series = series
        self.start_ns = series.origin_ns
        self.end_ns = max(self.start_ns + SECOND_NS, series.last_ns)
        self.parts: list[str] = []
        self.y = 4.0

    def x(self, at_ns: int) -> float:
        """The x coordinate of a time."""
        inside = min(max(at_ns, self.start_ns), self.end_ns)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (inside - self.start_ns) / (self.end_ns - self.start_ns)

    def render(self) -> str:
        """The SVG element."""
        self._faults()
        self._leaders()
        self._plots()
        self._axis()
        shades = "".join(self._shades())
        size = f"viewBox='0 0 {_WIDTH} {self.y + 4:.0f}' width='{_WIDTH}' height='{self.y + 4:.0f}'"
        return f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img'>{shades}{''.join(self.parts)}</svg>"

    # -- lanes

    def _faults(self) -> None:
        kinds: dict[str, list[FaultSpan]] = {}
        for span in self.series.faults.values():
            kinds.setdefault(span.fault, []).append(span)
        if not kinds:
            return
        self._title("Faults")
        if self.series.stalls:
            self._lane("(machine stalled)", [(start, end, _NOBODY, "") for start, end in self.series.stalls])
        for kind in sorted(kinds):
            bars = [(one.start_ns, _end(one, self.end_ns), fault_color(kind), one.target) for one in kinds[kind]]
            self._lane(kind, bars)
        self.y += _GAP / 2

    def _leaders(self) -> None:
        seen = self.series.leaders
        if not seen:
            return
        self._title("Leaders by node, underlined in red where replicas are out of sync")
        nodes = sorted({one for look in seen for one in (*look.leaders, *(node for isr in look.isr for node in isr))})
        self._legend([node for node in nodes if node >= 0])
        partitions = max(len(look.leaders) for look in seen)
        full = max((len(isr) for look in seen for isr in look.isr), default=0)
        for partition in range(min(partitions, 24)):
            self._lane(f"partition {partition}", self._leader_bars(partition), height=11)
            self._thin_isr(partition, full)
        if any(look.controller is not None for look in seen):
            self._lane("controller", self._controller_bars(), height=11)
        self.y += _GAP / 2

    def _leader_bars(self, partition: int) -> list[tuple[int, int, str, str]]:
        def leader(look: ClusterView) -> int:
            return look.leaders[partition] if partition < len(look.leaders) else -1

        return [
            (start, end, node_color(leader(look)), f"node {leader(look)}, in sync {list(look.isr[partition])}")
            for start, end, look in self._looks()
            if partition < len(look.isr)
        ]

    def _controller_bars(self) -> list[tuple[int, int, str, str]]:
        return [
            (start, end, node_color(look.controller), f"node {look.controller}")
            for start, end, look in self._looks()
            if look.controller is not None
        ]

    def _looks(self) -> Iterator[tuple[int, int, ClusterView]]:
        seen = self.series.leaders
        ends = [*(one.at_ns for one in seen[1:]), self.end_ns]
        return ((look.at_ns, end, look) for look, end in zip(seen, ends))

    def _thin_isr(self, partition: int, full: int) -> None:
        """A red line under the bar while replicas are out of sync."""
        y = self.y - 5
        for start, end, look in self._looks():
            if partition < len(look.isr) and len(look.isr[partition]) < full:
                width = max(1.0, self.x(end) - self.x(start))
                at = f"x='{self.x(start):.1f}' y='{y:.1f}' width='{width:.1f}'"
                self.parts.append(f"<rect {at} height='2' fill='#e2574c'/>")

    def _legend(self, nodes: Sequence[int]) -> None:
        at = _WIDTH - _RIGHT - 74 * (len(nodes) + 1)
        for color, label in [*((node_color(node), f"node {node}") for node in nodes), (_NOBODY, "nobody")]:
            self.parts.append(f"<rect x='{at}' y='{self.y - 20:.1f}' width='10' height='10' rx='2' fill='{color}'/>")
            self.parts.append(f"<text x='{at + 15}' y='{self.y - 11:.1f}'>{label}</text>")
            at += 74

    def _lane(self, label: str, bars: list[tuple[int, int, str, str]], height: int = _LANE - 6) -> None:
        y = self.y
        self.parts.append(f"<text x='{_LEFT - 10}' y='{y + height - 1:.1f}' text-anchor='end'>{escape(label)}</text>")
        for start, end, color, told in bars:
            width = max(2.0, self.x(end) - self.x(start))
            at = f"x='{self.x(start):.1f}' y='{y:.1f}' width='{width:.1f}' height='{height}'"
            self.parts.append(f"<rect {at} rx='2' fill='{color}'><title>{escape(told)}</title></rect>")
        self.y += height + 6

    # -- plots

    def _plots(self) -> None:
        seconds = self.series.seconds
        if not seconds:
            return
        first, last = self.start_ns // SECOND_NS, self.end_ns // SECOND_NS
        step = max(1, (last - first) // _POINTS_MAX)
        at = list(range(first, last + 1, step))

        def total(field: str) -> list[float | None]:
            return [
                sum(getattr(seconds[one], field) for one in range(second, second + step) if one in seconds) / step
                for second in at
            ]

        self._plot("Acks / s", at, [(total("acked"), "#3f9c6d", "acked"), (total("failed"), "#c2554f", "not acked")])
        if self.series.commits:
            self._plot("Transactions / s", at, [(total("committed"), "#7a6bc4", "committed")])
        self._plot("Reads / s", at, [(total("read"), "#3b6fb6", "read")])
        quantiles: list[tuple[list[float | None], str, str]] = []
        for q, color, label in ((0.99, "#d98b2b", "p99"), (0.5, "#3b6fb6", "p50")):
            quantiles.append(([_quantile(seconds, second, step, q) for second in at], color, label))
        self._log_plot("Ack latency", at, quantiles)

    def _plot(self, title: str, at: list[int], lines: list[Line]) -> None:
        top = _nice(max((value for values, _, _ in lines for value in values if value is not None), default=0.0))
        ticks = [(share, f"{top * share:,.{0 if top >= 4 else 1}f}") for share in (0.0, 0.5, 1.0)]
        self._draw(title, at, [(_scaled(values, top), color, label) for values, color, label in lines], ticks)

    def _log_plot(self, title: str, at: list[int], lines: list[Line]) -> None:
        """A plot of milliseconds on a logarithmic scale."""
        known = [value for values, _, _ in lines for value in values if value]
        low, high = math.floor(math.log10(min(known, default=1.0))), math.ceil(math.log10(max(known, default=10.0)))
        span = max(1, high - low)
        ticks = [((power - low) / span, _in_words(10.0**power)) for power in range(low, low + span + 1)]
        scaled: list[Line] = [
            ([math.log10(v) - low if v else None for v in values], color, label) for values, color, label in lines
        ]
        self._draw(title, at, [(_scaled(values, span), color, label) for values, color, label in scaled], ticks)

    def _draw(self, title: str, at: list[int], lines: list[Line], ticks: list[tuple[float, str]]) -> None:
        self._title(title)
        base = self.y + _PLOT
        for share, label in ticks:
            y = base - _PLOT * share
            self.parts.append(f"<line x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y:.1f}' y2='{y:.1f}' stroke='#e3e8ee'/>")
            self.parts.append(f"<text class='faint' x='{_LEFT - 10}' y='{y + 4:.1f}' text-anchor='end'>{label}</text>")
        for number, (values, color, label) in enumerate(lines):
            path = self._path(at, values, base)
            self.parts.append(f"<path d='{path}' fill='none' stroke='{color}' stroke-width='1.6'/>")
            x = _WIDTH - _RIGHT - 84 * (len(lines) - number)
            self.parts.append(f"<rect x='{x}' y='{self.y - 19:.1f}' width='12' height='3' fill='{color}'/>")
            self.parts.append(f"<text x='{x + 17}' y='{self.y - 13:.1f}'>{label}</text>")
        self.y = base + _GAP

    def _path(self, at: list[int], values: list[float | None], base: float) -> str:
        path, pen = [], "M"
        for second, value in zip(at, values):
            if value is None:
                pen = "M"
                continue
            middle = self.x(second * SECOND_NS + SECOND_NS // 2)
            path.append(f"{pen}{middle:.1f} {base - _PLOT * value:.1f}")
            if pen == "M":
                path.append("h0.8")
            pen = "L"
        return " ".join(path)

    # -- what is around

    def _title(self, text: str) -> None:
        self.parts.append(f"<text class='title' x='0' y='{self.y + 12:.1f}'>{escape(text)}</text>")
        self.y += 24

    def _shades(self) -> Iterator[str]:
        for span in self.series.faults.values():
            start, end = self.x(span.start_ns), self.x(_end(span, self.end_ns))
            yield (
                f"<rect x='{start:.1f}' y='0' width='{max(1.0, end - start):.1f}' height='{self.y - 18:.0f}' "
                f"fill='{fault_color(span.fault)}' opacity='0.08'/>"
            )

    def _axis(self) -> None:
        total_s = (self.end_ns - self.start_ns) / 1e9
        step = _nice(total_s / 8)
        at, y = 0.0, self.y - _GAP / 2
        while at <= total_s:
            x = self.x(self.start_ns + int(at * 1e9))
            anchor = "end" if x > _WIDTH - 40 else "middle"
            self.parts.append(f"<text x='{x:.1f}' y='{y + 4:.1f}' text-anchor='{anchor}'>{at:g} s</text>")
            at += step
        self.y = y + 10


def draw_timeline(series: TimeSeries) -> str:
    """The timeline as an SVG element."""
    return Timeline(series).render()


def _scaled(values: list[float | None], top: float) -> list[float | None]:
    return [None if value is None else min(1.0, value / top) for value in values]


def _in_words(ms: float) -> str:
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


def _quantile(seconds: dict[int, Second], second: int, step: int, q: float) -> float | None:
    merged: dict[int, int] = {}
    for one in range(second, second + step):
        for bucket, count in seconds[one].latency.items() if one in seconds else ():
            merged[bucket] = merged.get(bucket, 0) + count
    return quantile_ms(merged, q)


def _nice(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, ..."""
    scale = 0.1
    while True:
        for factor in (1, 2, 5):
            if scale * factor >= value:
                return scale * factor
        scale *= 10


def _end(span: FaultSpan, otherwise_ns: int) -> int:
    return span.end_ns if span.end_ns is not None else otherwise_ns
