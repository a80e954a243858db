"""Lists and describes groups, reports their lag, sets their offsets, and deletes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...wire import codec
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, WireFormatError
from ...wire.types import TopicPartition
from ..command_line.plural import counted
from .access.needed_rights import Asked
from .client_errors import RefusedError, partitions_text, refused_in_part
from .cluster_client import ClusterClient, Gathered
from .consumer import EARLIEST, LATEST, Consumer, topic_offsets
from .requests.attempts import Attempts
from .requests.coordinator_requests import MOVED, CoordinatorRequests, CoordinatorType

_LIST_GROUPS_VERSION = 5
_DESCRIBE_GROUPS_VERSION = 5
_CONSUMER_GROUP_DESCRIBE_VERSION = 0
_OFFSET_FETCH_VERSION = 8
_OFFSET_COMMIT_VERSION = 9
_DELETE_GROUPS_VERSION = 2
_RETRY_PAUSE_S = 0.1
_OFFSETS_TOPIC = "__consumer_offsets"
_NO_SUCH_GROUP = "there is no such group"
_NEWEST_ASSIGNMENT = 3


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group, as ListGroups reports it. `kind` is classic or consumer (KIP-848)."""

    group_id: str
    state: str
    kind: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member of a group, with the partitions that it is assigned."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The member as commands and the console show it."""
        return {
            "member": self.member_id,
            "instance": self.instance_id,
            "client": self.client_id,
            "host": self.host,
            "partitions": [str(partition) for partition in self.partitions],
        }


@dataclass(frozen=True, slots=True)
class LagView:
    """How far a group is behind in one partition.

    `committed` is None when it has committed no offset, and `end` when no leader tells where the partition ends.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end; never negative, None where one of them is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


class GroupClient:
    """Asks the coordinators of groups.

    A request is repeated for `timeout_s` seconds, by default the time-out of the client, while a coordinator moves.
    """

    def __init__(self, client: ClusterClient, timeout_s: float | None = None) -> None:
        self._client = client
        self._coordinators = CoordinatorRequests(client, CoordinatorType.GROUP, timeout_s)

    async def list_groups(self) -> Gathered[GroupView]:
        """The groups of every broker. Those of partitions without a leader are missing: nobody coordinates them."""
        fields: dict[str, Any] = {"states_filter": [], "types_filter": []}

        async def ask(broker: int) -> list[GroupView]:
            answer = await self._until_loaded(broker, ApiKey.LIST_GROUPS, _LIST_GROUPS_VERSION, fields)
            return [
                GroupView(one.group_id, one.group_state, one.group_type, one.protocol_type, broker)
                for one in answer.groups
            ]

        brokers = (await self._client.metadata([])).brokers
        found = await self._client.gather([one.node_id for one in brokers], ask, "the groups that it coordinates")
        leaderless = await self._client.without_leader(_OFFSETS_TOPIC, "their groups")
        return Gathered(sorted(found.rows, key=lambda one: one.group_id), found.missing + leaderless)

    async def members(self, group_id: str) -> tuple[str, list[MemberView]]:
        """The state and the members of a group of either protocol.

        Raises `RefusedError` when there is no such group.
        """
        await self._check_any_group(group_id)
        asked = {"group_ids": [group_id], "include_authorized_operations": False}
        answer = await self.ask(
            group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, _CONSUMER_GROUP_DESCRIBE_VERSION, asked, "groups"
        )
        row = answer.groups[0]
        if not row.error_code:
            members = [
                MemberView(
                    one.member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    partitions_of(one.assignment.topic_partitions),
                )
                for one in row.members
            ]
            return row.group_state, members
        return await self._classic_members(group_id)

    async def _classic_members(self, group_id: str) -> tuple[str, list[MemberView]]:
        fields = {"groups": [group_id], "include_authorized_operations": False}
        answer = await self.ask(group_id, ApiKey.DESCRIBE_GROUPS, _DESCRIBE_GROUPS_VERSION, fields, "groups")
        row = answer.groups[0]
        if row.group_state == "Dead":
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}", _NO_SUCH_GROUP)
        members = [
            MemberView(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                assigned_partitions(bytes(one.member_assignment)),
            )
            for one in row.members
        ]
        return row.group_state, members

    async def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """All committed offsets of the group; none when there is no such group."""
        if not await self.has_offsets_topic():
            return {}
        fields = {"groups": [{"group_id": group_id, "topics": None}], "require_stable": False}
        answer = await self.ask(group_id, ApiKey.OFFSET_FETCH, _OFFSET_FETCH_VERSION, fields, "groups")
        return {
            TopicPartition(topic.name, row.partition_index): row.committed_offset
            for topic in answer.groups[0].topics
            for row in topic.partitions
            if row.committed_offset >= 0
        }

    async def lags(self, group_id: str, assigned: Iterable[TopicPartition] = ()) -> Gathered[LagView]:
        """The lag in every partition of the topics in which the group has committed offsets, or is `assigned` some.

        Of a topic that is not there any more these partitions alone are known, without their ends.
        """
        committed = await self.committed(group_id)
        rows: list[LagView] = []
        missing: list[str] = []
        keys = dict.fromkeys((*committed, *assigned))
        for topic in sorted({key.topic for key in keys}):
            ends, lacking = await self._known_ends(topic)
            missing += lacking
            partitions = ends or dict.fromkeys(key.partition for key in keys if key.topic == topic)
            rows += [
                LagView(topic, partition, committed.get(TopicPartition(topic, partition)), end)
                for partition, end in sorted(partitions.items())
            ]
        return Gathered(rows, missing)

    async def _known_ends(self, topic: str) -> tuple[dict[int, int | None], list[str]]:
        """The end of each partition, None where no leader tells it, and why; no ends of a topic that is gone."""
        consumer = Consumer(self._client, topic, purpose=ApiKey.LIST_OFFSETS)
        try:
            await consumer.start(at=0)
            found, why = await consumer.known_offsets(LATEST, consumer.positions)
        except RefusedError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return {}, [str(error)]
        missing = [f"{partitions_text(topic, why)}, and the lag is missing"] if why else []
        return {one: found.get(one) for one in consumer.positions}, missing

    async def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, whether they have leaders or not."""
        return [one.partition for one in (await self._client.metadata([topic])).topic(topic).partitions]

    async def targets(self, topic: str, to: str | int, partitions: Sequence[int] = ()) -> dict[TopicPartition, int]:
        """The offset of `earliest`, `latest` or a time (milliseconds) in partitions (default: all) of the topic."""
        if isinstance(to, str):
            found = await self._offsets(topic, EARLIEST if to == "earliest" else LATEST, partitions)
        else:
            found = await self._offsets(topic, to, partitions)
            ends = await self._offsets(topic, LATEST, partitions)
            found = {one: at if at >= 0 else ends[one] for one, at in found.items()}
        return {TopicPartition(topic, partition): offset for partition, offset in found.items()}

    async def clamp(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets, each moved to the nearest one that is in its partition's log."""
        result: dict[TopicPartition, int] = {}
        for topic in sorted({key.topic for key in wanted}):
            partitions = [key.partition for key in wanted if key.topic == topic]
            first = await self._offsets(topic, EARLIEST, partitions)
            last = await self._offsets(topic, LATEST, partitions)
            for partition in partitions:
                key = TopicPartition(topic, partition)
                result[key] = min(max(wanted[key], first[partition]), last[partition])
        return result

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, member: tuple[str, int] | None = None
    ) -> None:
        """Set the group's offsets, for a `member` (its id and epoch) or from outside.

        Raises `RefusedError` when there is no such member, or when the group has members and none is named: see
        `check_empty`.
        """
        member_id, epoch = member or ("", -1)
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            row = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
            topics.setdefault(topic, []).append({**row, "committed_metadata": ""})
        fields = {
            "group_id": group_id,
            "generation_id_or_member_epoch": epoch,
            "member_id": member_id,
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
        }
        answer = await self.ask(group_id, ApiKey.OFFSET_COMMIT, _OFFSET_COMMIT_VERSION, fields, "topics")
        refusals: list[RefusedError] = []
        done: list[str] = []
        for topic in answer.topics:
            for row in topic.partitions:
                name = f"{topic.name}-{row.partition_index}"
                if row.error_code == ErrorCode.UNKNOWN_MEMBER_ID and member is None:
                    raise _not_empty(group_id, "it has members")
                if row.error_code:
                    asked = Asked(ApiKey.OFFSET_COMMIT, topic=topic.name, group=group_id)
                    refusals.append(RefusedError(row.error_code, f"group {group_id}, {name}", asked=asked))
                else:
                    done.append(name)
        if refusals:
            raise refused_in_part(refusals, {"offsets set": done})

    async def check_empty(self, group_id: str) -> bool:
        """Raise `RefusedError` when the group has members, since nobody else may set its offsets then.

        Returns whether there is such a group.
        """
        try:
            _, members = await self.members(group_id)
        except RefusedError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return False
        if members:
            raise _not_empty(group_id, f"it has {counted(len(members), 'member')}")
        return True

    async def delete(self, group_id: str) -> None:
        """Delete the group and its offsets. Raises `RefusedError` when it has members, or does not exist."""
        await self._check_any_group(group_id)
        attempts = Attempts()
        fields = {"groups_names": [group_id]}
        answer = await self._coordinators.ask(
            group_id,
            ApiKey.DELETE_GROUPS,
            _DELETE_GROUPS_VERSION,
            fields,
            lambda answer: _codes(answer.results),
            attempts.on_no_answer,
        )
        code = attempts.error_of(answer.results[0].error_code, ErrorCode.GROUP_ID_NOT_FOUND)
        reasons: dict[int, str] = {
            ErrorCode.NON_EMPTY_GROUP: "it has members",
            ErrorCode.GROUP_ID_NOT_FOUND: _NO_SUCH_GROUP,
        }
        if code:
            asked = Asked(ApiKey.DELETE_GROUPS, group=group_id)
            raise RefusedError(code, f"group {group_id}", reasons.get(code), asked=asked)

    # ---------------------------------------------------------------- asking

    async def _check_any_group(self, group_id: str) -> None:
        if not await self.has_offsets_topic():
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}", _NO_SUCH_GROUP)

    async def has_offsets_topic(self) -> bool:
        """Whether there may be groups. The search for a group's coordinator would create the topic."""
        return await self._client.may_have_topic(_OFFSETS_TOPIC)

    async def _offsets(self, topic: str, timestamp: int, partitions: Sequence[int] = ()) -> dict[int, int]:
        return await topic_offsets(self._client, topic, timestamp, partitions)

    async def ask(self, group_id: str, api: ApiKey, version: int, fields: Mapping[str, Any], rows: str = "") -> Struct:
        """Ask the coordinator; ask again when it has moved, is loading, or does not answer.

        `rows` is the part of the answer that has error codes; without it, the answer has one itself.
        """

        def codes_of(answer: Struct) -> Iterable[int]:
            return _codes(getattr(answer, rows) if rows else [answer])

        return await self._coordinators.ask(group_id, api, version, fields, codes_of)

    async def _until_loaded(self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
        deadline = self._client.throttling.unthrottled_time() + self._client.timeout_s
        while True:
            answer = await self._client.request_node(node_id, api, version, fields)
            if not answer.error_code:
                return answer
            if answer.error_code not in MOVED or self._client.throttling.unthrottled_time() > deadline:
                raise RefusedError(answer.error_code, f"the groups of broker {node_id}", asked=Asked(api))
            await asyncio.sleep(_RETRY_PAUSE_S)


def partitions_of(rows: Iterable[Any]) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment of the consumer protocol (KIP-848)."""
    return tuple(sorted(TopicPartition(str(row.topic_name), int(one)) for row in rows for one in row.partitions))


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a classic member's assignment, which begins with its version; none if it is no consumer's."""
    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big"), _NEWEST_ASSIGNMENT)
    try:
        found = codec.decode_data("consumer_protocol_assignment", version, data, 2)
    except (WireFormatError, ValueError):
        return ()
    return tuple(
        sorted(TopicPartition(str(row.topic), int(one)) for row in found.assigned_partitions for one in row.partitions)
    )


def all_assigned(members: Iterable[MemberView]) -> list[TopicPartition]:
    """The partitions that the members are assigned."""
    return [partition for member in members for partition in member.partitions]


def _not_empty(group_id: str, why: str) -> RefusedError:
    text = f"{why}, and offsets can be set only when all have left"
    return RefusedError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id}", text)


def _codes(rows: Sequence[Struct]) -> Iterable[int]:
    for row in rows:
        if "error_code" in row:
            yield row.error_code
        for part in row.get("partitions", ()):
            yield part.error_code
