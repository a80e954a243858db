"""OffsetFetch: the committed offsets of a group; of several groups from version 8 on (KIP-709).

An application that reads, processes and writes in transactions starts again from the offsets that it gets here. Were
they older than what another coordinator has acknowledged, it would process records twice. So stable offsets
(`require_stable`, KIP-447), which such an application asks for, are answered only when the replicas of the group's
partition have confirmed that this broker still leads it (`isr/leader/read_confirmations.py`). If they do not, the
answer is NOT_COORDINATOR: the client looks for the coordinator again, and clients before Kafka 3.9 would not repeat the
request after any other code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from ....controller.metadata.metadata_image import MetadataImage
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps, sort_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.codec import Rows, Struct
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import TopicPartition
from ...api import Fields, Result
from ...groups.group_coordinator_shard import GroupCoordinatorShard
from ...groups.records.offset_and_classic_records import OffsetAndMetadata, OffsetKey
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import check_group_id, find_topic, topic_name_fields

FIRST_BATCHED_VERSION = 8
FIRST_VERSION_BY_ID = 10
TOP_LEVEL_ERROR_SINCE = 2
_NO_OFFSET = OffsetAndMetadata(-1)


@dataclass(frozen=True, slots=True)
class _Commits:
    """The committed offsets of a group, as one request may see them."""

    shard: GroupCoordinatorShard
    group_id: str
    must_be_stable: bool

    def row(self, name: str, topic_id: UUID | None, index: int) -> dict[str, Any]:
        """The row of a partition. `topic_id` is the id of the topic that has this name now."""
        key = TopicPartition(name, index)
        if self.must_be_stable and self.shard.pending.is_unstable(OffsetKey(self.group_id, key)):
            return _row(_NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT, index)
        value = self.shard.offsets_of(self.group_id).get(key, _NO_OFFSET)
        is_of_another = None not in (value.topic_id, topic_id) and value.topic_id != topic_id
        return _row(_NO_OFFSET if is_of_another else value, ErrorCode.NONE, index)


def handle(services: BrokerServices, request: Request, message: Struct) -> Result:
    """The committed offsets of the partitions asked for; of all partitions where none is named."""
    if message.get("require_stable", False):
        return _read_stable(services, request, message)
    return _read(services, request, message, None)


def _read_stable(services: BrokerServices, request: Request, message: Struct) -> Work[Result]:
    """Read when the shards of all groups that are asked for are confirmed, or known not to be."""
    shards = yield from _shards(services, request, message)
    confirmed: list[GroupCoordinatorShard] = []
    left = len(shards)
    all_answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answer(shard: GroupCoordinatorShard, is_confirmed: bool) -> None:
        nonlocal left
        left -= 1
        if is_confirmed:
            confirmed.append(shard)
        if not left and not all_answered.done():
            all_answered.set_result(None)

    for shard in shards:
        services.groups.confirm(shard, partial(on_answer, shard))
    if not left:
        return _read(services, request, message, confirmed)
    return _read_later(services, request, message, confirmed, all_answered)


def _shards(services: BrokerServices, request: Request, message: Struct) -> Work[list[GroupCoordinatorShard]]:
    """The shards of the groups that can be answered, each once; what refuses the others is found again."""
    rights, pace = services.authorization, Pace()
    shards: dict[int, GroupCoordinatorShard] = {}
    for asked in message.groups if request.api_version >= FIRST_BATCHED_VERSION else (message,):
        group_id = asked.group_id
        if rights.is_allowed(request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id, logs_denial=False):
            with suppress(ProtocolError):
                shard = services.groups.shard_of(check_group_id(group_id))
                shards[shard.partition] = shard
        if pace.ends_step():
            yield PLAIN_STEP
    return list(shards.values())


async def _read_later(
    services: BrokerServices,
    request: Request,
    message: Struct,
    confirmed: Sequence[GroupCoordinatorShard],
    all_answered: Awaitable[None],
) -> Result:
    await all_answered
    return _read(services, request, message, confirmed)


def _read(
    services: BrokerServices, request: Request, message: Struct, confirmed: Sequence[GroupCoordinatorShard] | None
) -> Work[Fields]:
    """The answer: with stable offsets of the `confirmed` shards, or with the offsets as they are (None)."""
    pace = Pace()
    if request.api_version < FIRST_BATCHED_VERSION:
        try:
            topics = yield from _topics(services, request, message, confirmed, pace)
        except ProtocolError as refused:
            if request.api_version < TOP_LEVEL_ERROR_SINCE:
                raise
            return {"error_code": int(refused.code), "topics": []}
        return {"error_code": 0, "topics": topics}
    rows = []
    for group in message.groups:
        rows.append((yield from _group_row(services, request, group, confirmed, pace)))
        if pace.ends_step():
            yield PLAIN_STEP
    return {"groups": rows}


def _group_row(
    services: BrokerServices,
    request: Request,
    group: Struct,
    confirmed: Sequence[GroupCoordinatorShard] | None,
    pace: Pace,
) -> Work[dict[str, Any]]:
    try:
        topics = yield from _topics(services, request, group, confirmed, pace)
    except ProtocolError as refused:
        return {"group_id": group.group_id, "error_code": int(refused.code), "topics": []}
    return {"group_id": group.group_id, "error_code": 0, "topics": topics}


def _topics(
    services: BrokerServices,
    request: Request,
    asked: Struct,
    confirmed: Sequence[GroupCoordinatorShard] | None,
    pace: Pace,
) -> Work[list[dict[str, Any]]]:
    rights = services.authorization
    rights.check(request, AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id)
    shard = services.groups.shard_of(check_group_id(asked.group_id))
    if confirmed is not None and shard not in confirmed:
        raise ProtocolError(ErrorCode.NOT_COORDINATOR)
    group = shard.groups.get(asked.group_id)
    if group is not None:
        code = group.check_fetch(asked.get("member_id"), asked.get("member_epoch", -1))
        if code:
            raise ProtocolError(code)
    commits = _Commits(shard, asked.group_id, confirmed is not None)
    image = services.metadata.image
    if asked.topics is None:
        may_see = rights.permission(request, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_denial=False)
        by_id = request.api_version >= FIRST_VERSION_BY_ID
        return (yield from _all_topics(image, commits, pace, may_see, by_id=by_id))
    may_see = rights.permission(request, AclOperation.DESCRIBE, ResourceType.TOPIC)
    rows = []
    for wanted in asked.topics:
        topic = find_topic(image, wanted, may_see)
        # An unknown topic name may still have committed offsets; an unknown topic id is an error.
        if not isinstance(topic, ErrorCode):
            row = partial(commits.row, topic.name, topic.topic_id)
        elif topic is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            row = partial(_row, _NO_OFFSET, topic)
        else:
            row = partial(commits.row, wanted.name, None)
        partitions = yield from map_in_steps(row, wanted.partition_indexes, pace)
        rows.append({**topic_name_fields(wanted), "partitions": partitions})
        if pace.ends_step():
            yield PLAIN_STEP
    return rows


def _all_topics(
    image: MetadataImage, commits: _Commits, pace: Pace, may_see: Callable[[str], bool], *, by_id: bool
) -> Work[list[dict[str, Any]]]:
    """The committed offsets of all topics that the client may see."""
    topics: dict[str, list[int]] = {}
    for name, index in (yield from sort_in_steps(list(commits.shard.offsets_of(commits.group_id)), pace)):
        topics.setdefault(name, []).append(index)
    rows: list[dict[str, Any]] = []
    for name, indexes in topics.items():
        if not may_see(name):
            continue
        known = image.topics_by_name.get(name)
        row = partial(commits.row, name, None if known is None else known.topic_id)
        partitions = yield from map_in_steps(row, indexes, pace)
        partitions = [row for row in partitions if row["committed_offset"] >= 0 or row["error_code"]]
        if not by_id:
            rows.append({"name": name, "partitions": partitions})
        elif known is not None:
            rows.append({"topic_id": known.topic_id, "partitions": partitions})
    return [row for row in rows if row["partitions"]]


def _row(value: OffsetAndMetadata, code: ErrorCode, index: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": value.offset,
        "committed_leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "error_code": int(code),
    }


def error(message: Struct, code: int, text: str) -> Fields:
    """Every group gets the error; in older versions every partition, and the response itself."""
    topics = Rows(
        lambda topic: {
            **topic_name_fields(topic),
            "partitions": Rows(
                lambda index: {**_row(_NO_OFFSET, ErrorCode.NONE, index), "error_code": code}, topic.partition_indexes
            ),
        },
        message.get("topics") or (),
    )
    groups = Rows(lambda one: {"group_id": one.group_id, "error_code": code, "topics": []}, message.get("groups", ()))
    return {"error_code": code, "topics": topics, "groups": groups}
