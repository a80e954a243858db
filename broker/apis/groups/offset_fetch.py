"""OffsetFetch: the committed offsets of a group; of several groups from version 8 on (KIP-709)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ....controller.metadata.metadata_image import MetadataImage
from ....wire.codec import Struct
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import TopicPartition
from ...api import Fields
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

    def row(self, name: str, index: int, topic_id: UUID | None) -> dict[str, Any]:
        """The row of a partition. `topic_id` is the id of the topic that has this name now."""
        key = TopicPartition(name, index)
        if self.must_be_stable and self.shard.pending.is_unstable(OffsetKey(self.group_id, key)):
            return _row(index, _NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self.shard.offsets_of(self.group_id).get(key, _NO_OFFSET)
        is_of_another = None not in (value.topic_id, topic_id) and value.topic_id != topic_id
        return _row(index, _NO_OFFSET if is_of_another else value, ErrorCode.NONE)


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    """The committed offsets of the partitions asked for; of all partitions where none is named."""
    must_be_stable = message.get("require_stable", False)
    if request.api_version < FIRST_BATCHED_VERSION:
        return {"error_code": 0, "topics": _topics(services, request, message, must_be_stable)}
    return {"groups": [_group_row(services, request, group, must_be_stable) for group in message.groups]}


def _group_row(services: BrokerServices, request: Request, group: Struct, must_be_stable: bool) -> dict[str, Any]:
    try:
        topics = _topics(services, request, group, must_be_stable)
    except ProtocolError as refused:
        return {"group_id": group.group_id, "error_code": int(refused.code), "topics": []}
    return {"group_id": group.group_id, "error_code": 0, "topics": topics}


def _topics(services: BrokerServices, request: Request, asked: Struct, must_be_stable: bool) -> list[dict[str, Any]]:
    shard = services.groups.shard_of(check_group_id(asked.group_id))
    group = shard.groups.get(asked.group_id)
    if group is not None:
        code = group.check_fetch(asked.get("member_id"), asked.get("member_epoch", -1))
        if code:
            raise ProtocolError(code)
    commits = _Commits(shard, asked.group_id, must_be_stable)
    image = services.metadata.image
    if asked.topics is None:
        return _all_topics(image, commits, by_id=request.api_version >= FIRST_VERSION_BY_ID)
    rows = []
    for wanted in asked.topics:
        topic = find_topic(image, wanted)
        # An unknown topic name may still have committed offsets; an unknown topic id is an error.
        if not isinstance(topic, ErrorCode):
            partitions = [commits.row(topic.name, index, topic.topic_id) for index in wanted.partition_indexes]
        elif "topic_id" in wanted:
            partitions = [_row(index, _NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_ID) for index in wanted.partition_indexes]
        else:
            partitions = [commits.row(wanted.name, index, None) for index in wanted.partition_indexes]
        rows.append({**topic_name_fields(wanted), "partitions": partitions})
    return rows


def _all_topics(image: MetadataImage, commits: _Commits, *, by_id: bool) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(commits.shard.offsets_of(commits.group_id)):
        topics.setdefault(name, []).append(index)
    rows: list[dict[str, Any]] = []
    for name, indexes in topics.items():
        known = image.topics_by_name.get(name)
        partitions = [commits.row(name, index, None if known is None else known.topic_id) for index in indexes]
        partitions = [row for row in partitions if row["committed_offset"] >= 0 or row["error_code"]]
        if not by_id:
            rows.append({"name": name, "partitions": partitions})
        elif known is not None:
            rows.append({"topic_id": known.topic_id, "partitions": partitions})
    return [row for row in rows if row["partitions"]]


def _row(index: int, value: OffsetAndMetadata, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": value.offset,
        "committed_leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "error_code": int(code),
    }


def error(message: Struct, code: int, text: str) -> Fields:
    """Every group gets the error; in older versions every partition, and the response itself."""
    topics = [
        {
            **topic_name_fields(topic),
            "partitions": [
                {**_row(index, _NO_OFFSET, ErrorCode.NONE), "error_code": code} for index in topic.partition_indexes
            ],
        }
        for topic in message.get("topics") or ()
    ]
    groups = [{"group_id": one.group_id, "error_code": code, "topics": []} for one in message.get("groups", ())]
    return {"error_code": code, "topics": topics, "groups": groups}
