"""OffsetCommit: store offsets of a group. Answered when the offsets are on all in-sync replicas."""

from __future__ import annotations

import asyncio
from typing import Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.codec import Rows, Struct
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import TopicPartition
from ...api import Fields, Result
from ...groups.consumer.consumer_group import ConsumerGroup
from ...groups.group_coordinator_shard import GroupCoordinatorShard
from ...groups.records.offset_and_classic_records import NO_EXPIRY, OffsetAndMetadata, offset_record
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import answer, answer_once, check_group_id, find_topic, topic_name_fields

MEMBER_EPOCH_SINCE = 9
_METADATA_LIMIT_BYTES = 32_767
_EXPIRY_MS_MAX = 2**63 - 1
"""The record of an offset holds no later time."""


def handle(services: BrokerServices, request: Request, message: Struct) -> Work[Result]:
    """Check the member, write the offsets, and answer when they are committed."""
    groups, group_id, pace = services.groups, message.group_id, Pace()
    services.authorization.check(request, AclOperation.READ, ResourceType.GROUP, group_id)
    groups.shard_of(check_group_id(group_id))
    values, response = yield from offsets_to_write(services, request, message, pace)
    records = yield from map_in_steps(lambda key: offset_record(group_id, key, values[key]), values, pace)
    # From here on all is done at once.
    shard = groups.shard_of(group_id)
    _check_member(services, shard, request.api_version, message)
    if not values:
        return response
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    groups.commit(shard, group_id, values.items(), records, answer_once(future))
    groups.watch_expiry()
    return answer(future, lambda code: with_code(response, code))


def _check_member(services: BrokerServices, shard: GroupCoordinatorShard, version: int, message: Struct) -> None:
    generation = message.generation_id_or_member_epoch
    group = shard.groups.get(message.group_id)
    if group is None:
        if generation >= 0:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        group = shard.new_classic(message.group_id)
    if (
        version < MEMBER_EPOCH_SINCE
        and isinstance(group, ConsumerGroup)
        and group.uses_consumer_protocol(message.member_id)
    ):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    member = message.member_id, message.get("group_instance_id"), generation
    checked = group
    code = services.groups.run(shard, group, lambda now_ms, _: checked.check_commit(*member, now_ms))
    if code:
        raise ProtocolError(code)


def offsets_to_write(
    services: BrokerServices, request: Request, message: Struct, pace: Pace
) -> Work[tuple[dict[TopicPartition, OffsetAndMetadata], Fields]]:
    """The offsets to write, and the response, with the error codes of those that are not written.

    Those of topics that the client may not read are not written.

    Of several offsets for one partition the last one is written, which is the one that counts.
    """
    groups = services.groups
    image = services.metadata.image
    may_read = services.authorization.permission(request, AclOperation.READ, ResourceType.TOPIC)
    limit = min(groups.config.offsets.metadata_max_bytes, _METADATA_LIMIT_BYTES)
    wall_ms = groups.wall_ms()
    retention_ms = message.get("retention_time", -1)
    expiry_ms = NO_EXPIRY if retention_ms < 0 else min(wall_ms + retention_ms, _EXPIRY_MS_MAX)
    values: dict[TopicPartition, OffsetAndMetadata] = {}
    topics: list[dict[str, Any]] = []
    for row in message.topics:
        topic = find_topic(image, row, may_read)
        rows: list[dict[str, Any]] = []
        for one in row.partitions:
            metadata = one.committed_metadata or ""
            code = ErrorCode.NONE
            if isinstance(topic, ErrorCode):
                code = topic
            elif one.partition_index not in topic.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode()) > limit:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                values[TopicPartition(topic.name, one.partition_index)] = OffsetAndMetadata(
                    one.committed_offset,
                    one.get("committed_leader_epoch", -1),
                    metadata,
                    wall_ms,
                    expiry_ms,
                    topic.topic_id,
                )
            rows.append({"partition_index": one.partition_index, "error_code": int(code)})
            if pace.ends_step():
                yield PLAIN_STEP
        topics.append({**topic_name_fields(row), "partitions": rows})
        if pace.ends_step():
            yield PLAIN_STEP
    return values, {"topics": topics}


def with_code(response: Fields, code: ErrorCode) -> Fields:
    """The response with the error code of the write, for the partitions that have no other."""
    if code:
        for topic in response["topics"]:  # type: ignore[index]
            for row in topic["partitions"]:
                row["error_code"] = row["error_code"] or int(code)
    return response


def error(message: Struct, code: int, text: str) -> Fields:
    """Every partition gets the error."""
    return {
        "topics": Rows(
            lambda row: {
                **topic_name_fields(row),
                "partitions": Rows(
                    lambda one: {"partition_index": one.partition_index, "error_code": code}, row.partitions
                ),
            },
            message.topics,
        )
    }
