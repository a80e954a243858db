"""A finding of `raftwerk doctor`: a sentence with its remedy, and how several things are named in one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK, WARNING, FAILURE = "ok", "warning", "failure"
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `way_out` is the remedy; it is empty when nothing is wrong."""

    level: str
    what: str
    way_out: str = ""


def ids(found: Iterable[int]) -> str:
    """The ids of nodes in order, or "none"."""
    return ", ".join(str(one) for one in sorted(found)) or "none"


def some(names: list[str]) -> str:
    """The first few of these, and how many more there are."""
    more = len(names) - _NAMED
    return "; ".join(names[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def exposed(what: str) -> Finding:
    """A listener of controllers that other machines reach, and that nothing secures."""
    harm = "whoever reaches it can vote, move leaders and stop brokers"
    way_out = "let only the cluster's own machines reach it: another address in listeners, or a firewall (SECURITY.md)"
    return Finding(WARNING, f"{what}, and it is not secured: {harm}", way_out)
