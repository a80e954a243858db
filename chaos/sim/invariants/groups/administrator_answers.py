"""What administrators of groups are answered, compared with the committed records of `__consumer_offsets`.

A group that was deleted is gone, with its offsets, at some time between request and answer; so is an offset ("what was
deleted is gone"). A group that has records all that time is not unknown ("a group of the log is known"). What is told
of a group is what its committed records say ("a group is described as its log says"), of a classic group if it is
stable, and a group that has none is not shown as a consumer group. These records were in force at some time between
request and answer. The last two are judged for coordinators that have the newest leader epoch, as in `member_answers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ..invariant_broken import InvariantBroken
from .group_log import ConsumerRecords, GroupLog, in_force_since
from .member_answers import Asked

_STABLE, _CONSUMER = "Stable", "consumer"


class AdministratorAnswers:
    """Judges the answers. `logs` as in `GroupAnswers`."""

    def __init__(self, logs: Mapping[object, GroupLog]) -> None:
        self._logs = logs

    def check(self, asked: Asked, response: Struct, leads: Mapping[object, int]) -> None:
        """Judge an answer. `leads` as in `MemberAnswers`."""
        newest = [one for one in self._logs if leads.get(one, -1) == asked.epochs[one] >= 0]
        for partition, log in self._logs.items():
            end_offset, is_newest = asked.ends[partition], partition in newest
            match asked.api_key:
                case ApiKey.DELETE_GROUPS:
                    for row in response.results:
                        self._check_deleted(row, log, end_offset, is_newest=is_newest)
                case ApiKey.OFFSET_DELETE:
                    self._check_deleted_offsets(asked.request, response, log, end_offset)
                case ApiKey.DESCRIBE_GROUPS if is_newest:
                    for row in response.groups:
                        self._check_classic(row, log, end_offset)
                case ApiKey.CONSUMER_GROUP_DESCRIBE if is_newest:
                    for row in response.groups:
                        self._check_consumer(row, log, end_offset)
                case ApiKey.LIST_GROUPS if is_newest and not response.error_code:
                    self._check_list(response, log, end_offset)
                case _:
                    pass

    # ---------------------------------------------------------------- deletions

    def _check_deleted(self, row: Struct, log: GroupLog, end_offset: int, *, is_newest: bool) -> None:
        if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND and is_newest and _is_there(log, row.group_id, end_offset):
            raise InvariantBroken("a group of the log is known", f"{row.group_id} is not found to be deleted")
        if row.error_code:
            return
        left = [
            str(key.topic_partition)
            for key in log.in_force
            if key.group_id == row.group_id and None not in log.values_since(key, end_offset)
        ]
        if left or _has_records(log, row.group_id, end_offset):
            raise InvariantBroken("what was deleted is gone", f"{row.group_id} is there, with offsets of {left}")

    def _check_deleted_offsets(self, request: Struct, response: Struct, log: GroupLog, end_offset: int) -> None:
        deleted = {
            (topic.name, row.partition_index)
            for topic in (() if response.error_code else response.topics)
            for row in topic.partitions
            if not row.error_code
        }
        for key in log.in_force if deleted else ():
            if key.group_id == request.group_id and key.topic_partition in deleted:
                values = log.values_since(key, end_offset)
                if None not in values:
                    raise InvariantBroken("what was deleted is gone", f"{key}: {values} since it was asked for")

    # ---------------------------------------------------------------- descriptions

    def _check_classic(self, row: Struct, log: GroupLog, end_offset: int) -> None:
        if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            if _has_records(log, row.group_id, end_offset) and row.group_id not in log.consumer:
                raise InvariantBroken("a group of the log is known", f"{row.group_id} is not found to be described")
            return
        if row.error_code or row.group_state != _STABLE:
            return
        told = row.protocol_data, sorted((one.member_id, bytes(one.member_assignment)) for one in row.members)
        known = [
            (group.protocol, sorted((one.member_id, one.assignment) for one in group.members))
            for group in in_force_since(log.generations.get(row.group_id, []), end_offset)
            if group is not None
        ]
        has_static = any(one.group_instance_id is not None for one in row.members)  # it has its new id already
        if told not in known and not has_static and row.group_id not in log.consumer:
            detail = f"{row.group_id}: {told}, the log has {known}"
            raise InvariantBroken("a group is described as its log says", detail)

    def _check_consumer(self, row: Struct, log: GroupLog, end_offset: int) -> None:
        if row.group_id not in log.states and any(row.group_id in one.states for one in self._logs.values()):
            return  # it is of another partition
        states = log.states_since(row.group_id, end_offset)
        if row.error_code:
            if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND and None not in states:
                raise InvariantBroken("a group of the log is known", f"{row.group_id} is not found to be described")
            return
        members = {
            one.member_id: (
                one.member_epoch,
                one.instance_id,
                tuple(one.subscribed_topic_names),
                one.subscribed_topic_regex,
                _told(one.assignment),
                _told(one.target_assignment),
            )
            for one in row.members
        }
        told = row.group_state, row.group_epoch, row.assignment_epoch, members
        known = [_described(state) for state in states if state is not None]
        if told not in known:
            detail = f"{row.group_id}: {told}, the log has {known}"
            raise InvariantBroken("a group is described as its log says", detail)
        choices = [_assignors(state) for state in states if state is not None and _described(state) == told]
        if not any(not found or row.assignor_name in found for found in choices):
            detail = f"{row.group_id}: its assignor is {row.assignor_name}, most of its members ask for {choices}"
            raise InvariantBroken("a group is described as its log says", detail)

    def _check_list(self, response: Struct, log: GroupLog, end_offset: int) -> None:
        listed = {one.group_id: None for one in response.groups}
        groups = dict.fromkeys((*log.groups(), *(key.group_id for key in log.in_force)))
        for group_id in groups:
            if group_id not in listed and _is_there(log, group_id, end_offset):
                raise InvariantBroken("a group of the log is known", f"{group_id} is not one of {list(listed)}")
        for row in response.groups:
            self._check_listed(row, log, end_offset)

    def _check_listed(self, row: Struct, log: GroupLog, end_offset: int) -> None:
        if row.group_id not in log.states and any(row.group_id in one.states for one in self._logs.values()):
            return  # it is of another partition
        states = log.states_since(row.group_id, end_offset)
        known = [None if state is None else state.shown_state for state in states]
        if (row.group_state if row.group_type == _CONSUMER else None) not in known:
            detail = f"{row.group_id} is listed as {row.group_type}, {row.group_state}, the log has {known}"
            raise InvariantBroken("a group is described as its log says", detail)


def _assignors(group: ConsumerRecords) -> list[str]:
    """The assignors that most of its members ask for; none where nobody asks for one."""
    asked = [one.assignor for one in group.members.values() if one.assignor is not None]
    return [one for one in asked if asked.count(one) == max(map(asked.count, asked))]


def _described(group: ConsumerRecords) -> tuple[str, int, int, dict[str, Any]]:
    """What is told of the group."""
    members = {
        member_id: (
            group.current[member_id].member_epoch,
            one.instance_id,
            one.topic_names,
            one.topic_regex,
            tuple(sorted(group.current[member_id].assigned)),
            tuple(sorted(group.target.get(member_id, ()))),
        )
        for member_id, one in group.members.items()
        if member_id in group.current
    }
    return group.shown_state, group.epoch, group.target_epoch, members


def _has_records(log: GroupLog, group_id: str, end_offset: int) -> bool:
    """Whether there were records of the group since a position, at all times."""
    written: tuple[list[tuple[int, Any]], ...] = (log.generations.get(group_id, []), log.epochs.get(group_id, []))
    return any(one and None not in one for one in (in_force_since(each, end_offset) for each in written))


def _is_there(log: GroupLog, group_id: str, end_offset: int) -> bool:
    """Whether there were records or offsets of the group since a position, at all times."""
    return _has_records(log, group_id, end_offset) or any(
        None not in log.values_since(key, end_offset) for key in log.in_force if key.group_id == group_id
    )


def _told(assignment: Struct) -> tuple[tuple[UUID, int], ...]:
    return tuple(sorted((row.topic_id, index) for row in assignment.topic_partitions for index in row.partitions))
