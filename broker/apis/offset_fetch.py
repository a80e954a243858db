"""OffsetFetch: where a group left off; from version 8 on for several groups at once (KIP-709)."""

from __future__ import annotations

from typing import Any

from ...controller.image import MetadataImage
from ...wire.apis import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..api import Api, Fields
from ..groups.records import OffsetValue
from ..groups.requests import check_group_id, find_topic, topic_name_fields
from ..groups.shard import GroupOffsets
from ..request import Request
from ..services import BrokerServices

FIRST_BATCHED_VERSION = 8
FIRST_VERSION_BY_ID = 10
TOP_LEVEL_ERROR_SINCE = 2
_NOTHING = OffsetValue(-1)


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    if request.api_version < FIRST_BATCHED_VERSION:
        return {"error_code": 0, "topics": _topics(services, request, message)}
    return {"groups": [_group_row(services, request, group) for group in message.groups]}


def _group_row(services: BrokerServices, request: Request, group: Struct) -> dict[str, Any]:
    try:
        topics = _topics(services, request, group)
    except ProtocolError as refused:
        return {"group_id": group.group_id, "error_code": int(refused.code), "topics": []}
    return {"group_id": group.group_id, "error_code": 0, "topics": topics}


def _topics(services: BrokerServices, request: Request, asked: Struct) -> list[dict[str, Any]]:
    shard = services.groups.shard_of(check_group_id(asked.group_id))
    group = shard.groups.get(asked.group_id)
    if group is not None:
        code = group.check_fetch(asked.get("member_id"), asked.get("member_epoch", -1))
        if code:
            raise ProtocolError(code)
    offsets = shard.offsets_of(asked.group_id)
    image = services.metadata.image
    if asked.topics is None:
        return _all_topics(image, offsets, by_id=request.api_version >= FIRST_VERSION_BY_ID)
    rows = []
    for wanted in asked.topics:
        topic = find_topic(image, wanted)
        # A name that is not known has no offsets; an id that is not known is an error.
        unknown_id = isinstance(topic, ErrorCode) and "topic_id" in wanted
        name = wanted.get("name", "") if isinstance(topic, ErrorCode) else topic.name
        code = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.NONE
        partitions = [
            _row(index, offsets.get(TopicPartition(name, index), _NOTHING), code) for index in wanted.partition_indexes
        ]
        rows.append({**topic_name_fields(wanted), "partitions": partitions})
    return rows


def _all_topics(image: MetadataImage, offsets: GroupOffsets, *, by_id: bool) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (name, index), value in sorted(offsets.items()):
        topics.setdefault(name, []).append(_row(index, value, ErrorCode.NONE))
    rows: list[dict[str, Any]] = []
    for name, partitions in topics.items():
        known = image.topics_by_name.get(name)
        if not by_id:
            rows.append({"name": name, "partitions": partitions})
        elif known is not None:
            rows.append({"topic_id": known.topic_id, "partitions": partitions})
    return rows


def _row(index: int, value: OffsetValue, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": value.offset,
        "committed_leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "error_code": int(code),
    }


def error(message: Struct, code: int, text: str) -> Fields:
    """The groups, or every partition and the whole, get the error."""
    topics = [
        {
            **topic_name_fields(topic),
            "partitions": [
                {**_row(index, _NOTHING, ErrorCode.NONE), "error_code": code} for index in topic.partition_indexes
            ],
        }
        for topic in message.get("topics") or ()
    ]
    groups = [{"group_id": one.group_id, "error_code": code, "topics": []} for one in message.get("groups", ())]
    return {"error_code": code, "topics": topics, "groups": groups}


API = Api(ApiKey.OFFSET_FETCH, (1, 10), handle=handle, error=error)
