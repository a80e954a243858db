"""Describes consumer groups of both protocols, with the partitions of each member."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ...cluster.client.access.needed_rights import Asked
from ...cluster.client.client_errors import RefusedError, is_retriable
from ...cluster.client.group_client import assigned_partitions, partitions_of
from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode
from ...wire.types import TopicPartition
from ..rest_cluster import RestCluster

_CONSUMER_GROUP_DESCRIBE_VERSION = 0
_DESCRIBE_GROUPS_VERSION = 5
_FIND_COORDINATOR_VERSION = 4


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, with its partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """A consumer group. `kind` is CLASSIC or CONSUMER (KIP-848); a simple group has offsets and no protocol."""

    group_id: str
    state: str
    kind: str
    assignor: str
    is_simple: bool
    coordinator: int
    members: tuple[Member, ...]


async def describe_group(cluster: RestCluster, group_id: str) -> Description:
    """A group. Raises `RefusedError` with GROUP_ID_NOT_FOUND when there is none."""
    if not await cluster.groups.has_offsets_topic():  # the search for a coordinator would create it
        raise _no_such_group(group_id)
    coordinator = await _coordinator(cluster, group_id)
    fields: dict[str, Any] = {"group_ids": [group_id], "include_authorized_operations": False}
    version = _CONSUMER_GROUP_DESCRIBE_VERSION
    answer = await cluster.groups.ask(group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, version, fields, "groups")
    row = answer.groups[0]
    if not row.error_code:
        members = tuple(
            Member(one.member_id, one.instance_id, one.client_id, partitions_of(one.assignment.topic_partitions))
            for one in row.members
        )
        return Description(
            group_id, _state(row.group_state), "CONSUMER", row.assignor_name, False, coordinator, members
        )
    fields = {"groups": [group_id], "include_authorized_operations": False}
    answer = await cluster.groups.ask(group_id, ApiKey.DESCRIBE_GROUPS, _DESCRIBE_GROUPS_VERSION, fields, "groups")
    row = answer.groups[0]
    if row.error_code:
        raise RefusedError(row.error_code, f"group {group_id}", asked=Asked(ApiKey.DESCRIBE_GROUPS, group=group_id))
    if row.group_state == "Dead":
        raise _no_such_group(group_id)
    members = tuple(
        Member(one.member_id, one.group_instance_id, one.client_id, assigned_partitions(bytes(one.member_assignment)))
        for one in row.members
    )
    is_simple = not row.protocol_type
    return Description(group_id, _state(row.group_state), "CLASSIC", row.protocol_data, is_simple, coordinator, members)


async def _coordinator(cluster: RestCluster, group_id: str) -> int:
    fields = {"key_type": 0, "coordinator_keys": [group_id]}
    row = (await cluster.client.request(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, fields)).coordinators[0]
    if row.error_code and not is_retriable(row.error_code):
        asked = Asked(ApiKey.FIND_COORDINATOR, group=group_id)
        raise RefusedError(row.error_code, f"group {group_id}", row.error_message, asked=asked)
    return int(row.node_id)


def _no_such_group(group_id: str) -> RefusedError:
    return RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")


def _state(name: str) -> str:
    """`PREPARING_REBALANCE` for PreparingRebalance."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
