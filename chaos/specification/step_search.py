"""Whether a change that was observed is a step of a specification, or a few steps one after the other.

A specification is a list of named actions, as in TLA+. An action looks at a state and at the state that was observed
after the event, and proposes the states that it can lead to. Each proposal says which condition of the action does not
hold, if one does not. One event of a simulation may carry out several actions, so a path of a few actions is looked
for. Without one, the proposal that comes closest to what was observed tells which condition was violated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

S = TypeVar("S")

_ACTIONS_MAX = 8
"""An event carries out few actions. A first observation after a restart may cover some more."""


@dataclass(frozen=True, slots=True)
class Proposal(Generic[S]):
    """What an action would do. `violated` are the conditions that do not hold, each in a sentence."""

    action: str
    state: S
    violated: tuple[str, ...] = ()


def violated(*conditions: tuple[bool, str]) -> tuple[str, ...]:
    """The sentences of the conditions that do not hold."""
    return tuple(sentence for holds, sentence in conditions if not holds)


Action = Callable[[S, S], Iterable[Proposal[S]]]
"""Proposes the states to which the action can lead from the first state on the way to the second one."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """An observed change that no path of actions explains."""

    difference: str
    nearest: str
    """The action that comes closest, with its violated condition."""

    def __str__(self) -> str:
        return f"{self.difference}; {self.nearest}"


def explain(before: S, after: S, actions: Sequence[Action[S]]) -> list[Proposal[S]] | Deviation:
    """The shortest path of actions that leads from `before` to `after`, or why there is none."""
    paths: dict[S, list[Proposal[S]]] = {before: []}
    refused: list[Proposal[S]] = []
    reached = [before]
    for _ in range(_ACTIONS_MAX):
        if after in paths:
            return paths[after]
        found = [(state, one) for state in reached for action in actions for one in action(state, after)]
        refused += [one for _, one in found if one.violated]
        reached = []
        for state, one in found:
            if not one.violated and one.state not in paths:
                paths[one.state] = [*paths[state], one]
                reached.append(one.state)
        if not reached:
            break
    return _deviation(before, after, paths, refused)


def _deviation(before: S, after: S, paths: dict[S, list[Proposal[S]]], refused: Sequence[Proposal[S]]) -> Deviation:
    changed = ", ".join(f"{name} from {_text(old)} to {_text(new)}" for name, old, new in differences(before, after))

    def distance(one: Proposal[S]) -> tuple[int, int]:
        return len(differences(one.state, after)), len(one.violated)

    nearest = min(refused, key=distance, default=None)
    if nearest is not None:
        return Deviation(changed, f"not {nearest.action}: {nearest.violated[0]}")
    reached = min(paths, key=lambda state: len(differences(state, after)))
    parts = differences(reached, after)
    missing = ", ".join(f"{name} is {_text(new)}, not {_text(old)}" for name, old, new in parts)
    path = " and ".join(one.action for one in paths[reached]) or "no action"
    return Deviation(changed, f"{path} explains it but for this: {missing}")


def differences(before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    """The fields in which two states differ, with both values."""
    compared = [field.name for field in fields(before) if field.compare]
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in compared]
    return [(name.replace("_", " "), old, new) for name, old, new in pairs if old != new]


def _text(value: Any) -> str:
    """A value of an enumeration and a thing with an id by that alone, and a set in its order."""
    if isinstance(value, frozenset):
        return str(sorted(value))
    return str(getattr(value, "value", getattr(value, "id", value)))
