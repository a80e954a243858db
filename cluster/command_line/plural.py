"""Numbers of things in sentences."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """The number and the noun, in the singular for one: `1 node`, `3 nodes`, `1,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
