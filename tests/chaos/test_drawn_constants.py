"""Constants of the nodes' code that a run draws."""

from __future__ import annotations

import random
import sys

import pytest

from raftwerk.broker.apis.records import large_produce
from raftwerk.chaos.sim.kernel.drawn_constants import SMALL_STEPS, many_steps, modules_with
from raftwerk.chaos.sim.run import Run
from raftwerk.isr.fetching import fetch_requests
from raftwerk.runtime import incremental_work
from raftwerk.wire import produce


@pytest.mark.parametrize("name", SMALL_STEPS)
def test_each_constant_is_there(name: str) -> None:
    assert Run.__module__ in sys.modules  # what a run loads
    assert modules_with(name)


def test_steps_are_small_in_all_modules_until_the_run_ends() -> None:
    def values() -> list[int]:
        return [
            incremental_work.ITEMS_PER_STEP,
            fetch_requests.ITEMS_PER_STEP,  # type: ignore[attr-defined]
            produce.PARTITIONS_PER_STEP,
            large_produce.PARTITIONS_PER_STEP,  # type: ignore[attr-defined]
        ]

    usual, seen = values(), set()
    for seed in range(20):
        with many_steps(random.Random(seed)):
            seen.add(tuple(values()))
        assert values() == usual
    assert seen >= {(1, 1, 1, 1), (3, 3, 1, 1), tuple(usual)}
    assert all(first == second for first, second, *_ in seen)
