"""Numbers of things in sentences."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """The number and the noun, in the singular for one: `1 node`, `3 nodes`, `1,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size_text(size_bytes: int) -> str:
    """A size on a disk or in memory in binary units, as `df -h` counts: `512 bytes`, `1.5 MiB`, `20.0 GiB`."""
    if size_bytes < 2**20:
        return counted(size_bytes, "byte") if size_bytes < 2**10 else f"{size_bytes / 2**10:.1f} KiB"
    return f"{size_bytes / 2**20:.1f} MiB" if size_bytes < 2**30 else f"{size_bytes / 2**30:,.1f} GiB"
