"""What the simulator checks of each log that retention has shortened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.retention_rules import Retention, RetentionRules
from raftwerk.wire.records import NewRecord, encode_batch

KEY = UUID(int=1), 0
BATCHES = {offset: bytes(encode_batch([NewRecord(None, b"v", (), 1_000 + offset)])) for offset in range(10)}


def check(retention: Retention, start: int, *, size_bytes: int = 0, end: int = 10, wall_ms: int = 0) -> RetentionRules:
    rules = RetentionRules()
    rules.topics["t"] = retention
    log: Any = SimpleNamespace(log_start_offset=start, size_bytes=size_bytes)
    rules.check(KEY, "t", log, (end, BATCHES), wall_ms)
    return rules


def test_what_the_settings_allow_is_the_start_for_others() -> None:
    rules = check(Retention(size_bytes=100), 5, size_bytes=100)
    assert rules.starts == {KEY: 5}
    follower: Any = SimpleNamespace(log_start_offset=4, size_bytes=3)
    rules.check(KEY, "t", follower, (10, BATCHES), 0)
    assert check(Retention(time_ms=500), 5, wall_ms=1_505).starts == {KEY: 5}


@pytest.mark.parametrize(
    ("retention", "wrong"),
    [
        (Retention(size_bytes=100), {"size_bytes": 99}),
        (Retention(time_ms=500), {"wall_ms": 1_504}),
        (Retention(size_bytes=100), {"size_bytes": 500, "end": 4}),
    ],
    ids=["too little is left", "too young", "not committed"],
)
def test_what_they_do_not_allow_is_told(retention: Retention, wrong: dict[str, int]) -> None:
    with pytest.raises(InvariantBroken, match="a log gives up only what retention allows"):
        check(retention, 5, **wrong)
