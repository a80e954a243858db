"""What members of groups may be answered, by the epochs in which they ask, and by what was asked before.

A heartbeat or SyncGroup of a former generation or epoch is refused by a coordinator that knew of the next one when it
was sent ("a request of a former epoch is refused"). What has an answer in a generation has the same one whenever it is
asked again: the protocol of JoinGroup, the assignment of SyncGroup ("a repeated request has the answer of the first").
A leader is told the protocols that its members have sent ("a leader is told what its members have sent"), of which one
is elected ("the protocol of a generation has the most votes").

The first of these is judged where the coordinator has the newest leader epoch, and had it when the request was sent:
one that is cut off knows no better. The records that were in force since then decide. Those of classic groups are
written when a generation has its assignments, so answers to JoinGroup tell earlier of generations that have begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .....broker.groups.records.consumer_group_records import CurrentAssignmentValue
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from ..invariant_broken import InvariantBroken
from .group_log import GroupLog, in_force_since


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and up to where the logs were committed when it was sent."""

    api_key: ApiKey
    version: int
    request: Struct
    ends: Mapping[object, int]
    epochs: Mapping[object, int]
    """The newest leader epochs that were committed then."""


class MemberAnswers:
    """Judges the answers. `logs` as in `GroupAnswers`."""

    def __init__(self, logs: Mapping[object, GroupLog]) -> None:
        self._logs = logs
        self._begun: dict[tuple[str, int, int], int] = {}
        """By group, incarnation of the group and leader epoch, the last generation that a member was told of."""
        self._protocols: dict[tuple[str, int, int, int], str] = {}
        """By group, incarnation, leader epoch and generation."""
        self._assignments: dict[tuple[str, int, int, str], bytes] = {}
        """By group, incarnation, generation and member."""
        self._offered: dict[tuple[str, str], dict[tuple[str, bytes], tuple[str, ...]]] = {}
        """By group and member, the protocols that were sent, with all that were sent together.

        By an empty id those of members without one.
        """

    def note(self, asked: Asked) -> int:
        """A request is sent; returns the generation of its group that a member was told of last."""
        request = asked.request
        if asked.api_key is ApiKey.JOIN_GROUP:
            offered = self._offered.setdefault((request.group_id, request.member_id), {})
            names = tuple(one.name for one in request.protocols)
            offered |= {(one.name, bytes(one.metadata)): names for one in request.protocols}
        return max(
            (
                self._begun.get((request.group_id, log.incarnation(request.group_id), asked.epochs[partition]), -1)
                for partition, log in self._logs.items()
            ),
            default=-1,
        )

    def check(self, asked: Asked, begun: int, response: Struct, leads: Mapping[object, int]) -> None:
        """Judge an answer. `begun` as `note` has returned it; `leads`: the leader epochs of the one that answers."""
        if response.error_code:
            return
        for partition, log in self._logs.items():
            epoch = leads.get(partition, -1)
            if epoch < 0 or not log.knows(asked.request.group_id):
                continue
            if asked.api_key is ApiKey.JOIN_GROUP:
                self._check_join(asked.request, response, log, epoch)
                continue
            if asked.api_key is ApiKey.SYNC_GROUP:
                self._check_assignment(asked.request, response, log)
            if asked.epochs[partition] == epoch:
                why = _why_former(asked, log, asked.ends[partition], begun)
                if why is not None:
                    raise InvariantBroken("a request of a former epoch is refused", f"{asked.request.group_id}: {why}")

    # ---------------------------------------------------------------- classic groups

    def _check_join(self, request: Struct, response: Struct, log: GroupLog, epoch: int) -> None:
        group_id, generation, name = request.group_id, response.generation_id, response.protocol_name
        choices: list[tuple[str, ...]] = []
        for one in response.members:
            sent = (name, bytes(one.metadata))
            offered = self._offered.get((group_id, ""), {}) | self._offered.get((group_id, one.member_id), {})
            if sent not in offered:
                detail = f"{group_id}: {one.member_id} in generation {generation} has {sent}"
                raise InvariantBroken("a leader is told what its members have sent", detail)
            choices.append(offered[sent])
        if group_id in log.consumer:
            return
        # A static member may be one of the log, which has one protocol of it.
        if choices and all(one.group_instance_id is None for one in response.members):
            elected = _elected(choices)
            if name not in elected:
                detail = f"{group_id}: {name} in generation {generation}, not one of {elected}, of {choices}"
                raise InvariantBroken("the protocol of a generation has the most votes", detail)
        incarnation = log.incarnation(group_id)
        known = self._protocols.setdefault((group_id, incarnation, epoch, generation), name)
        if known != name or name not in [one.name for one in request.protocols]:
            detail = f"{group_id}: {request.member_id} has {name} in generation {generation}, others {known}"
            raise InvariantBroken("a repeated request has the answer of the first", detail)
        begun = group_id, incarnation, epoch
        self._begun[begun] = max(generation, self._begun.get(begun, -1))

    def _check_assignment(self, request: Struct, response: Struct, log: GroupLog) -> None:
        group_id, given = request.group_id, bytes(response.assignment)
        if group_id in log.consumer:
            return
        key = group_id, log.incarnation(group_id), request.generation_id, request.member_id
        known = self._assignments.setdefault(key, given)
        if known != given:
            detail = f"{group_id}: {request.member_id} in {request.generation_id} got {known!r}, and then {given!r}"
            raise InvariantBroken("a repeated request has the answer of the first", detail)


def _why_former(asked: Asked, log: GroupLog, end_offset: int, begun: int) -> str | None:
    """Why the request is of a former generation or epoch; None if it need not be. `begun` as in `MemberAnswers`."""
    request, group_id, member_id = asked.request, asked.request.group_id, asked.request.member_id
    currents = in_force_since(log.assignments.get((group_id, member_id), []), end_offset)
    if asked.api_key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
        if request.member_epoch <= 0 or any(_allows(one, request) for one in currents):
            return None
        return f"{member_id} in epoch {request.member_epoch}, while it had {currents}"
    generation = request.generation_id
    if any(one is not None and one.member_epoch == generation for one in currents):
        return None
    records = in_force_since(log.generations.get(group_id, []), end_offset)
    was_consumer_group = group_id in log.consumer  # its next generation may be in the log already
    if not was_consumer_group and begun > generation:
        return f"{member_id} in generation {generation}, after {begun} had begun"
    for group in records or [None]:
        if group is None or group.generation < generation + was_consumer_group:
            return None
        if group.generation - was_consumer_group <= generation and (
            was_consumer_group or member_id in [one.member_id for one in group.members]
        ):
            return None
    return f"{member_id} in generation {generation}, while there was {records[-1]}"


def _elected(choices: Sequence[tuple[str, ...]]) -> list[str]:
    """The protocols that every member offers and that are the first such choice of the most members."""
    shared = [name for name in choices[0] if all(name in one for one in choices)]
    firsts = [next(name for name in one if name in shared) for one in choices] if shared else []
    return [name for name in shared if firsts.count(name) == max(map(firsts.count, shared))]


def _allows(current: CurrentAssignmentValue | None, heartbeat: Struct) -> bool:
    """Whether a member with this current assignment may send this heartbeat."""
    if current is None:
        return False
    epoch = heartbeat.member_epoch
    if current.member_epoch == epoch:
        return True
    rows = heartbeat.topic_partitions
    owned = None if rows is None else [(row.topic_id, index) for row in rows for index in row.partitions]
    is_resent = owned is not None and all(part in current.assigned for part in owned)
    return is_resent and current.previous_epoch == epoch < current.member_epoch
