"""What coordinators of groups answer to clients, found in the bytes of the simulated connections.

At the moment of the answer a commit stands in committed records, as do the assignment of a SyncGroup and the epoch and
assignment of a heartbeat ("what a coordinator of groups has answered is committed"). What SyncGroup gives a member is
what the leader of its generation has sent in that generation ("an assignment is what its leader has sent"). A stable
offset is none that another one had replaced before it was asked for, also where the coordinator is cut off and another
broker leads already ("a stable offset is not older than its request"); other offsets are or were committed ("no offset
is answered that was not committed"). A member that joins, or that has sent all fields as it may have missed an answer,
is told its whole assignment ("a member that sends all fields is told its assignment").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from .....broker.groups.classic.consumer_protocol import read_assignment
from .....broker.groups.records.offset_and_classic_records import OffsetAndMetadata, OffsetKey
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct, decode_request
from .....wire.frames import RequestHeader
from .....wire.types import TopicPartition
from ..answers.answered_requests import AnsweredRequests, decoded
from ..invariant_broken import InvariantBroken
from .administrator_answers import AdministratorAnswers
from .group_log import GroupLog, WrittenOffset
from .member_answers import Asked, MemberAnswers

_LEAVE_EPOCH = -1
_ASKED = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.HEARTBEAT,
        ApiKey.JOIN_GROUP,
    }
)
_OF_MEMBERS = frozenset({ApiKey.SYNC_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP})
_REMOVES = frozenset({ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS})
_OF_ADMINISTRATORS = _REMOVES | {ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.LIST_GROUPS}


class GroupAnswers:
    """Watches connections, and judges the answers. `logs` are the logs by partition of `__consumer_offsets`.

    `may_be_another` says of a topic's name whether it may stand for another topic than before. The offsets of the
    former one may be gone then. `leader_epoch` is the newest one of a partition. `on_heard` is told of each request and
    each answer of a member.
    """

    def __init__(
        self,
        logs: Mapping[object, GroupLog],
        may_be_another: Callable[[str], bool],
        leader_epoch: Callable[[object], int] = lambda _: 0,
        on_heard: Callable[[str], None] = lambda member_id: None,
    ) -> None:
        self._logs = logs
        self._leader_epoch = leader_epoch
        self._on_heard = on_heard
        self._of_members = MemberAnswers(logs)
        self._of_administrators = AdministratorAnswers(logs)
        self._may_be_another = may_be_another
        self.answered: list[tuple[tuple[Asked, int], Struct]] = []
        """What was answered and is not judged yet; see `MemberAnswers.note`."""
        self._plans: dict[tuple[str, int], list[dict[str, bytes]]] = {}
        """By group and generation, the assignments that leaders have sent."""
        self.removals_asked: dict[str | OffsetKey, None] = {}
        """The groups and offsets that a client has asked to remove."""

    # ---------------------------------------------------------------- connections

    def requests(self) -> AnsweredRequests[tuple[Asked, int]]:
        """What watches a new connection: its requests when they are sent."""
        return AnsweredRequests(_ASKED | _OF_ADMINISTRATORS, self._note, self._on_answered)

    def _note(self, header: RequestHeader, frame: bytes, body_at: int) -> tuple[Asked, int] | None:
        key, request = ApiKey(header.api_key), decode_request(header.api_key, header.api_version, frame, body_at)
        if key in _REMOVES:
            self.removals_asked |= dict.fromkeys(_named_in(key, request))
        if key is ApiKey.SYNC_GROUP and request.assignments:
            self._note_plan(request)
        ends = {partition: log.end_offset for partition, log in self._logs.items()}
        epochs = {partition: self._leader_epoch(partition) for partition in self._logs}
        asked = Asked(key, header.api_version, request, ends, epochs)
        if key in _OF_MEMBERS:
            self._on_heard(request.member_id)
        return asked, self._of_members.note(asked) if key in _OF_MEMBERS else -1

    def _note_plan(self, request: Struct) -> None:
        plan = {one.member_id: bytes(one.assignment) for one in request.assignments}
        self._plans.setdefault((request.group_id, request.generation_id), []).append(plan)

    def _on_answered(self, noted: tuple[Asked, int], frame: bytes) -> None:
        if noted[0].api_key in _OF_MEMBERS:
            self._on_heard(noted[0].request.member_id)
        self.answered.append((noted, decoded(noted[0].api_key, noted[0].version, frame)))

    # ---------------------------------------------------------------- judgement

    def forget(self) -> None:
        """A process has ended in the midst of an event: what it has just answered is not judged."""
        self.answered.clear()

    def check(self, leads: Mapping[object, int] = MappingProxyType({})) -> None:
        """Judge what was answered in the event that has just run. Raises `InvariantBroken`.

        `leads` are the partitions that the node has loaded as their leader, with its leader epochs.
        """
        answered, self.answered = self.answered, []
        for (asked, begun), response in answered:
            if asked.api_key in _OF_MEMBERS:
                self._of_members.check(asked, begun, response, leads)
            if asked.api_key in _OF_ADMINISTRATORS:
                self._of_administrators.check(asked, response, leads)
            match asked.api_key:
                case ApiKey.OFFSET_COMMIT | ApiKey.TXN_OFFSET_COMMIT:
                    self._check_commit(asked, response)
                case ApiKey.OFFSET_FETCH:
                    self._check_fetch(asked, response)
                case ApiKey.SYNC_GROUP:
                    self._check_sync(asked.request, response)
                case ApiKey.CONSUMER_GROUP_HEARTBEAT:
                    self._check_heartbeat(asked, response)

    def _check_commit(self, asked: Asked, response: Struct) -> None:
        request = asked.request
        producer_id = request.producer_id if asked.api_key is ApiKey.TXN_OFFSET_COMMIT else -1
        for topic, rows in zip(request.topics, response.topics, strict=True):
            name = topic.get("name")
            for sent, row in zip(topic.partitions, rows.partitions, strict=True):
                if row.error_code or not name:
                    continue
                key = OffsetKey(request.group_id, TopicPartition(name, sent.partition_index))
                metadata = sent.committed_metadata or ""
                wanted = sent.committed_offset, sent.get("committed_leader_epoch", -1), metadata, producer_id
                found = [
                    (log, written.position)
                    for partition, log in self._logs.items()
                    for written in log.written.get(key, ())
                    if _says(written) == wanted and written.position >= asked.ends.get(partition, 0)
                ]
                detail = f"{key}: {wanted} of member {request.get('member_id', '')!r}"
                if not found:
                    raise InvariantBroken("what a coordinator of groups has answered is committed", detail)
                self._check_member(request, found, detail)

    def _check_member(self, request: Struct, found: Sequence[tuple[GroupLog, int]], detail: str) -> None:
        """The commit is one of these records: one of them must have been allowed to its member."""
        member_id = request.get("member_id", "")
        epoch = request.get("generation_id_or_member_epoch", request.get("generation_id", -1))
        if not member_id or epoch < 0:
            return
        reasons = [log.why_not_allowed(request.group_id, member_id, epoch, position) for log, position in found]
        if None not in reasons:
            raise InvariantBroken("who commits is in the present epoch", f"{detail} in epoch {epoch}: {reasons[0]}")

    def _check_fetch(self, asked: Asked, response: Struct) -> None:
        is_stable = bool(asked.request.get("require_stable", False))
        for group in response.groups if "groups" in response else (response,):
            group_id = group.get("group_id") or asked.request.group_id
            if group.get("error_code", 0):
                continue
            for topic in group.topics:
                for row in topic.partitions if topic.get("name") else ():
                    if not row.error_code:
                        key = OffsetKey(group_id, TopicPartition(topic.name, row.partition_index))
                        answer = row.committed_offset, row.get("committed_leader_epoch", -1), row.metadata or ""
                        self._check_offset(asked, key, answer, is_stable=is_stable)

    def _check_offset(self, asked: Asked, key: OffsetKey, answer: tuple[int, int, str], *, is_stable: bool) -> None:
        if answer[0] < 0 and self._may_be_another(key.topic_partition.topic):
            return
        known = [(asked.ends.get(partition, 0), log) for partition, log in self._logs.items() if key in log.in_force]
        fresh = [_of(value) for end_offset, log in known for value in log.values_since(key, end_offset)]
        former = [_of(one.value) for _, log in known for one in log.in_force[key]]
        detail = f"{key}: {answer} is answered"
        if is_stable and any(
            log.is_unstable(key, asked.ends.get(partition, 0)) for partition, log in self._logs.items()
        ):
            raise InvariantBroken("no stable offset is answered while a transaction may change it", detail)
        if answer in (fresh or [_of(None)]):
            return
        if answer not in (_of(None), *former):
            raise InvariantBroken("no offset is answered that was not committed", f"{detail}; committed {former[-3:]}")
        if is_stable:
            detail = f"{detail}; committed since the request {fresh}"
            raise InvariantBroken("a stable offset is not older than its request", detail)

    def _check_sync(self, request: Struct, response: Struct) -> None:
        if response.error_code:
            return
        group_id, member_id, generation = request.group_id, request.member_id, request.generation_id
        given = bytes(response.assignment)
        was_consumer_group = False
        ids = {member_id: None}
        for log in self._logs.values():
            was_consumer_group = was_consumer_group or group_id in log.consumer
            records = [one for _, one in log.generations.get(group_id, ()) if one is not None]
            members = [one for group in records if group.generation == generation for one in group.members]
            # A static member that came back has the assignment that was sent for its former id.
            instance_id = request.get("group_instance_id")
            if instance_id is not None:
                ids |= {one.member_id: None for one in members if one.instance_id == instance_id}
            if any((one.member_id, one.assignment) == (member_id, given) for one in members):
                break
            partitions = sorted(index for _, index in read_assignment(given)[0]) if was_consumer_group else []
            if any(
                current is not None
                and current.member_epoch == generation
                and sorted(index for _, index in current.assigned) == partitions
                for _, current in log.assignments.get((group_id, member_id), ())
            ):
                return  # the coordinator has assigned
        else:
            detail = f"{group_id}: the assignment of {member_id} in generation {generation}"
            raise InvariantBroken("what a coordinator of groups has answered is committed", detail)
        plans = self._plans.get((group_id, generation), [])
        if not was_consumer_group and given not in [plan.get(one, b"") for plan in plans for one in ids]:
            detail = f"{group_id}: {member_id} in generation {generation} got {given!r}, sent were {plans}"
            raise InvariantBroken("an assignment is what its leader has sent", detail)

    def _check_heartbeat(self, asked: Asked, response: Struct) -> None:
        if response.error_code:
            return
        request, epoch = asked.request, response.member_epoch
        member_id = response.member_id or request.member_id
        given = None
        if response.assignment is None and epoch > 0 and _has_all_fields(request):
            detail = f"{request.group_id}: {member_id} in epoch {epoch} may have missed it"
            raise InvariantBroken("a member that sends all fields is told its assignment", detail)
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            given = sorted((row.topic_id, index) for row in rows for index in row.partitions)
        for partition, log in self._logs.items():
            for position, current in log.assignments.get((request.group_id, member_id), ()):
                if current is None:
                    if epoch == _LEAVE_EPOCH and position >= asked.ends.get(partition, 0):
                        return
                elif current.member_epoch == epoch and given in (None, sorted(current.assigned)):
                    return
        detail = f"{request.group_id}: {member_id} in epoch {epoch} with {given}"
        raise InvariantBroken("what a coordinator of groups has answered is committed", detail)


def _named_in(key: ApiKey, removal: Struct) -> list[str] | list[OffsetKey]:
    """The groups or offsets that a client asks to remove."""
    if key is ApiKey.DELETE_GROUPS:
        return list(removal.groups_names)
    rows = [(topic.name, row.partition_index) for topic in removal.topics for row in topic.partitions]
    return [OffsetKey(removal.group_id, TopicPartition(*row)) for row in rows]


def _has_all_fields(heartbeat: Struct) -> bool:
    """Whether the member joins, or sends all that it would send then (KIP-848)."""
    subscribes = heartbeat.subscribed_topic_names is not None or heartbeat.get("subscribed_topic_regex") is not None
    is_whole = subscribes and heartbeat.rebalance_timeout != -1 and heartbeat.topic_partitions is not None
    return heartbeat.member_epoch == 0 or is_whole


def _says(written: WrittenOffset) -> tuple[int, int, str, int] | None:
    value = written.value
    return None if value is None else (value.offset, value.leader_epoch, value.metadata, written.producer_id)


def _of(value: OffsetAndMetadata | None) -> tuple[int, int, str]:
    return (-1, -1, "") if value is None else (value.offset, value.leader_epoch, value.metadata)
