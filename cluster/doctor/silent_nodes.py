"""What brings nodes back that give no answer, or hold no replicas in sync: it depends on what keeps them from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ..client.peer_protocol import REFUSES, TIMES_OUT
from ..client.quorum_client import REPLACED
from .findings import WARNING, Finding, ids


@dataclass(frozen=True, slots=True)
class BrokerTroubles:
    """The brokers that do not answer, each with why, and what brings them back; those of which a disk is full.

    `is_led` tells whether a controller is active.
    """

    why_silent: Mapping[int, str] = field(default_factory=dict)
    way_out: str = ""
    full: frozenset[int] = frozenset()
    is_led: bool = True

    def remedy(self, missing: Set[int]) -> str | None:
        """What brings the replicas of these brokers back in sync; None if nothing is known of one of them."""
        if not missing or not missing <= self.why_silent.keys() | self.full:
            return None
        full = sorted((missing & self.full) - self.why_silent.keys())
        ways = [self.way_out] * bool(missing & self.why_silent.keys())
        if full:
            ways.append(
                f"{free_space(full)}, and {'its' if len(full) == 1 else 'their'} replicas catch up by themselves"
            )
        return "; ".join(ways)


NO_TROUBLES = BrokerTroubles()
"""All brokers answer, no disk is full, and a controller is active."""


def free_space(full: Sequence[int]) -> str:
    """What is to be done for brokers of which a disk is full."""
    disks = "the disk of" if len(full) == 1 else "the disks of"
    return (
        f"free space on {disks} {_named('broker', [*full])}, as is said of {'it' if len(full) == 1 else 'them'} above"
    )


def fenced(node_ids: Set[int], full: Set[int]) -> list[Finding]:
    """Report brokers that answer and are fenced, with the reason if their disks are full."""
    found = []
    for node_id in sorted(node_ids):
        way_out = "it starts, stops, or reaches no controller: its log shows which"
        if node_id in full:
            way_out = free_space([node_id])
        found.append(Finding(WARNING, f"broker {node_id} is fenced: it leads nothing, and is in no ISR", way_out))
    return found


def bring_back(kind: str, silent: Mapping[int, str], local_options: str | None) -> str:
    """The remedy for silent nodes, by their ids, each with why it is silent. `kind` is broker, controller or node.

    `local_options` is what commands about nodes need behind them in a local cluster; None in any other cluster.
    """
    down = sorted(one for one, why in silent.items() if why == REFUSES)
    stuck = sorted(one for one, why in silent.items() if why == TIMES_OUT)
    replaced = sorted(one for one, why in silent.items() if why == REPLACED)
    others = sorted(silent.keys() - {*down, *stuck, *replaced})
    ways = [f"start {_named(kind, down)}"] * bool(down)
    if stuck:
        command = "kill -CONT with its process id"
        if local_options is not None:
            command = f"raftwerk kill {' '.join(map(str, stuck))} --signal CONT{local_options}"
        are, log = ("is", "its log shows") if len(stuck) == 1 else ("are", "their logs show")
        ways.append(
            f"{_named(kind, stuck)} {are} paused, hanging or overloaded: {command} ends a pause, {log} the rest"
        )
    ways += [rejoin(one) for one in replaced]
    ways += [f"make {_named(kind, others)} answer, as is said of it: its log tells more"] * bool(others)
    return "; ".join(ways)


def rejoin(node_id: int) -> str:
    """What makes a controller a voter again that is back with another log directory."""
    return (
        f"raftwerk quorum remove-controller {node_id} takes the voter with the former directory id out, and then "
        "raftwerk quorum add-controller -c with its server.properties makes the new one a voter, unless it joins by "
        "itself (controller.quorum.auto.join.enable=true)"
    )


def _named(kind: str, node_ids: list[int]) -> str:
    if len(node_ids) == 1:
        return f"{kind} {node_ids[0]}"
    return f"{'the nodes' if kind == 'node' else f'{kind}s'} {ids(node_ids)}"
