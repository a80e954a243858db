"""Invariants hold in every run; `sometimes` states what must happen in some run.

A broken invariant stops the node: wrong state must not be served, replicated or written.

Statements of what happens sometimes stand in the rare branches. One that no run of the simulator confirms any more says
that the simulator does not come there: the branch is not tested, whatever passes. Antithesis and FoundationDB know by
such statements that their simulators still search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_seen: Counter[str] | None = None


class InvariantViolation(Exception):
    """Something that must hold does not. It is never caught to continue as before."""


def invariant(condition: object, what_must_hold: str) -> None:
    """Raise `InvariantViolation` unless `condition`. Never `assert`, which `python -O` removes."""
    if not condition:
        raise InvariantViolation(what_must_hold)


def sometimes(condition: object, what: str) -> None:
    """State that the condition holds in some run. Outside of `recording` this does nothing.

    `what` is a literal, which stands nowhere else in the code: a clause such as "a follower installed a snapshot".
    """
    if _seen is not None and condition:
        _seen[what] += 1


@contextmanager
def recording() -> Iterator[Counter[str]]:
    """Count how often each statement is confirmed meanwhile."""
    global _seen
    before, _seen = _seen, Counter()
    try:
        yield _seen
    finally:
        _seen = before
