"""What brings nodes back that give no answer: it depends on how they are silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..client.cluster_client import REFUSES, TIMES_OUT
from ..client.quorum_client import REPLACED
from .findings import ids


@dataclass(frozen=True, slots=True)
class BrokerSilence:
    """The brokers that do not answer, each with why, and what brings them back; whether a controller is active."""

    why: Mapping[int, str] = field(default_factory=dict)
    way_out: str = ""
    is_led: bool = True


NONE_SILENT = BrokerSilence()
"""All brokers answer, and a controller is active."""


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
