"""A fault of the simulator as data: what happens, to which host, when and for how long.

A fault names its target by role ("leader", "controller") or by host name, so a run can print its faults, and the
shrinker can leave them out one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class FaultKind(Enum):
    """The kind of a fault. It is undone after its duration; only a failed log directory stays so until the heal."""

    KILL = "kill"
    POWER_LOSS = "power loss"
    KILL_AT_OPERATION = "kill between two operations on the disk"
    POWER_LOSS_AT_OPERATION = "power loss between two operations on the disk"
    KILL_ALL = "kill all"
    POWER_LOSS_ALL = "power loss everywhere"
    STOP = "stop"
    PAUSE = "pause"
    SLOW_START = "killed, and slow when it has started again"
    ISOLATE = "isolate"
    CUT = "cut"
    CUT_ONE_WAY = "cut one way"
    STALLED_METADATA = "metadata is not delivered"
    METADATA_STAYS = "metadata stays with its leader, which is then killed, twice"
    RESET = "reset connections"
    LOSE_ENDS = "one end of connections is lost"
    REJECT = "answers peers with resets"
    SLOW_LINK = "slow link"
    LATE_LINK = "some segments arrive late"
    SLOW_CLIENTS = "requests of clients arrive late"
    COORDINATORS_LOAD = "coordinators load again while markers are under way"
    BRIDGE = "two halves that only one node joins"
    RING = "a ring in which each node reaches two others"
    SPLIT = "two halves"
    CLIENTS_CUT = "cut off from clients"
    CUT_OFF = "cut off from everybody"
    LEFT_ALONE = "cut off from other brokers, then from controllers; clients still reach it"
    OTHERS_KILLED = "slow for the other brokers, which then are killed"
    SLOW_DISK = "slow disk"
    FSYNC_FAILS = "fsync fails"
    DISK_FULL = "disk full"
    WIPED_DISK = "wiped disk"
    OLD_DISK = "an old copy of the disk"
    BIT_ROT = "bit rot"
    STATE_ROT = "bit rot in the topics of coordinators"
    SHORT_FILES = "stopped or killed, and small files of its logs end early"
    DIR_FAILS = "a log directory fails"
    REPLICA_FAILS = "the files of one replica cannot be read or written"
    WIPED_DIR = "wiped log directory"
    EXCHANGED_DIR = "stopped, and one log directory exchanged for an empty one"
    REMOVED_LOGS = "stopped, and the directories of some replicas removed"
    LYING_DISK = "fsyncs are not done, and then the power is lost"
    CLOCK_JUMP = "clock jump"
    CLOCK_DRIFT = "clock drift"


_BETWEEN_TWO = (
    FaultKind.CUT,
    FaultKind.CUT_ONE_WAY,
    FaultKind.RESET,
    FaultKind.LOSE_ENDS,
    FaultKind.SLOW_LINK,
    FaultKind.LATE_LINK,
)
_EVERYWHERE = (FaultKind.KILL_ALL, FaultKind.POWER_LOSS_ALL, FaultKind.BRIDGE, FaultKind.RING, FaultKind.SPLIT)
_STATES = (
    FaultKind.SLOW_START,
    FaultKind.CLIENTS_CUT,
    FaultKind.CUT_OFF,
    FaultKind.LEFT_ALONE,
    FaultKind.OTHERS_KILLED,
    FaultKind.EXCHANGED_DIR,
    FaultKind.REMOVED_LOGS,
    FaultKind.SHORT_FILES,
)
"""The kinds whose names say what a host is."""
_MOMENTARY = (FaultKind.RESET, FaultKind.LOSE_ENDS, FaultKind.CLOCK_JUMP, FaultKind.BIT_ROT, FaultKind.STATE_ROT)


def hosts_of(kind: FaultKind, target: str, other: str, names: Sequence[str]) -> tuple[str, ...]:
    """The hosts that a fault of this kind concerns; `names` are all hosts of the cluster."""
    if kind in _EVERYWHERE:
        return tuple(names)
    return (target, other) if kind in _BETWEEN_TWO and other != target else (target,)


def fault_text(kind: FaultKind, target: str, other: str) -> str:
    """What happens, and to which host: `n1 is cut off from everybody`. A host that it does not concern is not named."""
    what = kind.value
    if kind in _STATES:
        return f"{target} is {what}"
    if kind is not FaultKind.BRIDGE and kind in _EVERYWHERE:
        return what
    if kind in _BETWEEN_TWO and other != target:
        return (
            f"{what} from {target} to {other}"
            if kind is FaultKind.CUT_ONE_WAY
            else f"{what} between {target} and {other}"
        )
    return f"{what}: {target}" if " " in what else f"{what} {target}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `target` and `other` are host names, or roles that the cluster resolves when the fault begins."""

    at_s: float
    kind: FaultKind
    target: str
    other: str
    duration_s: float

    @property
    def lasts_s(self) -> float:
        """How long it lasts; 0 for what is done at once, whatever the duration that was drawn."""
        return 0.0 if self.kind in _MOMENTARY else self.duration_s

    def __str__(self) -> str:
        lasting = f" for {self.lasts_s:.3f} s" if self.lasts_s else ""
        return f"{self.at_s:.3f} {fault_text(self.kind, self.target, self.other)}{lasting}"
