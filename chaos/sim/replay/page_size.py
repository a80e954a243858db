"""Keeps a replay small enough for a page: what comes often is told more coarsely, until it fits.

Rare steps are always told: faults, elections, leaders, ISRs, truncations and failures. Each time, the history says what
was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .history import FREQUENT, History, Message, Step, StepKind

_GRIDS_US = (2_000, 10_000, 50_000, 250_000, 1_000_000)


def fitted(history: History, is_small_enough: Callable[[History], bool]) -> History:
    """The history, coarser if it must be. It may still be too large, if rare steps alone are too many."""
    found = history
    for grid_us in _GRIDS_US:
        if is_small_enough(found):
            return found
        found = coarser(history, grid_us)
    if is_small_enough(found):
        return found
    return _without_log_lines(found)


def coarser(history: History, grid_us: int) -> History:
    """One message a grid cell for each link and API, and one frequent step for each thing that it is about."""
    messages = _thinned(history.messages, grid_us)
    steps = _merged(history.steps, grid_us)
    told = f"{grid_us / 1000:g} ms"
    left_out = list(history.left_out)
    if fewer := len(history.messages) - len(messages):
        left_out.append(f"{fewer:,} messages are not shown: one of each API, link and {told} is.")
    if fewer := len(history.steps) - len(steps):
        left_out.append(f"{fewer:,} changes of offsets are told together with later ones of the same {told}.")
    return replace(history, messages=messages, steps=steps, left_out=left_out)


def _thinned(messages: Sequence[Message], grid_us: int) -> list[Message]:
    shown: dict[tuple[int, str, str, str, bool], Message] = {}
    for one in messages:
        shown.setdefault((one.sent_us // grid_us, one.source, one.target, one.api, one.is_response), one)
    return list(shown.values())


def _merged(steps: Sequence[Step], grid_us: int) -> list[Step]:
    """A frequent step takes over the changes of those before it in its cell, unless a rare step parts them."""
    kept = [True] * len(steps)
    changes = [dict(step.changes) for step in steps]
    latest: dict[str, dict[StepKind, int]] = {}
    """The latest frequent steps about each host, replica or partition, since the latest rare step about it."""
    for number, step in enumerate(steps):
        subjects = list(dict.fromkeys(key.rpartition(".")[0] for key in step.changes))
        if step.kind not in FREQUENT:
            for subject in subjects:
                latest.pop(subject, None)
            continue
        of_kind = latest.setdefault(subjects[0], {})
        before = of_kind.get(step.kind)
        if before is not None and steps[before].at_us // grid_us == step.at_us // grid_us:
            kept[before] = False
            changes[number] = {**changes[before], **changes[number]}
        of_kind[step.kind] = number
    return [replace(step, changes=changes[number]) for number, step in enumerate(steps) if kept[number]]


def _without_log_lines(history: History) -> History:
    steps = [step for step in history.steps if step.kind is not StepKind.LOG_LINE]
    fewer = len(history.steps) - len(steps)
    left_out = [*history.left_out, f"{fewer:,} lines of the nodes' logs are not shown."] if fewer else history.left_out
    return replace(history, steps=steps, left_out=left_out)
