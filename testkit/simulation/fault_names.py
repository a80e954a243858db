"""The faults of a simulated run by name, and how they are drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from ...chaos.sim.faults.fault import Fault, FaultKind

APPLICATION = "application"
"""The role of a process of the application; they take turns."""
_NODES = ("leader", "leader", "coordinator", "transaction-coordinator", "controller", "n1", "n2", "n3")
_ANYBODY = (*_NODES, APPLICATION)


@dataclass(frozen=True, slots=True)
class NamedFault:
    """What may be drawn for a name, and the mean duration in seconds."""

    kinds: tuple[FaultKind, ...]
    targets: tuple[str, ...]
    others: tuple[str, ...] = ()
    mean_s: float = 2.0


NAMED_FAULTS: Mapping[str, NamedFault] = {
    "kill": NamedFault((FaultKind.KILL,), _NODES),
    "power-loss": NamedFault((FaultKind.POWER_LOSS,), _NODES),
    "stop": NamedFault((FaultKind.STOP,), _NODES),
    "pause": NamedFault((FaultKind.PAUSE,), _NODES, mean_s=4.0),
    "cut": NamedFault(
        (FaultKind.ISOLATE, FaultKind.CUT, FaultKind.CUT_OFF, FaultKind.CLIENTS_CUT), _NODES, _ANYBODY, mean_s=4.0
    ),
    "slow": NamedFault((FaultKind.SLOW_LINK, FaultKind.LATE_LINK, FaultKind.SLOW_CLIENTS), _NODES, _ANYBODY),
    "reset": NamedFault((FaultKind.RESET,), _NODES, (APPLICATION,)),
    "slow-disk": NamedFault((FaultKind.SLOW_DISK,), _NODES),
    "clock": NamedFault((FaultKind.CLOCK_JUMP,), _ANYBODY),
    "kill-application": NamedFault((FaultKind.KILL,), (APPLICATION,), mean_s=3.0),
    "pause-application": NamedFault((FaultKind.PAUSE,), (APPLICATION,), mean_s=8.0),
}
"""Every name that `faults` may have. The processes of an application are those that `SimCluster.start` started."""


def names_of(text: str) -> tuple[str, ...]:
    """The names in a list with commas. Raises `ValueError` for one that does not exist."""
    if not isinstance(text, str):
        raise ValueError(f"faults={text!r}: names in one text, such as 'kill,cut'")
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in NAMED_FAULTS:
            raise ValueError(f"there is no fault {name!r}; there are {', '.join(NAMED_FAULTS)}")
    return names


def draw(rng: random.Random, names: tuple[str, ...], *, start_s: float, end_s: float, mean_gap_s: float) -> list[Fault]:
    """Faults between two times, at least one where there are names. The last ends before `end_s`."""
    if not names:
        return []
    faults: list[Fault] = []
    at_s = min(start_s + rng.expovariate(1 / mean_gap_s), (start_s + end_s) / 2)
    while at_s < end_s:
        named = NAMED_FAULTS[rng.choice(names)]
        target = rng.choice(named.targets)
        other = rng.choice(named.others) if named.others else target
        duration_s = min(rng.expovariate(1 / named.mean_s), 5 * named.mean_s, end_s - at_s)
        faults.append(Fault(at_s, rng.choice(named.kinds), target, other, duration_s))
        at_s += rng.expovariate(1 / mean_gap_s)
    return faults
