"""A picture of a comparison: an SVG with a bar for each row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from ..common.results import Results, number

_LABEL_WIDTH, _HALF_WIDTH, _LINE, _TOP = 470, 210, 19, 44
_DECADES = 2.0
"""A bar is at most so many powers of ten long; what is more is said by its number."""


def picture(results: Results) -> str:
    """How many times better the first system is than the second; bars to the right of the middle are better."""
    ours, theirs = results.systems[0], results.systems[1]
    bars = [(row.name, ratio) for row in results.rows.values() if (ratio := row.ratio(ours, theirs)) is not None]
    return _picture_of(bars, f"{ours}: how many times better than {theirs}")


def _picture_of(bars: Sequence[tuple[str, float]], title: str) -> str:
    width, height = _LABEL_WIDTH + 2 * _HALF_WIDTH + 80, _TOP + _LINE * len(bars) + 12
    middle = _LABEL_WIDTH + _HALF_WIDTH
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' font-family='sans-serif' font-size='12' role='img'>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        f"<text x='12' y='24' font-size='15' fill='#222'>{escape(title)}</text>",
    ]
    for at_line, (name, ratio) in enumerate(bars):
        y = _TOP + at_line * _LINE
        length = max(-1.0, min(1.0, math.log10(ratio) / _DECADES)) * _HALF_WIDTH
        left, color = (middle, "#2f7d4f") if length >= 0 else (middle + length, "#b4532a")
        parts.append(f"<text x='{_LABEL_WIDTH - 10}' y='{y + 13}' text-anchor='end' fill='#222'>{escape(name)}</text>")
        parts.append(f"<rect x='{left:.1f}' y='{y + 3}' width='{max(abs(length), 1):.1f}' height='13' fill='{color}'/>")
        at = max(middle, middle + length) + 6
        parts.append(f"<text x='{at:.1f}' y='{y + 13}' fill='#222'>{number(ratio)}</text>")
    parts.append(f"<line x1='{middle}' x2='{middle}' y1='{_TOP - 4}' y2='{height - 8}' stroke='#222'/>")
    return "\n".join([*parts, "</svg>", ""])
