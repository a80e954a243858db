"""A broken invariant stops the node: wrong state must not be served, replicated or written."""

from __future__ import annotations


class InvariantViolation(Exception):
    """Something that must hold does not. It is never caught to continue as before."""


def invariant(condition: object, what_must_hold: str) -> None:
    """Raise `InvariantViolation` unless `condition`. Never `assert`, which `python -O` removes."""
    if not condition:
        raise InvariantViolation(what_must_hold)
