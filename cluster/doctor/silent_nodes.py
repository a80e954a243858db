"""What brings nodes back that give no answer, or hold no replicas in sync: it depends on what keeps them from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from ..client.cluster_client import ClusterView
from ..client.peer_protocol import REFUSES, TIMES_OUT
from ..client.quorum_client import REPLACED
from .findings import WARNING, Finding, ids

WAITS = "runs, and does not listen"
"""Why a broker of a local cluster gives no answer of which the process runs, and the port is closed."""
WAITS_IN_VAIN = "runs, and waits for a quorum that has lost its majority"
"""The same where the quorum has lost its majority for good."""


@dataclass(frozen=True, slots=True)
class WaitingBrokers:
    """The brokers of a local cluster of which the process, by its number, runs, and the port is closed.

    They wait `in_vain` where the quorum has lost its majority for good.
    """

    pids: Mapping[int, int] = field(default_factory=dict)
    in_vain: bool = False

    @property
    def why(self) -> str:
        """Why they are silent."""
        return WAITS_IN_VAIN if self.in_vain else WAITS


NOBODY_WAITS = WaitingBrokers()
"""No broker is known to run without listening, as of any cluster that is not local."""


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
    waiting = sorted(one for one, why in silent.items() if why in (WAITS, WAITS_IN_VAIN))
    others = sorted(silent.keys() - {*down, *stuck, *replaced, *waiting})
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
    if waiting:
        is_in_vain = silent[waiting[0]] == WAITS_IN_VAIN
        ways.append(_wait_told(_named(kind, waiting), waiting, local_options or "", is_in_vain=is_in_vain))
    ways += [f"make {_named(kind, others)} answer, as is said of it: its log tells more"] * bool(others)
    return "; ".join(ways)


def _wait_told(who: str, waiting: Sequence[int], local_options: str, *, is_in_vain: bool) -> str:
    """What is to be done for brokers that run and do not listen."""
    is_one = len(waiting) == 1
    if is_in_vain:
        return (
            f"{who} {'waits' if is_one else 'wait'} for a majority of the quorum, which is lost for good, as is said "
            "below: see docs/voters.md, under 'A majority has lost its directories'"
        )
    logs = f"raftwerk logs {' '.join(map(str, waiting))}{local_options} shows which"
    return f"{who} {'starts, stops, or waits' if is_one else 'start, stop, or wait'} for the quorum's leader: {logs}"


def in_sync_without(view: ClusterView, silent: Collection[int]) -> ClusterView:
    """The view with only those brokers in sync that are not `silent`."""
    topics = [
        replace(
            topic,
            partitions=tuple(
                replace(one, isr=tuple(broker for broker in one.isr if broker not in silent))
                for one in topic.partitions
            ),
        )
        for topic in view.topics
    ]
    return replace(view, topics=tuple(topics))


def led_without(view: ClusterView, silent: Collection[int]) -> ClusterView:
    """The view where `silent` brokers lead nothing, and are not in sync, whatever metadata still says of them."""
    topics = [
        replace(
            topic,
            partitions=tuple(
                replace(one, leader=-1 if one.leader in silent else one.leader) for one in topic.partitions
            ),
        )
        for topic in in_sync_without(view, silent).topics
    ]
    return replace(view, topics=tuple(topics))


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
