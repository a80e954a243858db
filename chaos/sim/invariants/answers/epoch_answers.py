"""What brokers answer to OffsetForLeaderEpoch, found in the bytes of the simulated connections.

By these answers clients find out what was cut from a log (KIP-320). "A leader epoch ends where the log says": the
answer is compared with the epochs of the batches in the leader's log, as they were observed when they were appended.
"An epoch is asked of its leader": only the leader answers, in the leader epoch that the request names, and "an epoch is
refused for a reason".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .....cluster.node.node import Node
from .....isr.replica import Replica
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct, decode_request
from .....wire.errors import ErrorCode
from .....wire.frames import RequestHeader
from ....specification.log_entry import end_for_epoch
from ....specification.partitions.replica_state import ReplicaLog
from ..invariant_broken import InvariantBroken
from .answered_requests import AnsweredRequests, decoded
from .replica_states import Around, ReplicaStates, find_replica

_UNKNOWN = (-1, -1)


@dataclass(frozen=True, slots=True)
class _Asked:
    version: int
    request: Struct


class EpochAnswers:
    """Watches connections of clients, and judges the answers. `nodes` are those that run.

    `log_of(node_id, replica)` gives the log of a replica as it was observed, None if it is not judged.
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        states: ReplicaStates,
        log_of: Callable[[int, Replica], ReplicaLog | None],
    ) -> None:
        self._nodes = nodes
        self._states = states
        self._log_of = log_of
        self._answered: list[tuple[_Asked, bytes]] = []

    def requests(self) -> AnsweredRequests[_Asked]:
        """What watches a new connection to a broker."""

        def note(header: RequestHeader, frame: bytes, body_at: int) -> _Asked:
            return _Asked(header.api_version, decode_request(header.api_key, header.api_version, frame, body_at))

        return AnsweredRequests(
            {ApiKey.OFFSET_FOR_LEADER_EPOCH}, note, lambda asked, frame: self._answered.append((asked, frame))
        )

    def forget(self, node_id: int) -> None:
        """The process has ended, perhaps in the midst of an event."""
        self._answered.clear()

    def after_event(self, node_id: int) -> None:
        """Judge what the node has answered in the event that has just run. Raises `InvariantBroken`."""
        if not self._answered:
            return
        answered, self._answered = self._answered, []
        node = self._nodes.get(node_id)
        manager = None if node is None else node.replica_manager
        if manager is None:
            return
        for asked, frame in answered:
            response = decoded(ApiKey.OFFSET_FOR_LEADER_EPOCH, asked.version, frame)
            wanted = {(topic.topic, one.partition): one for topic in asked.request.topics for one in topic.partitions}
            for topic in response.topics:
                for row in topic.partitions:
                    key = topic.topic, row.partition
                    replica = find_replica(manager, key)
                    if key in wanted and replica is not None and not replica.offline:
                        self._judge(node_id, replica, wanted[key], row)

    def _judge(self, node_id: int, replica: Replica, wanted: Struct, row: Struct) -> None:
        around, log = self._states.around(node_id, replica), self._log_of(node_id, replica)
        if around is None or log is None:
            return
        before, now = around
        epoch, asked_epoch = wanted.current_leader_epoch, wanted.leader_epoch
        where = f"{replica.topic_partition} on {node_id}, end of epoch {asked_epoch} in epoch {epoch}"
        if row.error_code:
            _check_refusal(node_id, epoch, row.error_code, around, where)
            return
        states = [state for state in around if state.leader_id == node_id and epoch in (-1, state.epoch)]
        if not states:
            raise InvariantBroken("an epoch is asked of its leader", f"{where}: {row.leader_epoch}, it is {now}")
        told = row.leader_epoch, row.end_offset
        if before.epoch == now.epoch and not is_right(log, asked_epoch, told, around):
            detail = f"{where}: {told} is told of {log}, it is {now}"
            raise InvariantBroken("a leader epoch ends where the log says", detail)


def _check_refusal(node_id: int, epoch: int, error_code: int, around: Around, where: str) -> None:
    before, now = around
    reasons = {
        ErrorCode.FENCED_LEADER_EPOCH: 0 <= epoch < now.epoch,
        ErrorCode.UNKNOWN_LEADER_EPOCH: epoch > before.epoch,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: not before.leader_id == now.leader_id == node_id,
    }
    if not reasons.get(ErrorCode(error_code), True):
        raise InvariantBroken("an epoch is refused for a reason", f"{where}: {ErrorCode(error_code).name}, it is {now}")


def is_right(log: ReplicaLog, epoch: int, told: tuple[int, int], around: Around) -> bool:
    """Whether this epoch is the largest one not above the one that was asked for, and ends there."""
    before, now = around
    if epoch > now.epoch:
        return told == _UNKNOWN
    if epoch == now.epoch:
        return told[0] == epoch and before.end_offset <= told[1] <= now.end_offset
    end = end_for_epoch(log, epoch)
    if end.end_offset > now.start_offset:
        return told == (end.epoch, end.end_offset)
    first = now.start_offset if before.end_offset > now.start_offset else now.end_offset
    return told == _UNKNOWN or (told[0] <= epoch and 0 <= told[1] <= first)
