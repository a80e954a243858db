"""Statements of what happens sometimes are counted while somebody records them, and cost nothing else."""

from __future__ import annotations

from raftwerk.runtime.invariants import recording, sometimes


def test_only_what_held_while_it_was_recorded_is_counted() -> None:
    sometimes(True, "before")
    with recording() as seen:
        sometimes(1, "often")
        sometimes(True, "often")
        sometimes(None, "never")
        with recording() as inner:
            sometimes(True, "within")
        sometimes(True, "after")
    sometimes(True, "later")
    assert (seen, inner) == ({"often": 2, "after": 1}, {"within": 1})
