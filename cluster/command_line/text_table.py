"""Text for terminals: tables with lines around their cells, and sentences folded at the terminal's width."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TextIO, TypeVar

import click

T = TypeVar("T")

_CUT = "…"
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a colour by click's names, or None for the terminal's own."""

    text: str
    colour: str | None = None


def folded(text: str, indent: int = 0, *, to: TextIO | None = None) -> str:
    """The text in lines no longer than the terminal is wide. Those that a line is folded into are indented.

    Its lines stay as they are where `to`, by default standard output, is no terminal, so that programs can search it.
    """
    if not (to or sys.stdout).isatty():
        return text
    width = shutil.get_terminal_size().columns
    folder = textwrap.TextWrapper(width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(folder.fill, text.split("\n")))


def visible(text: str) -> str:
    """The text with control characters as escapes: the names that clients choose must not steer a terminal."""
    return text if text.isprintable() else "".join(one if one.isprintable() else _escaped(one) for one in text)


def boxed(
    rows: Sequence[Sequence[Cell]],
    *,
    header: Sequence[str] = (),
    right: Collection[int] = (),
    width: int | None = None,
    give_way: Sequence[int] = (),
) -> list[str]:
    """The lines of a table. The columns `right` are aligned to the right.

    Where it would be wider than `width`, columns of `give_way` are left out, the first one first; then texts of the
    last column are cut.
    """
    titles = [[Cell(text) for text in header]] if header else []
    if give_way and rows and width is not None and _width(_widths([*titles, *rows])) > width:
        at, *others = give_way
        return boxed(
            [_without(row, at) for row in rows],
            header=_without(header, at),
            right=[one - (one > at) for one in right if one != at],
            width=width,
            give_way=[one - (one > at) for one in others],
        )
    widths = _widths([*titles, *rows])
    if width is not None and widths:
        over = _width(widths) - width
        widths[-1] = min(widths[-1], max(_NARROWEST, widths[-1] - over))
    bars = ["─" * (one + 2) for one in widths]

    def line(cells: Sequence[Cell]) -> str:
        padded = (_padded(cell, widths[at], to_right=at in right) for at, cell in enumerate(cells))
        return f"│ {' │ '.join(padded)} │"

    head = [line(titles[0]), f"├{'┼'.join(bars)}┤"] if titles else []
    return [f"┌{'┬'.join(bars)}┐", *head, *(line(row) for row in rows), f"└{'┴'.join(bars)}┘"]


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _widths(rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The width of each column."""
    return [max(len(cell.text) for cell in column) for column in zip(*rows, strict=True)]


def _width(widths: Sequence[int]) -> int:
    """The width of the whole table."""
    return sum(widths) + 3 * len(widths) + 1


def _without(row: Sequence[T], at: int) -> list[T]:
    return [*row[:at], *row[at + 1 :]]


def _padded(cell: Cell, width: int, *, to_right: bool) -> str:
    text = cell.text if len(cell.text) <= width else cell.text[: width - 1] + _CUT
    padded = text.rjust(width) if to_right else text.ljust(width)
    return padded if cell.colour is None else click.style(padded, fg=cell.colour)
