"""Numbers of things in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """The number and the noun, in the singular for one: `1 node`, `3 nodes`, `1,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some_of(names: Sequence[str], count_max: int) -> str:
    """The first of the names, and how many more there are: `a, b and 3 more`."""
    more = len(names) - count_max
    return ", ".join(names[:count_max]) + (f" and {more} more" if more > 0 else "")


def size_text(size_bytes: int) -> str:
    """A size on a disk or in memory in binary units, as `df -h` counts: `512 bytes`, `1.5 MiB`, `20.0 GiB`."""
    if size_bytes < 2**20:
        return counted(size_bytes, "byte") if size_bytes < 2**10 else f"{size_bytes / 2**10:.1f} KiB"
    return f"{size_bytes / 2**20:.1f} MiB" if size_bytes < 2**30 else f"{size_bytes / 2**30:,.1f} GiB"
