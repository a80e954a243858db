"""What becomes of a node when one of those that are told of the metadata fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.controller.controller_harness import Harness, scenario

from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.raft.types import CommittedBatch, LeaderAndEpoch
from raftwerk.runtime.invariants import InvariantViolation

BATCH = CommittedBatch(0, 0, 1, 5, [], 0)


def fails(error: Exception) -> Callable[..., None]:
    def listener(*_: object) -> None:
        raise error

    return listener


def reported(act: Callable[[], None]) -> list[dict[str, Any]]:
    """What the loop's exception handler gets while `act` runs."""
    contexts: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
        act()

    asyncio.run(run())
    return contexts


def test_a_publisher_that_fails_is_reported_and_the_others_are_told() -> None:
    loader = MetadataLoader("c")
    told: list[object] = []
    loader.subscribe(fails(KeyError("t")))
    loader.subscribe(lambda image, delta: told.append(image.offset))
    loader.subscribe_leader(fails(ValueError("of 2")))
    loader.subscribe_leader(told.append)

    def act() -> None:
        loader.on_commit([BATCH])
        loader.on_leader_change(LeaderAndEpoch(2, 1))

    contexts = reported(act)
    assert told == [0, LeaderAndEpoch(2, 1)] and loader.apply_errors == 2
    assert [type(context["exception"]) for context in contexts] == [KeyError, ValueError]
    assert contexts[0]["message"].startswith("the metadata up to offset 0 was not taken up everywhere on this node")


@pytest.mark.parametrize(
    ("error", "is_fatal"), [(KeyError("t"), True), (InvariantViolation("a leader is in its ISR"), False)]
)
def test_a_publisher_that_must_not_miss_a_change_and_a_broken_invariant_end_the_node(
    error: Exception, is_fatal: bool
) -> None:
    loader = MetadataLoader("c")
    loader.subscribe(fails(error), is_fatal=is_fatal)
    loader.subscribe_leader(fails(error), is_fatal=is_fatal)

    def act() -> None:
        with pytest.raises(type(error)):
            loader.on_commit([BATCH])
        with pytest.raises(type(error)):
            loader.on_leader_change(LeaderAndEpoch(2, 1))

    assert reported(act) == [] and loader.apply_errors == 0


@scenario
async def test_the_controller_must_not_miss_a_change() -> None:
    harness = Harness()
    harness.quorum.auto_commit = False
    term: Any = harness.controller._term
    term.pending_responses.append(None)
    with pytest.raises(AttributeError):
        harness.quorum.commit()
    term.pending_responses.clear()
    harness.controller.close()
