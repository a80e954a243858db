"""AlterPartition (KIP-497): a leader proposes an ISR; it is refused when the leader or a replica is stale.

A leader whose epochs are ahead of this controller proves that this controller is not the active one any more. A leader
that is behind learns which of its epochs is stale. A replica may enter the ISR only as the incarnation that the leader
saw fetching (KIP-841, KIP-903): its broker epoch is compared with the registration. A broker that restarted, and may
have lost the tail of its log, is therefore not in sync by the fetches of its previous incarnation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ...runtime.incremental_work import Pace
from ...runtime.invariants import invariant, sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..brokers.broker_epoch import check_broker_epoch
from ..metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import RECOVERED, RECOVERING, Record
from ..result import ControllerResult, Decision, Response
from ..settings import ControllerSettings
from .partition_change import Goal, PartitionRules, decide_partition_change

if TYPE_CHECKING:
    from ...wire.message_types.brokers import AlterPartitionRequest

_MEMBERS_PER_ITEM = 16


class IsrMember(NamedTuple):
    """A replica of a proposed ISR, with the broker epoch that the leader saw; -1 is not checked (version 2)."""

    broker_id: int
    broker_epoch: int = -1


def alter_partition(image: MetadataImage, settings: ControllerSettings, request: AlterPartitionRequest) -> Decision:
    """AlterPartition 2-3, in parts of some partitions. The response has for each an error or its new state."""
    pace = Pace()
    leader = _Leader(image, PartitionRules(image, settings), request.broker_id, {}, [])
    topics: list[Response] = []
    try:
        check_broker_epoch(image, request.broker_id, request.broker_epoch)
        for topic, data in _topics_and_partitions(request):
            if data is None:
                topics.append({"topic_id": topic.topic_id, "partitions": []})
            else:
                topics[-1]["partitions"].append(_row(leader, topic.topic_id, data))
            if pace.ends_step(1 if data is None else 1 + len(requested_isr(data)) // _MEMBERS_PER_ITEM):
                yield leader.take_records()
                check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except ProtocolError as error:
        return ControllerResult([], {"error_code": int(error.code), "topics": []})
    return ControllerResult(leader.take_records(), {"error_code": 0, "topics": topics})


def _topics_and_partitions(
    request: AlterPartitionRequest,
) -> Iterator[tuple[AlterPartitionRequest.TopicData, AlterPartitionRequest.PartitionData | None]]:
    for topic in request.topics:
        yield topic, None
        for data in topic.partitions:
            yield topic, data


class _Leader(NamedTuple):
    """The leader that asks, the rules of its topics, and what was decided so far."""

    image: MetadataImage
    rules: PartitionRules
    broker_id: int
    altered: dict[tuple[UUID, int], None]
    records: list[Record]
    """Those that are not appended yet."""

    def take_records(self) -> list[Record]:
        records = self.records.copy()
        self.records.clear()
        return records


def _row(leader: _Leader, topic_id: UUID | None, data: AlterPartitionRequest.PartitionData) -> Response:
    topic = None if topic_id is None else leader.image.topics_by_id.get(topic_id)
    try:
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
        return _alter_one(leader, topic, data)
    except ProtocolError as error:
        return {"partition_index": data.partition_index, "error_code": int(error.code)}


def _alter_one(leader: _Leader, topic: TopicImage, data: AlterPartitionRequest.PartitionData) -> Response:
    key = (topic.topic_id, data.partition_index)
    partition = topic.partitions.get(data.partition_index)
    if partition is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    members = requested_isr(data)
    recovery = data.leader_recovery_state
    if key in leader.altered:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "a partition is altered once a request")
    _check_epochs(partition, leader.broker_id, data)
    _check_isr(partition, members, recovery)
    _check_eligible(leader.image, partition, members)
    isr = tuple(member.broker_id for member in members)
    # An ISR of the same members keeps its order, so that a repeated request is no change.
    if sorted(isr) == sorted(partition.isr):
        isr = partition.isr
    rule = leader.rules.goal(topic.name, isr, partial(leader.image.may_lead, partition))
    goal = Goal(isr, rule.acceptable, rule.min_insync_replicas, rule.elr_enabled, rule.election, None, recovery)
    change = decide_partition_change(topic.topic_id, data.partition_index, partition, goal)
    if change is not None:
        invariant(data.partition_epoch == partition.partition_epoch, "a proposed ISR is of the current partition epoch")
        leader.altered[key] = None
        leader.records.append(change)
        partition = partition.merge(change)
        sometimes(change.leader is not None, "a change of an ISR elected another leader")
        if change.leader is not None:
            raise ProtocolError(ErrorCode.NEW_LEADER_ELECTED)
    return _state(data.partition_index, partition)


def requested_isr(data: AlterPartitionRequest.PartitionData) -> list[IsrMember]:
    """The ISR of a request, of version 2 (`new_isr`) or 3 (`new_isr_with_epochs`)."""
    with_epochs = data.get("new_isr_with_epochs", None)
    if with_epochs is None:
        return [IsrMember(broker_id) for broker_id in data.new_isr]
    return [IsrMember(member.broker_id, member.broker_epoch) for member in with_epochs]


def _check_epochs(partition: PartitionRegistration, broker_id: int, data: AlterPartitionRequest.PartitionData) -> None:
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        sometimes(True, "a leader knew of metadata that the controller had not")
        raise ProtocolError(ErrorCode.NOT_CONTROLLER, "the leader has seen metadata that this controller has not")
    if data.leader_epoch < partition.leader_epoch:
        raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "only the leader alters its partition")
    if data.partition_epoch < partition.partition_epoch:
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_isr(partition: PartitionRegistration, members: list[IsrMember], recovery: int) -> None:
    ids = [member.broker_id for member in members]
    known = all(broker_id in partition.replicas for broker_id in ids)
    if not known or len(set(ids)) != len(ids) or partition.leader not in ids:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "an ISR is distinct replicas, the leader among them")
    if recovery not in (RECOVERED, RECOVERING):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "no such leader recovery state")
    if recovery == RECOVERING and (len(ids) > 1 or partition.leader_recovery_state == RECOVERED):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "a recovering leader is alone, and recovers only once")


def _check_eligible(image: MetadataImage, partition: PartitionRegistration, members: list[IsrMember]) -> None:
    for member in members:
        broker = image.brokers.get(member.broker_id)
        if broker is None or not broker.active or member.broker_epoch not in (-1, broker.epoch):
            sometimes(broker is not None and not broker.active, "a fenced broker was proposed for an ISR")
            sometimes(
                broker is not None and broker.active and member.broker_epoch != broker.epoch,
                "a former incarnation of a broker was proposed for an ISR",
            )
            raise ProtocolError(ErrorCode.INELIGIBLE_REPLICA)
        if not image.is_replica_online(member.broker_id, partition):
            sometimes(True, "a replica on a failed disk was proposed for an ISR")
            raise ProtocolError(ErrorCode.INELIGIBLE_REPLICA)


def _state(index: int, partition: PartitionRegistration) -> Response:
    return {
        "partition_index": index,
        "error_code": 0,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
        "leader_recovery_state": partition.leader_recovery_state,
        "partition_epoch": partition.partition_epoch,
    }
