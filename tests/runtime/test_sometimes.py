"""Statements of what happens sometimes are counted while somebody records them, and cost nothing else."""

from __future__ import annotations

from raftwerk.runtime.invariants import Sightings, recording, sometimes


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
    assert {what: one.count for what, one in seen.items()} == {"often": 2, "after": 1}
    assert {what: one.count for what, one in inner.items()} == {"within": 1}


def test_the_first_time_is_kept() -> None:
    times_s = iter((1.5, 2.5, 9.0))
    with recording(lambda: next(times_s)) as seen:
        sometimes(True, "often")
        sometimes(True, "once")
        sometimes(True, "often")
    assert seen == {"often": Sightings(1.5, 2), "once": Sightings(2.5, 1)}
