"""What brokers answer of their replicas, to clients and to each other: fetches, and where leader epochs end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .....cluster.node.node import Node
from .....isr.replica import Replica
from ..partition_invariants import PartitionChecker
from ..steps.replica_steps import ReplicaStepChecker
from .answered_requests import AnsweredRequests
from .epoch_answers import EpochAnswers
from .fetch_answers import FetchAnswers
from .follower_fetches import FollowerFetches
from .replica_states import ReplicaStates

Watchers = tuple[AnsweredRequests[Any], ...]


class ReplicaAnswers:
    """Watches connections to brokers, and judges what is answered on them. `nodes` are those that run."""

    def __init__(
        self,
        partitions: PartitionChecker,
        replica_steps: ReplicaStepChecker,
        nodes: Mapping[int, Node],
        now_s: Callable[[], float],
        *,
        may_send_later: bool,
    ) -> None:
        """`may_send_later`: answers are sent from files, in events after those in which they were made."""
        self._states, log_of = ReplicaStates(now_s), replica_steps.log_of
        self._fetches = FetchAnswers(partitions, nodes, self._states, now_s, may_send_later=may_send_later)
        self._followers = FollowerFetches(nodes, self._states, log_of, now_s, may_send_later=may_send_later)
        self._epochs = EpochAnswers(nodes, self._states, log_of)

    def of_clients(self, node_id: int) -> Watchers:
        """What watches a new connection of a client to this broker, from when a request is read."""
        return self._fetches.requests(node_id), self._epochs.requests()

    def of_brokers(self, node_id: int) -> tuple[Watchers, Watchers]:
        """What watches one of another broker to it: from when a request is read, and from when it is sent."""
        return (self._followers.requests_read(node_id),), (self._followers.requests_sent(node_id),)

    def forget(self, node_id: int) -> None:
        """The process has ended, perhaps in the midst of an event."""
        for one in (self._fetches, self._followers, self._epochs, self._states):
            one.forget(node_id)

    def after_event(self, node_id: int, changed: list[Replica]) -> None:
        """Judge what the node, of which these replicas have changed, has answered. Raises `InvariantBroken`."""
        self._states.after_event(node_id, changed)
        self._fetches.after_event(node_id, changed)
        self._followers.after_event(node_id, bool(changed))
        self._epochs.after_event(node_id)
