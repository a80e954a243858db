"""What the replicas of nodes were after each event, by which answers to fetches are judged.

Answers are sent at the time at which they are made, in another event. So an answer is compared with the replica as it
was before and after all that happened to it at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .....isr.replica import Replica
from .....isr.replica_manager import ReplicaManager
from .....wire.fetch import FetchRequest
from ..invariant_broken import InvariantBroken
from .fetch_session_model import FetchedKey

_ENOUGH_EVENTS = 20
"""A node that has run so many events since there were records was not paused, and had the time to answer."""
_LATE_S = 0.1


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """A replica after an event."""

    epoch: int
    leader_id: int
    start_offset: int
    end_offset: int
    high_watermark: int
    stable_offset: int
    isr: tuple[int, ...]
    """That it has as the leader; empty for a follower."""


Around = tuple[SeenReplica, SeenReplica]
"""A replica before and after what happened to it at this time."""


def _seen(replica: Replica) -> SeenReplica:
    partition, log = replica.partition, replica.log
    offsets = log.log_start_offset, log.log_end_offset, replica.high_watermark, replica.last_stable_offset
    isr = () if partition.leader is None else tuple(partition.leader.isr_state.isr)
    return SeenReplica(partition.leader_epoch, partition.leader_id, *offsets, isr)


class ReplicaStates:
    """Observes the replicas of all brokers."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._states: dict[int, dict[Replica, SeenReplica]] = {}
        self._before: dict[int, tuple[float, dict[Replica, SeenReplica]]] = {}
        """By node, the last time of its events, and the states of its replicas before what happened at that time."""
        self._events: dict[int, int] = {}

    def forget(self, node_id: int) -> None:
        """The process has ended."""
        self._states.pop(node_id, None)
        self._before.pop(node_id, None)

    def after_event(self, node_id: int, changed: Sequence[Replica]) -> None:
        """These replicas of a node have changed in the event that it has just run."""
        self._events[node_id] = self.events_of(node_id) + 1
        states = self._states.setdefault(node_id, {})
        before = self._before.get(node_id)
        if before is None or before[0] != self._now_s():
            before = self._before[node_id] = self._now_s(), {}
        for replica in changed:
            if replica in states:
                before[1].setdefault(replica, states[replica])
            states[replica] = _seen(replica)

    def events_of(self, node_id: int) -> int:
        """How many events the node has run."""
        return self._events.get(node_id, 0)

    def now(self, node_id: int, replica: Replica) -> SeenReplica | None:
        """The replica now; None if it is new."""
        return self._states.get(node_id, {}).get(replica)

    def around(self, node_id: int, replica: Replica) -> Around | None:
        """The replica before and after what happened at this time; None if it is new."""
        now = self.now(node_id, replica)
        return None if now is None else (self._before[node_id][1].get(replica, now), now)


@dataclass(slots=True, eq=False)
class WaitingFetch:
    """A fetch that waits for its answer, and since when there are records for it."""

    request: FetchRequest
    at_s: float
    """When it came."""
    _is_looked_at: bool = False
    _had_records: bool = False
    """Whether there were records for it when it came, which may have had to be read from the disk."""
    _records_since: tuple[float, int, FetchedKey] | None = None
    """The time, the number of the node's event, and where."""

    def must_look(self, *, has_changed: bool) -> bool:
        """Whether it is not known yet if there are records. `has_changed`: something has happened to replicas."""
        return self._records_since is None and (has_changed or not self._is_looked_at)

    def on_looked(self, found: FetchedKey | None, now_s: float, events: int) -> None:
        """There are records in the partition `found`; None: in none."""
        if found is not None:
            self._had_records = not self._is_looked_at
            self._records_since = now_s, events, found
        self._is_looked_at = True

    def check_wait(self, now_s: float, events: int, who: str) -> None:
        """It is answered now. Raises `InvariantBroken` if its wait is over, and there were records long before."""
        since = self._records_since
        if since is None or self._had_records or self.request.min_bytes > 1:
            return
        waited_s = now_s - since[0]
        is_over = now_s - self.at_s >= self.request.max_wait_ms / 1000 - 0.01
        if is_over and waited_s > _LATE_S and events - since[1] >= _ENOUGH_EVENTS:
            detail = f"{who}: records of {since[2]} since {waited_s:.3f} s"
            raise InvariantBroken("a waiting fetch is answered when there are records", detail)


def find_replica(manager: ReplicaManager, key: FetchedKey) -> Replica | None:
    """The replica of a partition that a fetch names."""
    topic, partition = key
    for one, replica in manager.partitions.items():
        if one.partition == partition and topic in (one.topic, replica.topic_id):
            return replica
    return None
