"""Histories for tests of the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raftwerk.chaos.sim.replay.history import History, Message, RunFacts, Step, StepKind, Value


def a_step(at_us: int, kind: StepKind, changes: Mapping[str, Value], where: str = "n1", text: str = "") -> Step:
    """A step with these changes."""
    return Step(at_us, kind, where, text, changes)


def a_message(
    sent_us: int, arrived_us: int | None, api: str = "Fetch", source: str = "n1", target: str = "n2"
) -> Message:
    """A request of the quorum."""
    return Message(sent_us, arrived_us, source, target, api, "quorum", False)


def a_history(steps: Sequence[Step], messages: Sequence[Message] = (), end_us: int = 1_000_000) -> History:
    """A history of three nodes and a client."""
    facts = RunFacts("kill", "nodes are killed", 7, "d", 10, 3, end_us, "raftwerk sim --scenario kill --seed 7")
    names = ["n1", "n2", "n3"]
    start: dict[str, Value] = {f"{name}.process": "down" for name in names}
    return History(facts, 0, end_us, names, names, ["client"], ["t-0"], start, steps, messages, [], [])
